/**
 * Where runners connect over WebSocket: `GET /v1/runner` with an upgrade.
 *
 * Owns the handshake and the socket; what is said on it belongs to the session logic behind `RunnerSessions`.
 *
 * Invariants:
 * - before 101 every refusal is an HTTP answer with the JSON error object; after it, a close code of the protocol;
 * - a credential comes in `Authorization` or in the hello, never in the address;
 * - nothing that a client does before or after the handshake throws, and nothing it sends makes memory grow without bound:
 *   messages are at most 1 MiB, unread ones stop the reading, answers to pings wait for the client to read;
 * - a crowd that connects at once is taken in a few at a time: calls and sessions go on between them.
 */

import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type ChannelLimits, createWebSocketChannel, encodingOfSubprotocol, FRAME_BYTES_MAX, SUBPROTOCOLS } from "@toolrunner/proto";
import { WebSocketServer } from "ws";
import { BrokerError } from "../../domain/broker-error.js";
import type { Authenticator, RunnerPrincipal } from "../../domain/ports/access.js";
import type { Log } from "../../domain/ports/log.js";
import type { SessionMeter } from "../../domain/ports/meter.js";
import type { RunnerSessions } from "../../wire/operations.js";
import { describeUnexpected, faultFrom } from "../shared/fault.js";
import { createLiveSessions } from "../shared/live-sessions.js";
import { createRequestIds } from "../shared/request-ids.js";
import { authenticateRunner } from "../shared/runner-credential.js";
import { RUNNER_CHANNEL_LIMITS } from "../shared/runner-limits.js";
import { refuseUpgrade } from "./refuse-upgrade.js";
import { answerPings, RunnerWebSocket } from "./runner-web-socket.js";
import { createTurnQueue } from "./turn-queue.js";

/** Handshakes in one turn of the event loop: some milliseconds' worth, with the hellos that follow them. */
const HANDSHAKES_A_TURN_MAX = 16;

/** Address of the runner WebSocket. */
export const RUNNER_PATH = "/v1/runner";

/** What the gateway is made of. */
export interface WebSocketGatewayOptions {
  readonly sessions: RunnerSessions;
  readonly authenticator: Authenticator;
  /** Whether a handshake with this `Origin` and `Host` may pass; each is undefined when the client sent none. */
  readonly originAllowed: (origin: string | undefined, host: string | undefined) => boolean;
  readonly log: Log;
  /** Told of refused handshakes. Default: nobody. */
  readonly meter?: SessionMeter | undefined;
  /** Bounds of every channel; for each its own default. */
  readonly limits?: ChannelLimits | undefined;
}

/** The gateway; it listens on a server that its owner has. */
export interface WebSocketGateway {
  /** For the `upgrade` event of a Node HTTP server, any path. Never throws; the socket is taken over. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Refuses new sessions with 503, lets the others end within `drainMs` milliseconds, then closes them with 4501. Idempotent. */
  stop(options: { readonly drainMs: number }): Promise<void>;
}

/** Makes the gateway. */
export function createWebSocketGateway(options: WebSocketGatewayOptions): WebSocketGateway {
  const { authenticator, originAllowed, log } = options;
  const live = createLiveSessions({ sessions: options.sessions, log });
  const nextRequestId = createRequestIds();
  const handshakes = createTurnQueue(HANDSHAKES_A_TURN_MAX);
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: FRAME_BYTES_MAX,
    autoPong: false,
    WebSocket: RunnerWebSocket,
    handleProtocols: (offered) => firstKnown(offered) ?? false,
  });
  // The header checks that `ws` makes itself, such as the key's.
  server.on("wsClientError", (error, socket) => refuse(socket, new BrokerError("upgrade_invalid", `${error.message}.`)));

  function refuse(socket: Duplex, error: unknown): void {
    const fault = faultFrom(error);
    options.meter?.sessionRefused(fault.code);
    const requestId = nextRequestId();
    if (fault.unexpected === undefined) log.info("runner_upgrade_refused", { request_id: requestId, code: fault.code });
    else log.error("runner_upgrade_failed", { request_id: requestId, ...describeUnexpected(fault.unexpected) });
    refuseUpgrade(socket, fault, requestId);
  }

  async function admit(request: IncomingMessage): Promise<RunnerPrincipal | undefined> {
    checkAddress(request.url ?? "");
    const { origin, host } = request.headers;
    if (!originAllowed(origin, host)) {
      throw new BrokerError(
        "origin_not_permitted",
        "The Host or Origin of the handshake is not allowed here: start the broker with --allow-origin.",
      );
    }
    if (live.stopping) throw new BrokerError("draining", "This broker is shutting down: connect to another one.");
    checkSubprotocols(request.headers["sec-websocket-protocol"]);
    return authenticateRunner(authenticator, request.headers.authorization);
  }

  async function upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    try {
      const principal = await admit(request);
      if (socket.destroyed) return;
      if (live.stopping) throw new BrokerError("draining", "This broker is shutting down: connect to another one.");
      server.handleUpgrade(request, socket, head, (webSocket) => {
        socket.off("error", ignore);
        answerPings(webSocket);
        webSocket.batchOn(socket);
        const channel = createWebSocketChannel(webSocket, {
          ...RUNNER_CHANNEL_LIMITS,
          ...options.limits,
          side: "broker",
          encoding: encodingOfSubprotocol(webSocket.protocol) ?? "binary",
        });
        live.serve(channel, {
          principal,
          origin: request.headers.origin,
          remoteAddress: request.socket.remoteAddress ?? "unknown",
        });
      });
    } catch (error) {
      refuse(socket, error);
    }
  }

  return {
    handleUpgrade(request, socket, head) {
      // A client may vanish at any point of the handshake.
      socket.on("error", ignore);
      handshakes.add(() => void upgrade(request, socket, head));
    },
    stop: (how) => live.stop(how),
  };
}

function ignore(): void {}

const CREDENTIAL_PARAMETERS = new Set(["token", "key", "access_token", "api_key", "authorization", "credential"]);

/** Refuses other paths and every query: addresses end up in logs of proxies. */
function checkAddress(address: string): void {
  const [path, query] = splitOnce(address, "?");
  if (path !== RUNNER_PATH) throw new BrokerError("route_unknown", `Nothing answers an upgrade here: runners connect to ${RUNNER_PATH}.`);
  const [name] = new URLSearchParams(query).keys();
  if (name === undefined) return;
  if (CREDENTIAL_PARAMETERS.has(name.toLowerCase())) {
    throw new BrokerError(
      "field_unknown",
      `A credential must not be in the address (query parameter ${name.toLowerCase()}): send Authorization: Bearer KEY, or hello.credential.`,
    );
  }
  throw new BrokerError("field_unknown", "The address of the runner WebSocket takes no query parameters: leave them out.");
}

function checkSubprotocols(header: string | undefined): void {
  const offered = (header ?? "").split(",").map((name) => name.trim());
  if (firstKnown(offered) !== undefined) return;
  throw new BrokerError("upgrade_invalid", `Offer the WebSocket subprotocol ${SUBPROTOCOLS.binary} or ${SUBPROTOCOLS.json}.`);
}

/** The client's order is its preference. */
function firstKnown(offered: Iterable<string>): string | undefined {
  return [...offered].find((name) => encodingOfSubprotocol(name) !== undefined);
}

function splitOnce(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at === -1 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
