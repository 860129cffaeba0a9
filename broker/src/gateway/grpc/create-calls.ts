/**
 * `Calls/CreateCalls`: many creations over one stream, answered in any order.
 *
 * Invariants: every request that was read is answered once, unless the stream breaks; at most {@link IN_FLIGHT_MAX} are under
 * way; a creation never queues behind another one's wait: when all places are taken, the oldest wait is answered at once
 * with its call as it is, and its client waits for the rest by other means. The key is checked again as time goes by.
 */

import { type ServerDuplexStream, status } from "@grpc/grpc-js";
import type { CreateCallsRequest, CreateCallsResponse } from "@toolrunner/proto";
import { BrokerError } from "../../domain/broker-error.js";
import type { AgentPrincipal } from "../../domain/ports/access.js";
import { requireScope } from "../shared/scopes.js";
import { validTraceparent } from "../shared/traceparent.js";
import type { Caller } from "../shared/waits.js";
import { callerOf, logRpc, principalOf, type RpcParts, refusal, requireDecoded } from "./agent-rpc.js";
import { apiErrorOf, grpcStatusOf } from "./grpc-fault.js";
import { callMessage, createCallBody } from "./messages.js";
import { drained, type StreamTimes } from "./stream-flow.js";

/** Creations of one stream that may be under way at once. */
export const IN_FLIGHT_MAX = 1_024;
/** How long a checked key is taken for valid. */
const PRINCIPAL_FRESH_MS = 1_000;

type Stream = ServerDuplexStream<CreateCallsRequest, CreateCallsResponse>;

/** A caller whose wait can also be cut short. */
class Place implements Caller {
  #listener: (() => void) | undefined;
  #isCut = false;

  onGone(listener: () => void): () => void {
    // A place may be cut before its wait begins: the wait is then over at once.
    if (this.#isCut) listener();
    this.#listener = listener;
    return () => {
      this.#listener = undefined;
    };
  }

  cut(): void {
    this.#isCut = true;
    this.#listener?.();
  }
}

/** Makes the handler. */
export function createCallsHandler(parts: RpcParts, times: StreamTimes): (stream: Stream) => void {
  return (stream) => {
    serve(parts, stream, times).catch((error: unknown) => {
      stream.emit("error", refusal(parts, "CreateCalls", parts.nextRequestId(), error).error);
    });
  };
}

async function serve(parts: RpcParts, stream: Stream, times: StreamTimes): Promise<void> {
  const streamId = parts.nextRequestId();
  const started = performance.now();
  const wait = parts.waits.open(callerOf(stream));
  const places = new Set<Place>();
  let ended = false;
  const principalNow = createPrincipalCheck(parts, stream);
  let stalled = false;
  let halfClosed = false;
  let stopListening = (): void => undefined;

  function finish(error?: unknown): void {
    if (ended) return;
    ended = true;
    // Nobody is left to answer; where the client has gone its waits end here.
    for (const one of places) one.cut();
    wait.close();
    stopListening();
    if (error === undefined) {
      stream.end();
      logRpc(parts, "CreateCalls", streamId, started, stream.cancelled ? status.CANCELLED : status.OK);
      return;
    }
    const refused = refusal(parts, "CreateCalls", streamId, error);
    stream.emit("error", refused.error);
    logRpc(parts, "CreateCalls", streamId, started, grpcStatusOf(refused.fault));
  }

  async function answer(request: CreateCallsRequest, place: Place): Promise<CreateCallsResponse> {
    const requestId = parts.nextRequestId();
    const begun = performance.now();
    try {
      const principal = principalNow.fresh() ?? (await principalNow.check());
      const { call } = request;
      if (call === undefined) throw new BrokerError("body_invalid", "The request names no call.");
      const view = await parts.api.createCall(principal, createCallBody(call), {
        caller: place,
        traceparent: validTraceparent(call.traceparent),
      });
      logRpc(parts, "CreateCalls/call", requestId, begun, status.OK);
      return { number: request.number, answer: { $case: "call", value: callMessage(view) } };
    } catch (error) {
      const { fault } = refusal(parts, "CreateCalls/call", requestId, error);
      logRpc(parts, "CreateCalls/call", requestId, begun, grpcStatusOf(fault));
      return { number: request.number, answer: { $case: "error", value: apiErrorOf(fault, requestId) } };
    }
  }

  async function take(request: CreateCallsRequest): Promise<void> {
    const mine = new Place();
    places.add(mine);
    if (places.size >= IN_FLIGHT_MAX) {
      stream.pause();
      for (const oldest of places) {
        oldest.cut();
        break;
      }
    }
    const response = await answer(request, mine);
    places.delete(mine);
    if (ended || stream.cancelled) return;
    if (!stream.write(response)) void flow();
    if (!stalled && places.size < IN_FLIGHT_MAX) stream.resume();
    if (parts.waits.draining) endForDrain();
    else if (halfClosed && places.size === 0) finish();
  }

  /** A reader that takes no answers gets to send no more requests. */
  async function flow(): Promise<void> {
    if (stalled) return;
    stalled = true;
    stream.pause();
    const taken = await drained(stream, wait.signal, times.stallMs);
    stalled = false;
    if (taken) stream.resume();
    else if (!ended && !wait.signal.aborted) finish(new BrokerError("rate_limited", "The client took no answers for too long."));
  }

  function endForDrain(): void {
    if (places.size === 0)
      finish(new BrokerError("draining", "This broker is shutting down: repeat with the same idempotency key at another broker."));
  }

  stream.on("cancelled", () => finish());
  stream.on("error", () => finish());
  try {
    requireScope(await principalNow.check(), "createCall");
  } catch (error) {
    finish(error);
    return;
  }
  stopListening = parts.waits.onDrain(endForDrain);
  if (ended) return;
  stream.on("end", () => {
    halfClosed = true;
    if (places.size === 0) finish();
  });
  stream.on("data", (request: CreateCallsRequest) => {
    try {
      requireDecoded(request);
    } catch (error) {
      // Without its number nobody could tell which request was meant.
      finish(error);
      return;
    }
    void take(request);
  });
}

/** The key's principal, checked anew when the last check is too old; at most one check at a time. */
interface PrincipalNow {
  /** Undefined: the last check is too old. */
  fresh(): AgentPrincipal | undefined;
  check(): Promise<AgentPrincipal>;
}

function createPrincipalCheck(parts: RpcParts, stream: Stream): PrincipalNow {
  let checked: { readonly principal: AgentPrincipal; readonly at: number } | undefined;
  let checking: Promise<AgentPrincipal> | undefined;
  return {
    fresh() {
      return checked !== undefined && performance.now() - checked.at < PRINCIPAL_FRESH_MS ? checked.principal : undefined;
    },
    async check() {
      checking ??= principalOf(parts, stream).finally(() => {
        checking = undefined;
      });
      const principal = await checking;
      checked = { principal, at: performance.now() };
      return principal;
    },
  };
}
