/** Messages as the JSON views of the HTTP interface, and requests as messages. */

import type * as proto from "@toolrunner/proto";
import { ToolRunnerError } from "../errors.js";
import { fieldText } from "../json-text.js";
import type { OperationRequest } from "../transport.js";
import type { Binding, Call, CallEvent, Json, Runner, Tool, Toolset } from "../types.js";

/** A call. */
export function callView(call: proto.Call): Call {
  const { receipt, error, modelResult } = call;
  return {
    type: "call",
    id: call.id,
    state: call.state as Call["state"],
    toolset: call.toolset,
    toolset_version: call.toolsetVersion,
    tool: call.tool,
    binding: call.binding,
    agent: call.agent ?? null,
    subject: call.subject ?? null,
    session: call.session ?? null,
    attempt: call.attempt,
    waiting_for: (call.waitingFor ?? null) as Call["waiting_for"],
    created_at: call.createdAt,
    deadline_at: call.deadlineAt ?? null,
    settled_at: call.settledAt ?? null,
    receipt:
      receipt === undefined
        ? null
        : {
            attempt: receipt.attempt,
            fence: receipt.fence,
            outcome: receipt.outcome,
            runner_id: receipt.runnerId,
            received_at: receipt.receivedAt,
            digest: receipt.digest,
          },
    ...(call.resultJson === undefined && call.resultRef !== undefined ? {} : { result: jsonOf(call.resultJson ?? "null") }),
    result_ref: call.resultRef ?? null,
    error:
      error === undefined
        ? null
        : {
            code: error.code,
            message: error.message,
            retryable: error.retryable,
            retry_after_seconds: error.retryAfterSeconds ?? null,
            details: error.details,
          },
    model_result:
      modelResult === undefined
        ? null
        : {
            text: modelResult.text,
            bytes_before: modelResult.bytesBefore,
            bytes_after: modelResult.bytesAfter,
            truncated: modelResult.truncated,
          },
  };
}

/** An event. */
export function eventView(event: proto.CallEvent): CallEvent {
  return {
    type: "event",
    call_id: event.callId,
    seq: event.seq,
    at: event.at,
    event: event.event,
    data: jsonOf(event.dataJson) as CallEvent["data"],
  };
}

/** A binding. */
export function bindingView(binding: proto.Binding): Binding {
  const { id, name, kind, limits, createdAt } = binding;
  return {
    id,
    name,
    kind: kind as Binding["kind"],
    ...(limits === undefined
      ? {}
      : {
          limits: {
            ...(limits.concurrency === undefined ? {} : { concurrency: limits.concurrency }),
            ...(limits.queue === undefined ? {} : { queue: limits.queue }),
          },
        }),
    created_at: createdAt,
  };
}

/** A version of a toolset. */
export function toolsetView(toolset: proto.Toolset): Toolset {
  return {
    id: toolset.id,
    version: toolset.version,
    content_hash: toolset.contentHash,
    created_at: toolset.createdAt,
    tools: toolset.tools.map(({ toolJson }) => JSON.parse(toolJson) as Tool),
  };
}

/** A runner. */
export function runnerView(runner: proto.Runner): Runner {
  return {
    runner_id: runner.runnerId,
    binding: runner.binding,
    subject: runner.subject ?? null,
    broker_id: runner.brokerId,
    session_epoch: runner.sessionEpoch,
    transport: runner.transport,
    sdk: runner.sdk,
    connected_at: runner.connectedAt,
    slots: runner.slots,
    grants_held: runner.grantsHeld,
    handlers: runner.handlers,
  };
}

function jsonOf(text: string): Json {
  return JSON.parse(text) as Json;
}

const UINT32_MAX = 2 ** 32 - 1;

/** Reads the fields of a request: each is what the client put there, or absent. */
export function fieldsOf(request: OperationRequest) {
  const all: Readonly<Record<string, unknown>> = { ...request.params, ...request.query, ...request.body };
  return {
    text: (name: string): string | undefined => (all[name] === undefined ? undefined : String(all[name])),
    needed: (name: string): string => (all[name] === undefined ? "" : String(all[name])),
    number: (name: string): number | undefined => (all[name] === undefined ? undefined : Number(all[name])),
    /** Protobuf cannot even write another number, and over HTTP the broker refuses it. */
    uint32(name: string, path = `/${name}`): number | undefined {
      const value = all[name] === undefined ? undefined : Number(all[name]);
      if (value !== undefined && !(Number.isInteger(value) && value >= 0 && value <= UINT32_MAX)) {
        throw new ToolRunnerError("body_invalid", `${name} must be a whole number from 0 to ${UINT32_MAX}, not ${all[name]}.`, {
          type: "invalid_request_error",
          status: 400,
          details: [{ path, expected: "a whole number", actual: String(all[name]) }],
        });
      }
      return value;
    },
    json: (name: string): string | undefined => fieldText(all[name]),
    list: (name: string): readonly unknown[] => (Array.isArray(all[name]) ? all[name] : []),
  };
}

/** The limits of a binding that is saved; undefined: none. */
export function limitsMessage({ body }: OperationRequest): proto.PutBindingRequest["limits"] {
  const limits = body?.["limits"];
  if (limits === undefined || limits === null) {
    return undefined;
  }
  const { uint32 } = fieldsOf({ body: { ...limits } });
  return { concurrency: uint32("concurrency", "/limits/concurrency"), queue: uint32("queue", "/limits/queue") };
}

/** The message that creates a call. */
export function createCallMessage(request: OperationRequest): proto.CreateCallRequest {
  const { text, needed, number, uint32, json } = fieldsOf(request);
  return {
    toolset: needed("toolset"),
    tool: needed("tool"),
    argumentsJson: json("arguments") ?? "",
    toolsetVersion: uint32("toolset_version"),
    agent: text("agent"),
    release: uint32("release"),
    subject: text("subject"),
    session: text("session"),
    idempotencyKey: text("idempotency_key"),
    timeoutSeconds: uint32("timeout_seconds"),
    waitSeconds: number("wait_seconds"),
    orderingKey: text("ordering_key"),
    priority: text("priority"),
    maxAttempts: uint32("max_attempts"),
    audience: text("audience"),
    traceparent: request.traceparent,
  };
}
