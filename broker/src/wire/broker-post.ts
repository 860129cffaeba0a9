/**
 * Requests to one other broker that are repeated until it answered or is gone. What is asked is idempotent: an answer may get
 * lost, and the same question may come twice or late.
 */
import { type BackOff, backOffMs } from "../domain/call/decide.js";
import { type Bus, BusError } from "../domain/ports/bus.js";
import type { IdSource } from "../domain/ports/clock.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import type { TimerWheel } from "./timer-wheel.js";

const AGAIN: BackOff = { baseMs: 100, maxMs: 2_000, jitter: 0.5 };

export class BrokerPost {
  private stopped = false;

  constructor(
    private readonly context: {
      readonly bus: Bus;
      readonly ids: IdSource;
      readonly figures: Pick<Figures, "driverAnswerMs">;
      readonly timers: TimerWheel;
      readonly membership: Membership;
    },
  ) {}

  stop(): void {
    this.stopped = true;
  }

  /**
   * The answer of broker `brokerId` to `payload` on its endpoint `name`; undefined: it is gone, or `pointless` came to hold
   * before it answered. Rejects with {@link BusError} `too_large` only.
   */
  async ask(brokerId: string, name: string, payload: string, pointless: () => boolean = () => false): Promise<string | undefined> {
    const { bus, figures, membership, timers, ids } = this.context;
    for (let tries = 1; !this.stopped; tries += 1) {
      try {
        return await bus.request(`broker.${brokerId}.${name}`, payload, { timeoutMs: figures.driverAnswerMs });
      } catch (error) {
        if (!(error instanceof BusError) || error.code === "too_large") {
          throw error;
        }
        if (!membership.isLive(brokerId) || pointless()) {
          return undefined;
        }
        await new Promise<void>((resolve) => timers.after(backOffMs(tries, ids.random(), AGAIN), resolve));
      }
    }
    return undefined;
  }
}
