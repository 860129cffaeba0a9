/** The same requests and views as over HTTP, spelled as protobuf messages. */

import type {
  Binding,
  Call,
  CallEvent,
  CreateCallRequest,
  FinalReceipt,
  PutToolsetRequest,
  Runner,
  SettleCallRequest,
  Toolset,
} from "@toolrunner/proto";
import type { CallEventView, CallView } from "../../domain/call-view.js";
import type { BindingView, Json, ToolsetView } from "../../domain/ports/catalog.js";
import type { FinalReceiptView, RunnerView } from "../../wire/operations.js";
import { parseJsonText } from "../shared/json-text.js";

/** A text that must be there: protobuf cannot tell an empty one from none. */
export function needed(text: string): string | undefined {
  return text === "" ? undefined : text;
}

/** A JSON text in a field; `undefined` when it is not there. Throws `BrokerError` `body_invalid`. */
export function jsonIn(text: string | undefined, field: string, path: string): Json | undefined {
  return text === undefined ? undefined : parseJsonText(text, field, path);
}

/** The body of `POST /v1/calls`, unchecked. */
export function createCallBody(request: CreateCallRequest): Readonly<Record<string, unknown>> {
  // In the order of their names, which is that of the request's hash.
  return {
    agent: request.agent,
    arguments: jsonIn(needed(request.argumentsJson), "arguments_json", "/arguments"),
    audience: request.audience,
    idempotency_key: request.idempotencyKey,
    max_attempts: request.maxAttempts,
    ordering_key: request.orderingKey,
    priority: request.priority,
    release: request.release,
    session: request.session,
    subject: request.subject,
    timeout_seconds: request.timeoutSeconds,
    tool: needed(request.tool),
    toolset: needed(request.toolset),
    toolset_version: request.toolsetVersion,
    wait_seconds: request.waitSeconds,
  };
}

/** A call of a batch, unchecked: what it may not have is there only when the message has it. */
export function batchCallBody(request: CreateCallRequest): object {
  const { wait_seconds, ...body } = createCallBody(request);
  return wait_seconds === undefined ? body : { ...body, wait_seconds };
}

/** The body of `POST /v1/calls/{id}/receipt`, unchecked. */
export function settleCallBody({ outcome, resultJson, error, message, fence }: SettleCallRequest): object {
  return { outcome: needed(outcome), result: jsonIn(resultJson, "result_json", "/result"), error, message, fence };
}

/** The body of `PUT /v1/toolsets/{id}`, unchecked. */
export function putToolsetBody(request: PutToolsetRequest): object {
  return {
    base_version: request.baseVersion,
    tools: request.tools.map(({ toolJson }, index) => parseJsonText(toolJson, `tool_json ${index}`, `/tools/${index}`)),
    idempotency_key: request.idempotencyKey,
  };
}

/** A call as a message. */
export function callMessage(view: CallView): Call {
  return {
    id: view.id,
    state: view.state,
    toolset: view.toolset,
    toolsetVersion: view.toolset_version,
    tool: view.tool,
    binding: view.binding,
    agent: view.agent ?? undefined,
    subject: view.subject ?? undefined,
    session: view.session ?? undefined,
    attempt: view.attempt,
    waitingFor: view.waiting_for ?? undefined,
    createdAt: view.created_at,
    deadlineAt: view.deadline_at ?? undefined,
    settledAt: view.settled_at ?? undefined,
    receipt:
      view.receipt === null
        ? undefined
        : {
            attempt: view.receipt.attempt,
            fence: view.receipt.fence,
            outcome: view.receipt.outcome,
            runnerId: view.receipt.runner_id,
            receivedAt: view.receipt.received_at,
            digest: view.receipt.digest,
          },
    resultJson: resultJson(view),
    resultRef: view.result_ref ?? undefined,
    error:
      view.error === null
        ? undefined
        : {
            code: view.error.code,
            message: view.error.message,
            retryable: view.error.retryable,
            retryAfterSeconds: view.error.retry_after_seconds ?? undefined,
            details: [...view.error.details],
          },
    modelResult:
      view.model_result === null
        ? undefined
        : {
            text: view.model_result.text,
            bytesBefore: view.model_result.bytes_before,
            bytesAfter: view.model_result.bytes_after,
            truncated: view.model_result.truncated,
          },
  };
}

/** A null is a result once the call has succeeded, and no result before. */
function resultJson({ result, state }: CallView): string | undefined {
  if (result === undefined || (result === null && state !== "succeeded" && state !== "submitted")) return undefined;
  return JSON.stringify(result);
}

/** A final receipt as a message. */
export function finalReceiptMessage(view: FinalReceiptView): FinalReceipt {
  return { callId: view.call_id, outcome: view.outcome, digest: view.digest, state: view.state, settledAt: view.settled_at };
}

/** An event as a message. */
export function eventMessage(view: CallEventView): CallEvent {
  return { callId: view.call_id, seq: view.seq, at: view.at, event: view.event, dataJson: JSON.stringify(view.data) };
}

/** A binding as a message. */
export function bindingMessage(view: BindingView): Binding {
  return { id: view.id, name: view.name, kind: view.kind, createdAt: view.created_at, limits: view.limits };
}

/** A toolset's version as a message; tools stay JSON, so that schemas keep their order and unknown keywords. */
export function toolsetMessage(view: ToolsetView): Toolset {
  return {
    id: view.id,
    version: view.version,
    contentHash: view.content_hash,
    createdAt: view.created_at,
    tools: view.tools.map((tool) => ({ toolJson: JSON.stringify(tool) })),
  };
}

/** A runner as a message. */
export function runnerMessage(view: RunnerView): Runner {
  return {
    runnerId: view.runner_id,
    binding: view.binding,
    subject: view.subject ?? undefined,
    brokerId: view.broker_id,
    sessionEpoch: view.session_epoch,
    transport: view.transport,
    sdk: view.sdk,
    connectedAt: view.connected_at,
    slots: view.slots,
    grantsHeld: view.grants_held,
    handlers: view.handlers.map(({ tool, version, idempotent, cancellable }) => ({ tool, version, idempotent, cancellable })),
  };
}
