/** `toolrunner.v1.Calls`. */

import { type ServerWritableStream, status } from "@grpc/grpc-js";
import type { CallEvent, CreateCallRequest, WatchCallRequest } from "@toolrunner/proto";
import type { CallsHandlers } from "@toolrunner/proto/services";
import { BrokerError } from "../../domain/broker-error.js";
import { validTraceparent } from "../shared/traceparent.js";
import { callerOf, logRpc, principalOf, type RpcParts, refusal, requireDecoded, unary, unaryOfRunner } from "./agent-rpc.js";
import { createCallsHandler } from "./create-calls.js";
import { apiErrorOf, grpcStatusOf } from "./grpc-fault.js";
import {
  batchCallBody,
  callMessage,
  createCallBody,
  eventMessage,
  finalReceiptMessage,
  jsonIn,
  needed,
  settleCallBody,
} from "./messages.js";
import { drained, type StreamTimes } from "./stream-flow.js";

/** Makes the handlers. */
export function callHandlers(parts: RpcParts, times: StreamTimes): CallsHandlers {
  const { api } = parts;
  return {
    createCall: unary(parts, "CreateCall", async (principal, request, caller) =>
      callMessage(await api.createCall(principal, createCallBody(request), { caller, traceparent: validTraceparent(request.traceparent) })),
    ),
    getCall: unary(parts, "GetCall", async (principal, { id, waitSeconds, waitFor }, caller) =>
      callMessage(await api.getCall(principal, id, { wait_seconds: waitSeconds, wait_for: waitFor }, { caller })),
    ),
    listCalls: unary(parts, "ListCalls", async (principal, request) => {
      const page = await api.listCalls(principal, { ...request });
      return { data: page.data.map(callMessage), nextPage: page.next_page ?? undefined };
    }),
    listCallEvents: unary(parts, "ListCallEvents", async (principal, { id, afterSeq }) => ({
      data: (await api.listCallEvents(principal, id, { after_seq: afterSeq })).map(eventMessage),
    })),
    watchCall(stream) {
      void watch(parts, stream, times);
    },
    readResult: unary(parts, "ReadResult", async (principal, { id, offset, maxBytes }) => {
      const page = await api.readResult(principal, id, { offset, max_bytes: maxBytes });
      return { text: page.text, nextOffset: page.next_offset, eof: page.eof };
    }),
    cancelCall: unary(parts, "CancelCall", async (principal, { id, mode, reason }) =>
      callMessage((await api.cancelCall(principal, id, { mode, reason })).call),
    ),
    confirmCall: unary(parts, "ConfirmCall", async (principal, { id, decision }) =>
      callMessage(await api.confirmCall(principal, id, { decision: needed(decision) })),
    ),
    reconcileCall: unary(parts, "ReconcileCall", async (principal, { id, outcome, resultJson, note }) =>
      callMessage(
        await api.reconcileCall(principal, id, { outcome: needed(outcome), result: jsonIn(resultJson, "result_json", "/result"), note }),
      ),
    ),
    createCalls: createCallsHandler(parts, times),
    createBatch: unary(parts, "CreateBatch", async (principal, request, caller, requestId) => {
      const answers = await api.createBatch(
        principal,
        { calls: request.calls, wait_seconds: request.waitSeconds },
        // Every message of a batch was decoded as one of these. Its trace context is that of the first call that has one.
        {
          caller,
          traceparent: validTraceparent(request.calls.find(({ traceparent }) => traceparent !== undefined)?.traceparent),
          read: (call) => batchCallBody(call as CreateCallRequest),
        },
      );
      return {
        data: answers.map((answer) => ({
          answer:
            answer.kind === "call"
              ? ({ $case: "call", value: callMessage(answer.view) } as const)
              : ({ $case: "error", value: apiErrorOf(refusal(parts, "CreateBatch", requestId, answer.error).fault, requestId) } as const),
        })),
      };
    }),
    updateCall: unaryOfRunner(parts, "UpdateCall", async (runner, { id, text, percentage, dataJson, idempotencyKey }) =>
      eventMessage(
        await api.updateCall(runner, id, {
          text,
          percentage,
          data: jsonIn(dataJson, "data_json", "/data"),
          idempotency_key: idempotencyKey,
        }),
      ),
    ),
    settleCall: unaryOfRunner(parts, "SettleCall", async (runner, request) =>
      finalReceiptMessage(await api.settleCall(runner, request.id, settleCallBody(request))),
    ),
  };
}

/** Events one by one, as fast as the reader takes them; ends after `settled`, or as UNAVAILABLE when the broker drains. */
async function watch(parts: RpcParts, stream: ServerWritableStream<WatchCallRequest, CallEvent>, times: StreamTimes): Promise<void> {
  const requestId = parts.nextRequestId();
  const started = performance.now();
  const wait = parts.waits.open(callerOf(stream));
  try {
    const principal = await principalOf(parts, stream);
    requireDecoded(stream.request);
    const { id, afterSeq } = stream.request;
    const events = await parts.api.watchCall(principal, id, { after_seq: afterSeq }, wait.signal);
    for await (const event of events) {
      if (wait.signal.aborted) break;
      if (!stream.write(eventMessage(event)) && !(await drained(stream, wait.signal, times.stallMs))) {
        if (!wait.signal.aborted)
          throw new BrokerError("rate_limited", "The reader took no events for too long: watch again after the last seq.");
        break;
      }
    }
    if (parts.waits.draining)
      throw new BrokerError("draining", "This broker is shutting down: watch again after the last seq at another one.");
    stream.end();
    logRpc(parts, "WatchCall", requestId, started, stream.cancelled ? status.CANCELLED : status.OK);
  } catch (error) {
    const refused = refusal(parts, "WatchCall", requestId, error);
    stream.emit("error", refused.error);
    logRpc(parts, "WatchCall", requestId, started, grpcStatusOf(refused.fault));
  } finally {
    wait.close();
  }
}
