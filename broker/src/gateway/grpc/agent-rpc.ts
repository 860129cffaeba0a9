/**
 * What every method for agents has around it: the key, the request's form, the mapping of refusals, one log line.
 *
 * Invariants: a handler never throws into grpc-js; a message that cannot be decoded is the caller's fault, not ours; no text
 * of an unexpected error leaves the broker.
 */

import { Metadata, type ServerErrorResponse, type ServiceDefinition, type ServiceError, status } from "@grpc/grpc-js";
import { BrokerError } from "../../domain/broker-error.js";
import type { AgentPrincipal, Authenticator, RunnerPrincipal } from "../../domain/ports/access.js";
import type { Log } from "../../domain/ports/log.js";
import type { RequestMeter } from "../../domain/ports/meter.js";
import type { AgentApi } from "../shared/agent-api.js";
import { authenticateAgent } from "../shared/credentials.js";
import { describeUnexpected, type Fault, faultFrom } from "../shared/fault.js";
import { requireRunner } from "../shared/runner-credential.js";
import type { Caller, Waits } from "../shared/waits.js";
import { grpcStatusOf, REQUEST_ID_METADATA, serviceErrorOf } from "./grpc-fault.js";

/** What the handlers work with. */
export interface RpcParts {
  readonly api: AgentApi;
  readonly waits: Waits;
  readonly authenticator: Authenticator;
  readonly log: Log;
  readonly meter?: RequestMeter | undefined;
  readonly nextRequestId: () => string;
}

/** The side of a call that all kinds of calls have. */
export interface RpcCall {
  readonly metadata: Metadata;
  readonly cancelled: boolean;
  on(event: "cancelled", listener: () => void): unknown;
  off(event: "cancelled", listener: () => void): unknown;
}

/** A unary call. */
interface UnaryRpcCall<Req> extends RpcCall {
  readonly request: Req;
}

/** The way to answer a unary call. */
type Answer<Res> = (error: ServerErrorResponse | null, value?: Res | null, trailer?: Metadata) => void;

/** Stands for a message that could not be decoded. */
class Malformed {
  constructor(readonly reason: string) {}
}

/** Stands for a message that is larger than its method takes. */
class Oversized {
  constructor(
    readonly bytes: number,
    readonly limit: number,
  ) {}
}

/**
 * The same service, but a message that cannot be decoded reaches its handler, which refuses it as `body_invalid`; grpc-js
 * itself would call it an internal error of ours. One that is over the limit of its method is refused as `body_too_large`.
 */
export function tolerant<T extends ServiceDefinition>(service: T, limitOf: (method: string) => number): T {
  const entries = Object.entries(service).map(([name, method]) => [
    name,
    {
      ...method,
      requestDeserialize(bytes: Buffer): unknown {
        const limit = limitOf(name);
        if (bytes.length > limit) return new Oversized(bytes.length, limit);
        try {
          return method.requestDeserialize(bytes);
        } catch (error) {
          return new Malformed(error instanceof Error ? error.message : "unknown");
        }
      },
    },
  ]);
  return Object.fromEntries(entries) as T;
}

/** Throws `BrokerError` `body_invalid` for a message that could not be decoded, `body_too_large` for one that is over its limit. */
export function requireDecoded(message: unknown): void {
  if (message instanceof Oversized) {
    throw new BrokerError("body_too_large", `The message is ${message.bytes} bytes, over the limit of ${message.limit} bytes: send less.`);
  }
  if (message instanceof Malformed) {
    throw new BrokerError("body_invalid", "The message cannot be decoded: send what toolrunner.v1 describes.", { cause: message.reason });
  }
}

/** Several values are as wrong as a wrong one: they are joined, and no key has a comma. */
function authorizationOf(metadata: Metadata): string | undefined {
  const values = metadata.get("authorization");
  return values.length === 0 ? undefined : values.map(String).join(",");
}

/** The agent behind a call. Throws `BrokerError` `key_missing` or `key_invalid`. */
export function principalOf(parts: Pick<RpcParts, "authenticator">, call: Pick<RpcCall, "metadata">): Promise<AgentPrincipal> {
  return authenticateAgent(parts.authenticator, authorizationOf(call.metadata));
}

/** The caller behind a call. */
export function callerOf(call: RpcCall): Caller {
  return {
    onGone(listener) {
      if (call.cancelled) listener();
      call.on("cancelled", listener);
      return () => call.off("cancelled", listener);
    },
  };
}

/** Maps what was thrown, and logs it when nobody foresaw it. */
export function refusal(
  parts: RpcParts,
  method: string,
  requestId: string,
  error: unknown,
): { readonly fault: Fault; readonly error: ServiceError } {
  const fault = faultFrom(error);
  parts.meter?.requestRefused("grpc", fault.code);
  if (fault.unexpected !== undefined) {
    parts.log.error("grpc_request_failed", { request_id: requestId, method, ...describeUnexpected(fault.unexpected) });
  }
  return { fault, error: serviceErrorOf(fault, requestId) };
}

/** One line, and one observation, for each finished call: ids, method, status, duration. */
export function logRpc(parts: RpcParts, method: string, requestId: string, started: number, code: status): void {
  const durationMs = performance.now() - started;
  parts.meter?.grpcRequest(method, status[code] ?? String(code), durationMs);
  const level = code === status.OK ? "debug" : code === status.INTERNAL || code === status.UNAVAILABLE ? "warn" : "info";
  parts.log[level]("grpc_request", {
    request_id: requestId,
    method,
    status: status[code] ?? String(code),
    duration_ms: Math.round(durationMs * 1_000) / 1_000,
  });
}

/** Makes the handler of a unary method of agents. */
export function unary<Req, Res>(
  parts: RpcParts,
  method: string,
  run: (principal: AgentPrincipal, request: Req, caller: Caller, requestId: string) => Promise<Res>,
): (call: UnaryRpcCall<Req>, answer: Answer<Res>) => void {
  return unaryOf(parts, method, (call) => principalOf(parts, call), run);
}

/** Makes the handler of a unary method that is asked for by a runner key. */
export function unaryOfRunner<Req, Res>(
  parts: RpcParts,
  method: string,
  run: (principal: RunnerPrincipal, request: Req) => Promise<Res>,
): (call: UnaryRpcCall<Req>, answer: Answer<Res>) => void {
  return unaryOf(parts, method, (call) => requireRunner(parts.authenticator, authorizationOf(call.metadata)), run);
}

function unaryOf<Principal, Req, Res>(
  parts: RpcParts,
  method: string,
  whoIs: (call: UnaryRpcCall<Req>) => Promise<Principal>,
  run: (principal: Principal, request: Req, caller: Caller, requestId: string) => Promise<Res>,
): (call: UnaryRpcCall<Req>, answer: Answer<Res>) => void {
  return (call, answer) => {
    const requestId = parts.nextRequestId();
    const started = performance.now();
    const handle = async (): Promise<Res> => {
      const principal = await whoIs(call);
      requireDecoded(call.request);
      return await run(principal, call.request, callerOf(call), requestId);
    };
    handle().then(
      (response) => {
        const trailer = new Metadata();
        trailer.set(REQUEST_ID_METADATA, requestId);
        answer(null, response, trailer);
        logRpc(parts, method, requestId, started, status.OK);
      },
      (error: unknown) => {
        const refused = refusal(parts, method, requestId, error);
        answer(refused.error);
        logRpc(parts, method, requestId, started, grpcStatusOf(refused.fault));
      },
    );
  };
}
