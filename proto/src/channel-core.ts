/**
 * What every channel does the same way: encode, decode, bounds, and the bookkeeping of a close.
 * A transport supplies a {@link Wire} and reports what happens on its connection.
 *
 * Invariants:
 * - `closed` resolves exactly once, and within the close time-out after `close()`, whatever the peer does;
 * - whoever closes first decides what `closed` reports; a local close never reports `broken`;
 * - frames that arrived before a remote close or a break are still delivered; after a local close none are;
 * - memory is bounded both ways: unread frames pause the connection (or close it with 4429 where it cannot be paused),
 *   and a peer that does not read is closed with 4502.
 */
import { CLOSE_CODES, type CloseCode } from "./close-codes.js";
import type { ChannelClose, FrameChannel, TransportName } from "./frame-channel.js";
import type { FrameCodec } from "./frame-codec.js";
import { createInboundQueue, INBOUND_HIGH_BYTES_DEFAULT } from "./inbound-queue.js";
import { cutUtf8 } from "./utf8.js";

/** What a transport gives to the core. None of these may throw. */
export interface Wire {
  /** Queues one encoded frame, in order. `bytes` is its size. */
  write(data: Uint8Array | string, bytes: number): void;
  /** Bytes written and not yet handed to the network. */
  bufferedBytes(): number;
  /** Sends what is queued, then closes. The transport calls `peerClosed` or `broke` when it is done. */
  close(code: CloseCode, reason: string): void;
  /** Tears the connection down at once. */
  abort(): void;
  /** Stop, and go on, reading the connection; absent where it cannot be stopped. */
  readonly pause?: (() => void) | undefined;
  readonly resume?: (() => void) | undefined;
}

/** Bounds of a channel; each has a default that suits production. */
export interface ChannelLimits {
  /** Unread inbound bytes above which the connection is paused. Default 4 MiB. */
  readonly inboundHighBytes?: number | undefined;
  /** Unsent outbound bytes above which the peer counts as not reading: 4502. Default 64 MiB. */
  readonly outboundMaxBytes?: number | undefined;
  /** `drained()` waits for the unsent bytes to be at most this. Default 64 KiB. */
  readonly drainLowBytes?: number | undefined;
  /** Time for a local close to complete before the connection is torn down, milliseconds. Default 5,000. */
  readonly closeTimeoutMs?: number | undefined;
}

/** A channel and the reports that its transport makes. */
export interface ChannelCore<In, Out> {
  readonly channel: FrameChannel<In, Out>;
  /** A message came in. */
  received(data: Uint8Array | ArrayBuffer | string): void;
  /** The other side closed, or answered our close. */
  peerClosed(code: number, reason: string): void;
  /** The connection ended without a close. */
  broke(reason: string): void;
  /** Something was written out: `drained()` may resolve. */
  wrote(): void;
  /** Closes as the session would: for faults that the transport finds. */
  fail(code: CloseCode, reason: string): void;
}

/** What a channel is made of. */
export interface ChannelParts<In, Out> {
  readonly transport: TransportName;
  readonly inbound: FrameCodec<In>;
  readonly outbound: FrameCodec<Out>;
  readonly wire: Wire;
  readonly limits?: ChannelLimits | undefined;
  /** Where nothing tells that bytes were written: how often to look while `drained()` waits, milliseconds. */
  readonly drainPollMs?: number | undefined;
}

const OUTBOUND_MAX_BYTES_DEFAULT = 64 * 1_048_576;
const DRAIN_LOW_BYTES_DEFAULT = 65_536;
const CLOSE_TIMEOUT_MS_DEFAULT = 5_000;
/** Of a WebSocket close frame, less the code. */
const CLOSE_REASON_BYTES_MAX = 123;

type State =
  | { readonly kind: "open" }
  | { readonly kind: "closing"; readonly code: CloseCode; readonly reason: string; readonly cancelTimer: () => void }
  | { readonly kind: "closed" };

/** Joins a transport's wire with the rules of {@link FrameChannel}. */
export function createChannelCore<In, Out>(parts: ChannelParts<In, Out>): ChannelCore<In, Out> {
  const { wire, inbound, outbound } = parts;
  const limits = parts.limits ?? {};
  const inboundHighBytes = limits.inboundHighBytes ?? INBOUND_HIGH_BYTES_DEFAULT;
  const outboundMaxBytes = limits.outboundMaxBytes ?? OUTBOUND_MAX_BYTES_DEFAULT;
  const drainLowBytes = limits.drainLowBytes ?? DRAIN_LOW_BYTES_DEFAULT;

  let state: State = { kind: "open" };
  const unread = createInboundQueue<In>({ highBytes: inboundHighBytes, onPause: wire.pause, onResume: wire.resume });
  let drainWaiters: (() => void)[] = [];
  let drainPoll: (() => void) | undefined;
  let resolveClosed: (close: ChannelClose) => void;
  const closed = new Promise<ChannelClose>((resolve) => {
    resolveClosed = resolve;
  });

  function settle(close: ChannelClose): void {
    if (state.kind === "closed") return;
    if (state.kind === "closing") state.cancelTimer();
    state = { kind: "closed" };
    unread.end();
    resolveClosed(close);
    releaseDrainWaiters();
  }

  function releaseDrainWaiters(): void {
    drainPoll?.();
    drainPoll = undefined;
    const released = drainWaiters;
    drainWaiters = [];
    for (const resolve of released) resolve();
  }

  function ended(close: ChannelClose): void {
    settle(state.kind === "closing" ? { code: state.code, reason: state.reason, by: "local" } : close);
  }

  function close(code: CloseCode, reason: string = CLOSE_CODES[code].name): void {
    if (state.kind !== "open") return;
    const shortened = cutUtf8(reason, CLOSE_REASON_BYTES_MAX);
    const cancelTimer = startTimer(limits.closeTimeoutMs ?? CLOSE_TIMEOUT_MS_DEFAULT, () => {
      wire.abort();
      ended({ code, reason: shortened, by: "local" });
    });
    state = { kind: "closing", code, reason: shortened, cancelTimer };
    // Also resumes a paused connection: the peer's answer to the close has to be read.
    unread.end({ discard: true });
    wire.close(code, shortened);
  }

  function wrote(): void {
    if (drainWaiters.length > 0 && wire.bufferedBytes() <= drainLowBytes) releaseDrainWaiters();
  }

  return {
    channel: {
      transport: parts.transport,
      closed,
      close,
      get bufferedBytes() {
        return state.kind === "closed" ? 0 : wire.bufferedBytes();
      },
      send(frame) {
        if (state.kind !== "open") return;
        const data = outbound.encode(frame);
        wire.write(data, data.length);
        const waitingBytes = wire.bufferedBytes();
        if (waitingBytes > outboundMaxBytes) close(4502, `${waitingBytes} bytes wait to be read`);
      },
      drained() {
        if (state.kind === "closed" || wire.bufferedBytes() <= drainLowBytes) return Promise.resolve();
        const { drainPollMs } = parts;
        if (drainPollMs !== undefined) drainPoll ??= startPoll(drainPollMs, wrote);
        return new Promise((resolve) => drainWaiters.push(resolve));
      },
      [Symbol.asyncIterator]: () => unread[Symbol.asyncIterator](),
    },
    received(data) {
      if (state.kind !== "open") return;
      const decoded = inbound.decode(data);
      switch (decoded.kind) {
        case "frame":
          unread.push(decoded.frame, decoded.bytes);
          if (wire.pause === undefined && unread.unreadBytes > inboundHighBytes) {
            close(4429, `${unread.unreadBytes} bytes of frames are unread`);
          }
          return;
        case "malformed":
          close(4400, `malformed frame: ${decoded.message}`);
          return;
        case "too_large":
          close(4413, `a frame of ${decoded.bytes} bytes is over the limit`);
          return;
      }
    },
    peerClosed(code, reason) {
      ended({ code, reason, by: "remote" });
    },
    broke(reason) {
      ended({ code: 1006, reason, by: "broken" });
    },
    wrote,
    fail: close,
  };
}

/** Timers do not keep a Node process alive: a process that ends closes its connections anyway. */
function startTimer(delayMs: number, task: () => void): () => void {
  const timer = setTimeout(task, delayMs);
  unref(timer);
  return () => clearTimeout(timer);
}

function startPoll(everyMs: number, task: () => void): () => void {
  const timer = setInterval(task, everyMs);
  unref(timer);
  return () => clearInterval(timer);
}

function unref(timer: unknown): void {
  if (typeof timer === "object" && timer !== null && "unref" in timer && typeof timer.unref === "function") timer.unref();
}
