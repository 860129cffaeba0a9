/**
 * A channel over a WebSocket: the `ws` package on Node (both sides) and the browser's own, told apart by what they offer.
 *
 * Invariants:
 * - listeners are attached before the function returns, so a channel made in the same turn as its socket misses nothing;
 * - frames sent while the socket is connecting are queued and sent once it is open, also when a close follows them;
 * - a socket that cannot be paused (browsers) is closed with 4429 when its reader falls behind.
 */
import { type ChannelLimits, createChannelCore } from "./channel-core.js";
import type { CloseCode } from "./close-codes.js";
import type { FrameChannel } from "./frame-channel.js";
import {
  BROKER_FRAMES_BINARY,
  brokerFrameCodec,
  type FrameCodec,
  type FrameEncoding,
  RUNNER_FRAMES_BINARY,
  runnerFrameCodec,
} from "./frame-codec.js";
import type { BrokerFrame, RunnerFrame } from "./gen/toolrunner/v1/session.js";

/** The part of a WebSocket that a channel uses. Browsers' `WebSocket` and that of `ws` both fit. */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  /** `ws` calls `written` when the frame went to the network; browsers ignore it. */
  send(data: string | Uint8Array<ArrayBuffer>, written?: (error?: Error) => void): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "open", listener: () => void): void;
  addEventListener(type: "error", listener: (event: object) => void): void;
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void;
  addEventListener(type: "close", listener: (event: { readonly code: number; readonly reason: string }) => void): void;
  /** Only `ws`: stop and go on reading the connection, end it without a handshake. */
  pause?(): void;
  resume?(): void;
  terminate?(): void;
}

/** `side` is the one that this end plays. `encoding` must fit the subprotocol that was agreed. */
export interface WebSocketChannelOptions extends ChannelLimits {
  readonly side: "runner" | "broker";
  readonly encoding: FrameEncoding;
}

const CONNECTING = 0;
const OPEN = 1;
const DRAIN_POLL_MS = 20;

/**
 * Makes the channel of one end. Call it in the same turn in which the socket was made or accepted.
 * A socket that cannot connect ends the channel as broken (1006); its own error event says more.
 */
export function createWebSocketChannel(
  socket: WebSocketLike,
  options: WebSocketChannelOptions & { readonly side: "runner" },
): FrameChannel<BrokerFrame, RunnerFrame>;
export function createWebSocketChannel(
  socket: WebSocketLike,
  options: WebSocketChannelOptions & { readonly side: "broker" },
): FrameChannel<RunnerFrame, BrokerFrame>;
export function createWebSocketChannel(
  socket: WebSocketLike,
  options: WebSocketChannelOptions,
): FrameChannel<BrokerFrame, RunnerFrame> | FrameChannel<RunnerFrame, BrokerFrame> {
  const runner = runnerFrameCodec(options.encoding);
  const broker = brokerFrameCodec(options.encoding);
  return options.side === "runner" ? joinSocket(socket, broker, runner, options) : joinSocket(socket, runner, broker, options);
}

/** The runner's end in binary alone: a bundle that makes no other channel holds nothing of JSON. As {@link createWebSocketChannel} otherwise. */
export function createBinaryRunnerChannel(socket: WebSocketLike, limits: ChannelLimits = {}): FrameChannel<BrokerFrame, RunnerFrame> {
  return joinSocket(socket, BROKER_FRAMES_BINARY, RUNNER_FRAMES_BINARY, { ...limits, encoding: "binary" });
}

function joinSocket<In, Out>(
  socket: WebSocketLike,
  inbound: FrameCodec<In>,
  outbound: FrameCodec<Out>,
  options: Omit<WebSocketChannelOptions, "side">,
): FrameChannel<In, Out> {
  // Browsers begin with blobs, whose bytes come too late to keep the order. `ws` hands over its own buffer.
  if (socket.binaryType === "blob") socket.binaryType = "arraybuffer";
  let early: { readonly data: Uint8Array | string; readonly bytes: number }[] = [];
  let earlyBytes = 0;
  let earlyClose: { readonly code: number; readonly reason: string } | undefined;
  let lastError = "the connection broke";

  const put = (data: Uint8Array | string): void => {
    socket.send(typeof data === "string" ? data : (data as Uint8Array<ArrayBuffer>), written);
  };
  const core = createChannelCore<In, Out>({
    transport: options.encoding === "json" ? "websocket_json" : "websocket_binary",
    inbound,
    outbound,
    limits: options,
    drainPollMs: socket.terminate === undefined ? DRAIN_POLL_MS : undefined,
    wire: {
      write(data, bytes) {
        if (socket.readyState === OPEN) {
          put(data);
        } else if (socket.readyState === CONNECTING) {
          early.push({ data, bytes });
          earlyBytes += bytes;
        }
      },
      bufferedBytes: () => socket.bufferedAmount + earlyBytes,
      close(code, reason) {
        if (socket.readyState === CONNECTING && early.length > 0) earlyClose = { code, reason };
        else socket.close(code, reason);
      },
      abort() {
        if (socket.terminate !== undefined) socket.terminate();
        else socket.close();
      },
      pause: socket.pause === undefined ? undefined : () => socket.pause?.(),
      resume: socket.resume === undefined ? undefined : () => socket.resume?.(),
    },
  });
  function written(): void {
    core.wrote();
  }

  socket.addEventListener("open", () => {
    const queued = early;
    early = [];
    earlyBytes = 0;
    for (const { data } of queued) put(data);
    if (earlyClose !== undefined) socket.close(earlyClose.code, earlyClose.reason);
    core.wrote();
  });
  socket.addEventListener("message", ({ data }) => {
    if (typeof data === "string" || data instanceof ArrayBuffer || data instanceof Uint8Array) core.received(data);
    else core.fail(4400, "a message that is neither text nor bytes");
  });
  socket.addEventListener("error", (event) => {
    // `ws` tells what went wrong, browsers do not.
    if ("message" in event && typeof event.message === "string" && event.message !== "") lastError = event.message;
    const code = closeCodeOfError(event);
    // The close frame has left already: this is for the books.
    if (code !== undefined) core.fail(code, lastError);
  });
  socket.addEventListener("close", ({ code, reason }) => {
    if (code === 1006) core.broke(lastError);
    else core.peerClosed(code, reason);
  });
  return core.channel;
}

/** The close code for what `ws` finds wrong with the peer's messages before they get here; `undefined` for any other error. */
function closeCodeOfError(event: object): CloseCode | undefined {
  const error = "error" in event ? event.error : undefined;
  const code = typeof error === "object" && error !== null && "code" in error ? String(error.code) : "";
  if (!code.startsWith("WS_ERR_")) return undefined;
  if (code === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH" || code === "WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH") return 4413;
  return code === "WS_ERR_TOO_MANY_BUFFERED_PARTS" ? 4429 : 4400;
}
