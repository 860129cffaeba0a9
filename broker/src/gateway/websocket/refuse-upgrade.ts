/** HTTP answers on a socket that asked for an upgrade and does not get it. */

import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { type Fault, faultBody } from "../shared/fault.js";

/** A client that does not take the answer is cut off after this, milliseconds. */
const ANSWER_TIMEOUT_MS = 5_000;

/** Writes the error object of the HTTP interface and ends the connection. */
export function refuseUpgrade(socket: Duplex, fault: Fault, requestId: string): void {
  if (socket.destroyed) return;
  const body = JSON.stringify(faultBody(fault, requestId));
  const headers = [
    `HTTP/1.1 ${fault.http} ${STATUS_CODES[fault.http] ?? ""}`,
    "connection: close",
    "content-type: application/json; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
  ];
  if (fault.http === 401) headers.push("www-authenticate: Bearer");
  if (fault.retryAfterSeconds !== undefined) headers.push(`retry-after: ${fault.retryAfterSeconds}`);
  const timer = setTimeout(() => socket.destroy(), ANSWER_TIMEOUT_MS);
  timer.unref();
  socket.once("close", () => clearTimeout(timer));
  socket.once("finish", () => socket.destroy());
  socket.end(`${headers.join("\r\n")}\r\n\r\n${body}`);
}
