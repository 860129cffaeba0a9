/**
 * The one port between session logic and transports: frames in, frames out, a close with a code.
 * Implemented over WebSocket, a gRPC bidirectional stream and an in-memory pair.
 */
import type { CloseCode } from "./close-codes.js";

/** What carries the frames; shown in the fleet view. */
export type TransportName = "websocket_binary" | "websocket_json" | "grpc" | "memory";

/** How a channel ended. */
export interface ChannelClose {
  /** From the close code table; 1006 when the connection broke without a close. */
  readonly code: number;
  readonly reason: string;
  /** Which side closed. */
  readonly by: "local" | "remote" | "broken";
}

/**
 * Frames arrive by iterating once; the iteration ends when the channel closed and never throws.
 * A frame that cannot be decoded closes the channel with 4400 (4413 when too large); a frame whose kind is not known
 * is delivered with `frame` undefined, so that the session can refuse it by type.
 */
export interface FrameChannel<In, Out> extends AsyncIterable<In> {
  readonly transport: TransportName;
  /** Queues the frame, in order. After the close it is dropped. Throws {@link FrameTooLargeError} and sends nothing when it is over the limit. */
  send(frame: Out): void;
  /** Bytes that wait to be written. */
  readonly bufferedBytes: number;
  /** Resolves when `bufferedBytes` is back under the transport's low mark, or the channel closed. */
  drained(): Promise<void>;
  /** Sends what is queued, then closes. Idempotent. */
  close(code: CloseCode, reason?: string): void;
  readonly closed: Promise<ChannelClose>;
}

/** A frame over the limit, found before it was sent. */
export class FrameTooLargeError extends Error {
  override readonly name = "FrameTooLargeError";
  constructor(
    readonly bytes: number,
    readonly limit: number,
    readonly what: string,
  ) {
    super(`${what} is ${bytes} bytes, over the limit of ${limit} bytes for a frame`);
  }
}
