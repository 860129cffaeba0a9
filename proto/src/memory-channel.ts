/**
 * Two channels joined in memory, for an embedded runner and for tests of session logic.
 *
 * Invariants:
 * - every frame passes through the binary codec: the sides share no object, and what cannot be encoded fails as it would on a socket;
 * - delivery is asynchronous and in order; a paused reader leaves the frames in the sender's buffer;
 * - a close flushes what was sent before it, then ends both sides.
 */
import { type ChannelCore, type ChannelLimits, createChannelCore } from "./channel-core.js";
import type { FrameChannel } from "./frame-channel.js";
import { brokerFrameCodec, runnerFrameCodec } from "./frame-codec.js";
import type { BrokerFrame, RunnerFrame } from "./gen/toolrunner/v1/session.js";

/** Both ends of a pair. */
export interface MemoryChannelPair {
  /** The end that a runner uses. */
  readonly runner: FrameChannel<BrokerFrame, RunnerFrame>;
  /** The end that a broker uses. */
  readonly broker: FrameChannel<RunnerFrame, BrokerFrame>;
  /** Breaks the connection as a pulled cable would: what is on its way is lost, both ends close as broken (1006). */
  sever(): void;
}

/** Makes a joined pair. `limits` hold for both ends. */
export function createMemoryChannelPair(limits: ChannelLimits = {}): MemoryChannelPair {
  const runnerCodec = runnerFrameCodec("binary");
  const brokerCodec = brokerFrameCodec("binary");
  const toBroker = createPipe();
  const toRunner = createPipe();
  const abort = (): void => {
    toBroker.drop();
    toRunner.drop();
  };

  const runner: ChannelCore<BrokerFrame, RunnerFrame> = createChannelCore({
    transport: "memory",
    inbound: brokerCodec,
    outbound: runnerCodec,
    limits,
    wire: { ...toBroker.sending, pause: toRunner.pause, resume: toRunner.resume, abort },
  });
  const broker: ChannelCore<RunnerFrame, BrokerFrame> = createChannelCore({
    transport: "memory",
    inbound: runnerCodec,
    outbound: brokerCodec,
    limits,
    wire: { ...toRunner.sending, pause: toBroker.pause, resume: toBroker.resume, abort },
  });
  toBroker.connect(runner, broker);
  toRunner.connect(broker, runner);
  return {
    runner: runner.channel,
    broker: broker.channel,
    sever() {
      abort();
      runner.broke("the connection was severed");
      broker.broke("the connection was severed");
    },
  };
}

type Endpoint = Pick<ChannelCore<unknown, unknown>, "received" | "peerClosed" | "wrote">;

/** One direction: what is on its way, and the close that follows it. */
function createPipe() {
  let queue: { readonly data: Uint8Array; readonly bytes: number }[] = [];
  let head = 0;
  let queuedBytes = 0;
  let closing: { readonly code: number; readonly reason: string } | undefined;
  let paused = false;
  let scheduled = false;
  let dropped = false;
  let ends: { readonly from: Endpoint; readonly to: Endpoint } | undefined;

  function deliver(): void {
    scheduled = false;
    if (ends === undefined || dropped) return;
    // A close goes past the reader's mark: the frames before it are in memory already, on this side or that.
    while (!paused || closing !== undefined) {
      const next = queue[head];
      if (next === undefined) break;
      head += 1;
      queuedBytes -= next.bytes;
      ends.to.received(next.data);
    }
    queue = queue.slice(head);
    head = 0;
    ends.from.wrote();
    if (closing !== undefined && queue.length === 0) {
      dropped = true;
      ends.to.peerClosed(closing.code, closing.reason);
      ends.from.peerClosed(closing.code, closing.reason);
    }
  }

  function schedule(): void {
    if (scheduled || dropped) return;
    scheduled = true;
    defer(deliver);
  }

  return {
    sending: {
      write(data: Uint8Array | string, bytes: number): void {
        if (typeof data === "string") throw new TypeError("memory channels carry binary frames");
        queue.push({ data, bytes });
        queuedBytes += bytes;
        if (!paused) schedule();
      },
      bufferedBytes: () => queuedBytes,
      close(code: number, reason: string): void {
        closing = { code, reason };
        schedule();
      },
    },
    pause: () => {
      paused = true;
    },
    resume: () => {
      paused = false;
      if (queue.length > 0) schedule();
    },
    drop(): void {
      dropped = true;
      queue = [];
      head = 0;
      queuedBytes = 0;
    },
    connect(from: Endpoint, to: Endpoint): void {
      ends = { from, to };
    },
  };
}

/** A turn of the event loop where there is one, so that two busy ends do not starve timers and sockets. */
const defer: (task: () => void) => void =
  typeof setImmediate === "function" ? (task) => void setImmediate(task) : (task) => void setTimeout(task, 0);
