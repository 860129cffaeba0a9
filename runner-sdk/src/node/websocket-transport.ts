/** Reaches a broker over a WebSocket, with the `ws` package. */
import type { IncomingMessage } from "node:http";
import { createWebSocketChannel, SUBPROTOCOLS } from "@toolrunner/proto";
import { ConnectError, RunnerConfigError } from "../core/errors.js";
import type { Transport } from "../core/transport.js";
import { runnerAddress } from "../core/websocket-address.js";
import type { RunnerChannel } from "../core/wire.js";
import { BatchingSocket } from "./batching-socket.js";
import { sha256OfNode } from "./sha256.js";

/** A frame and what WebSocket puts around it; the channel judges the frame itself. */
const MESSAGE_BYTES_MAX = 4 * 1_048_576;

/** Options of {@link connectWebSocket}. */
export interface WebSocketOptions {
  /** "binary" (default): protobuf. "json": the same frames as JSON text, for people with a debugger. */
  readonly encoding?: "binary" | "json";
  /** PEM certificates to trust instead of the system's, for `wss:`. */
  readonly rootCertificates?: string;
}

/**
 * A transport over WebSocket. `url` is `ws://`, `wss://`, `http://` or `https://`; without a path, `/v1/runner` is meant.
 * The credential travels in `authorization`, never in the address.
 * @throws RunnerConfigError for another address.
 */
export function connectWebSocket(url: string, options: WebSocketOptions = {}): Transport {
  const encoding = options.encoding ?? "binary";
  if (encoding !== "binary" && encoding !== "json") {
    throw new RunnerConfigError("options_invalid", `\`encoding\` is ${JSON.stringify(encoding)}, and must be "binary" or "json"`);
  }
  const address = runnerAddress(url);
  return {
    name: `websocket_${encoding}`,
    carriesCredential: true,
    sha256: sha256OfNode,
    connect: ({ credential, signal }) =>
      new Promise<RunnerChannel>((resolve, reject) => {
        if (signal.aborted) return reject(new ConnectError("given up", null));
        const socket = new BatchingSocket(address, [SUBPROTOCOLS[encoding]], {
          headers: credential === "" ? {} : { authorization: `Bearer ${credential}` },
          perMessageDeflate: false,
          maxPayload: MESSAGE_BYTES_MAX,
          ...(options.rootCertificates === undefined ? {} : { ca: options.rootCertificates }),
        });
        const channel = createWebSocketChannel(socket, { side: "runner", encoding });
        const fail = (error: ConnectError) => {
          signal.removeEventListener("abort", giveUp);
          reject(error);
          socket.terminate();
        };
        const giveUp = () => fail(new ConnectError("given up", null));
        signal.addEventListener("abort", giveUp);
        socket.on("unexpected-response", (_request, response) => fail(refusedUpgrade(address, response)));
        socket.on("error", (error) => fail(new ConnectError(`cannot reach ${address.host}: ${error.message}`, null, 0, { cause: error })));
        void channel.closed.then(({ code, reason }) =>
          fail(new ConnectError(`the connection closed before it was open (${code} ${reason})`, null)),
        );
        socket.on("open", () => {
          signal.removeEventListener("abort", giveUp);
          resolve(channel);
        });
      }),
  };
}

const CLOSE_CODE_OF_STATUS: Readonly<Record<number, number>> = { 401: 4401, 403: 4403, 413: 4413, 426: 4426, 429: 4429 };

function refusedUpgrade(address: URL, response: IncomingMessage): ConnectError {
  const status = response.statusCode ?? 0;
  response.destroy();
  const retryAfterSeconds = Number(response.headers["retry-after"]);
  const retryAfterMs = Number.isFinite(retryAfterSeconds) ? Math.max(0, retryAfterSeconds * 1_000) : 0;
  return new ConnectError(
    `${address.host}${address.pathname} answered the upgrade with ${status}`,
    CLOSE_CODE_OF_STATUS[status] ?? null,
    retryAfterMs,
  );
}
