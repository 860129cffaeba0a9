/**
 * Where runners connect over gRPC: `toolrunner.v1.RunnerGateway/Session`.
 *
 * Invariants: a wrong credential in metadata `authorization` ends the stream as UNAUTHENTICATED (close code 4401) before any
 * frame is read; without one the credential must come in the hello; a handler never throws into grpc-js.
 */

import type { handleBidiStreamingCall, Metadata, ServerDuplexStream } from "@grpc/grpc-js";
import type { ChannelLimits, CloseCode } from "@toolrunner/proto";
import { createGrpcStreamChannel, endServerStream } from "@toolrunner/proto/services";
import type { Authenticator } from "../../domain/ports/access.js";
import type { Log } from "../../domain/ports/log.js";
import type { SessionMeter } from "../../domain/ports/meter.js";
import type { RunnerSessions } from "../../wire/operations.js";
import { describeUnexpected, type Fault, faultFrom } from "../shared/fault.js";
import { createLiveSessions } from "../shared/live-sessions.js";
import { authenticateRunner } from "../shared/runner-credential.js";
import { RUNNER_CHANNEL_LIMITS } from "../shared/runner-limits.js";

type SessionStream = ServerDuplexStream<Uint8Array, Uint8Array>;

/** What the gateway is made of. */
export interface RunnerGatewayOptions {
  readonly sessions: RunnerSessions;
  readonly authenticator: Authenticator;
  readonly log: Log;
  /** Told of refused streams. Default: nobody. */
  readonly meter?: SessionMeter | undefined;
  /** Bounds of every channel; for each its own default. */
  readonly limits?: ChannelLimits | undefined;
}

/** For `server.addService(runnerGatewayService, handlers)` of `@toolrunner/proto/services`. */
export type RunnerGatewayHandlers = { readonly session: handleBidiStreamingCall<Uint8Array, Uint8Array> };

/** The gateway with its life. */
export interface RunnerGateway {
  readonly handlers: RunnerGatewayHandlers;
  /** Ends new streams with 4501, lets the others end within `drainMs` milliseconds, then closes them with 4501. Idempotent. */
  stop(options: { readonly drainMs: number }): Promise<void>;
}

/** Makes the gateway; its owner adds the handlers to a grpc-js server and stops the gateway before the server. */
export function createRunnerGateway(options: RunnerGatewayOptions): RunnerGateway {
  const { authenticator, log } = options;
  const live = createLiveSessions({ sessions: options.sessions, log });

  async function open(stream: SessionStream): Promise<void> {
    const principal = await authenticateRunner(authenticator, authorizationOf(stream.metadata));
    if (stream.cancelled) return;
    const channel = createGrpcStreamChannel(stream, { ...RUNNER_CHANNEL_LIMITS, ...options.limits, side: "broker" });
    live.serve(channel, { principal, origin: undefined, remoteAddress: addressOf(stream.getPeer()) });
  }

  function refuse(stream: SessionStream, error: unknown): void {
    const fault = faultFrom(error);
    options.meter?.sessionRefused(fault.code);
    if (fault.unexpected === undefined) log.info("runner_stream_refused", { code: fault.code });
    else log.error("runner_stream_failed", describeUnexpected(fault.unexpected));
    endServerStream(stream, closeCodeOf(fault), fault.message);
  }

  return {
    handlers: {
      session(stream) {
        open(stream).catch((error: unknown) => refuse(stream, error));
      },
    },
    stop: (how) => live.stop(how),
  };
}

/** The handlers alone, for a server that cuts its streams off itself. */
export function runnerGatewayHandlers(options: RunnerGatewayOptions): RunnerGatewayHandlers {
  return createRunnerGateway(options).handlers;
}

/** Several values are as wrong as a wrong one: they are joined, and no key has a comma. */
function authorizationOf(metadata: Metadata): string | undefined {
  const values = metadata.get("authorization");
  return values.length === 0 ? undefined : values.map(String).join(",");
}

/** `host:port` without the port, which changes with each connection. */
function addressOf(peer: string): string {
  return peer.replace(/:\d+$/, "");
}

function closeCodeOf(fault: Fault): CloseCode {
  if (fault.http === 401) return 4401;
  if (fault.http === 403) return 4403;
  if (fault.code === "ledger_away") return 4503;
  return fault.http === 503 ? 4501 : 4500;
}
