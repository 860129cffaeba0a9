/** A channel between a runner and a broker in virtual time: in order, late, and it can be severed like a cable. */
import type { BrokerFrame, ChannelClose, FrameChannel, RunnerFrame } from "@toolrunner/proto";
import type { SimProcess } from "./world.test.kit.js";

/** A local close is over after this time, whatever the other side does. */
const CLOSE_MS = 500;

export interface SimChannel {
  readonly runner: FrameChannel<BrokerFrame, RunnerFrame>;
  readonly broker: FrameChannel<RunnerFrame, BrokerFrame>;
  /** What is on its way is lost; each side notices after some time. */
  sever(): void;
}

export function createSimChannel(runner: SimProcess, broker: SimProcess): SimChannel {
  const toRunner = new End<BrokerFrame, RunnerFrame>(runner);
  const toBroker = new End<RunnerFrame, BrokerFrame>(broker);
  toRunner.join(toBroker);
  toBroker.join(toRunner);
  return {
    runner: toRunner,
    broker: toBroker,
    sever() {
      const { random } = runner;
      toRunner.lose();
      toBroker.lose();
      runner.arrive(random.between(1, 200), () => toRunner.ended({ code: 1006, reason: "severed", by: "broken" }));
      broker.arrive(random.between(1, 200), () => toBroker.ended({ code: 1006, reason: "severed", by: "broken" }));
    },
  };
}

class End<In, Out> implements FrameChannel<In, Out> {
  readonly transport = "memory";
  readonly bufferedBytes = 0;
  readonly closed: Promise<ChannelClose>;
  private other: End<Out, In> | undefined;
  private unread: In[] = [];
  private waiting: (() => void) | undefined;
  private over = false;
  private deaf = false;
  private closing: ChannelClose | undefined;
  private lastArrivalAt = 0;
  private resolveClosed: (close: ChannelClose) => void = () => undefined;

  /** `process`: where frames of this end are read. */
  constructor(private readonly process: SimProcess) {
    this.closed = new Promise((resolve) => {
      this.resolveClosed = resolve;
    });
  }

  join(other: End<Out, In>): void {
    this.other = other;
  }

  /** Nothing comes in any more. */
  lose(): void {
    this.deaf = true;
  }

  send(frame: Out): void {
    if (!this.over && this.closing === undefined) {
      this.other?.arriving((end) => end.take(frame));
    }
  }

  drained(): Promise<void> {
    return Promise.resolve();
  }

  close(code: number, reason = ""): void {
    if (this.over || this.closing !== undefined) {
      return;
    }
    this.closing = { code, reason, by: "local" };
    this.unread = [];
    this.waiting?.();
    this.other?.arriving((end) => {
      end.ended({ code, reason, by: "remote" });
      this.arriving((own) => own.ended({ code, reason, by: "local" }));
    });
    this.process.clock.schedule(CLOSE_MS, () => this.ended({ code, reason, by: "local" }));
  }

  ended(close: ChannelClose): void {
    if (this.over) {
      return;
    }
    this.over = true;
    this.resolveClosed(this.closing ?? close);
    this.waiting?.();
  }

  /** After what is on its way to this end already. */
  private arriving(what: (end: End<In, Out>) => void): void {
    const { world } = this.process;
    const at = Math.max(this.lastArrivalAt, world.now + this.process.random.between(0.1, 2));
    this.lastArrivalAt = at;
    this.process.arrive(at - world.now, () => {
      if (!this.deaf) {
        what(this);
      }
    });
  }

  private take(frame: In): void {
    if (!this.over && this.closing === undefined) {
      this.unread.push(frame);
      this.waiting?.();
    }
  }

  async *[Symbol.asyncIterator](): AsyncIterator<In> {
    for (;;) {
      const frame = this.unread.shift();
      if (frame !== undefined) {
        yield frame;
      } else if (this.over || this.closing !== undefined) {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.waiting = resolve;
        });
        this.waiting = undefined;
      }
    }
  }
}
