/**
 * Request bodies: read whole, within a limit, as strict UTF-8 JSON.
 *
 * A body over the limit is not kept: the rest is read and dropped, so that the client gets to see the refusal.
 */

import { isUtf8 } from "node:buffer";
import type { IncomingMessage } from "node:http";
import { BrokerError } from "../../domain/broker-error.js";
import type { Json } from "../../domain/ports/catalog.js";
import { parseJsonText } from "../shared/json-text.js";

/** What arrived: the bytes, or how many there were when they were too many. */
export type RawBody =
  | { readonly kind: "whole"; readonly bytes: Buffer }
  | { readonly kind: "too_large"; readonly atLeastBytes: number; readonly exact: boolean };

/** Reads the body of `request`, at most `limit` bytes of it. Rejects when the connection breaks. */
export function readBody(request: IncomingMessage, limit: number): Promise<RawBody> {
  return new Promise((resolve, reject) => {
    const declared = Number(request.headers["content-length"]);
    if (declared > limit) {
      request.resume();
      resolve({ kind: "too_large", atLeastBytes: declared, exact: true });
      return;
    }
    const chunks: Buffer[] = [];
    let bytes = 0;
    const onData = (chunk: Buffer): void => {
      bytes += chunk.length;
      if (bytes <= limit) {
        chunks.push(chunk);
        return;
      }
      request.off("data", onData);
      request.resume();
      chunks.length = 0;
      resolve({ kind: "too_large", atLeastBytes: bytes, exact: false });
    };
    request.on("data", onData);
    request.once("end", () => resolve({ kind: "whole", bytes: chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks) }));
    request.once("error", reject);
    request.once("close", () => {
      if (!request.readableEnded) reject(new BrokerError("body_invalid", "The connection closed before the body was complete."));
    });
  });
}

/** The headers that say what a body is. */
export interface BodyHeaders {
  readonly "content-type"?: string | undefined;
  readonly "content-encoding"?: string | undefined;
}

/** A content type under which JSON comes. */
export type JsonContentType = "application/json" | "text/plain";

const CONTENT_TYPES: Readonly<Record<JsonContentType, RegExp>> = {
  "application/json": /^application\/json\s*(;.*)?$/i,
  "text/plain": /^text\/plain\s*(;.*)?$/i,
};
const OTHER_CHARSET = /;\s*charset\s*=\s*"?(?!utf-?8\b)/i;

/**
 * The JSON in `body`; `undefined` when there is no body at all.
 * Throws `BrokerError` `body_too_large` naming bytes and limit, or `body_invalid`.
 */
export function jsonOf(
  body: RawBody | undefined,
  headers: BodyHeaders,
  limit: number,
  expected: JsonContentType = "application/json",
): Json | undefined {
  if (body === undefined) return undefined;
  if (body.kind === "too_large") {
    const size = body.exact ? `${body.atLeastBytes}` : `at least ${body.atLeastBytes}`;
    throw new BrokerError("body_too_large", `The body is ${size} bytes, over the limit of ${limit} bytes: send less.`);
  }
  if (body.bytes.length === 0) return undefined;
  const type = headers["content-type"];
  if (type === undefined || !CONTENT_TYPES[expected].test(type) || OTHER_CHARSET.test(type)) {
    throw refused("content-type", expected, type === undefined ? "no content-type" : JSON.stringify(type.slice(0, 80)));
  }
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    throw refused("content-encoding", "none", JSON.stringify(encoding.slice(0, 80)));
  }
  if (!isUtf8(body.bytes)) throw refused("body", "UTF-8 text", "bytes that are not UTF-8");
  return parseJsonText(body.bytes.toString("utf8"), "The body");
}

function refused(what: string, expected: string, actual: string): BrokerError {
  return new BrokerError("body_invalid", `The ${what} must be ${expected}, not ${actual}.`, { details: [{ path: "", expected, actual }] });
}
