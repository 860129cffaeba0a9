/** Answers to what is not HTTP, or comes too slowly: the error object, then the end of the connection. */

import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { BrokerError } from "../../domain/broker-error.js";
import { faultBody, faultFrom } from "../shared/fault.js";

/** How long the other side may take to read its refusal. */
const LINGER_MS = 1_000;

const REASONS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "The request's headers are over 16 KiB.",
  HPE_CHUNK_EXTENSIONS_OVERFLOW: "The chunk extensions of the body are too long.",
  ERR_HTTP_REQUEST_TIMEOUT: "The request did not arrive in time.",
};

/** Makes the listener for `clientError`. Install it with {@link watchResponses}. `refused` is told the code of each refusal. */
export function malformedRequestListener(
  nextRequestId: () => string,
  busy: (socket: Socket) => boolean,
  refused: (code: string) => void,
): (error: Error, socket: Socket) => void {
  return (error, socket) => {
    // An answer on its way must not get another one in its middle.
    if (!socket.writable || busy(socket)) {
      socket.destroy();
      return;
    }
    const code = "code" in error ? String(error.code) : "";
    const fault = faultFrom(new BrokerError("body_invalid", REASONS[code] ?? "The request is not valid HTTP."));
    refused(fault.code);
    const requestId = nextRequestId();
    const body = JSON.stringify(faultBody(fault, requestId));
    const head = [
      `HTTP/1.1 ${fault.http} Bad Request`,
      "content-type: application/json; charset=utf-8",
      `content-length: ${Buffer.byteLength(body)}`,
      `x-request-id: ${requestId}`,
      "connection: close",
    ];
    socket.on("error", () => socket.destroy());
    socket.resume();
    socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  };
}

/** Tells for each socket of `server` whether an answer has begun and is not complete. */
export function watchResponses(server: Server): (socket: Socket) => boolean {
  const latest = new WeakMap<Socket, ServerResponse>();
  server.on("request", (request, response) => latest.set(request.socket, response));
  return (socket) => {
    const response = latest.get(socket);
    return response?.headersSent === true && !response.writableFinished;
  };
}
