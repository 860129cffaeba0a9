/**
 * The calls that this broker drives, and for a moment those that just settled, for who still waits for them.
 *
 * Invariant: what is held for settled calls is bounded in number, whatever they hold and however fast they settle.
 */
import type { Clock } from "../domain/ports/clock.js";
import type { CallDriver } from "./call-driver.js";
import type { DrivenCall } from "./driver-context.js";
import type { Figures } from "./figures.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Settled calls kept at most: under load the moment is shorter. */
const SETTLED_MAX = 1_000;

export class DriverTable {
  private readonly drivers = new Map<string, CallDriver>();
  /** When each settled, oldest first (monotonic). One task for all of them: a task each would keep them past their moment. */
  private readonly settledAt = new Map<DrivenCall, number>();
  private forgetting = false;

  constructor(
    private readonly context: {
      readonly timers: TimerWheel;
      readonly clock: Pick<Clock, "monotonic">;
      readonly figures: Pick<Figures, "settledMemoryMs">;
    },
  ) {}

  get(callId: string): CallDriver | undefined {
    return this.drivers.get(callId);
  }

  add(driver: CallDriver): void {
    this.drivers.set(driver.callId, driver);
  }

  remove(driver: DrivenCall): void {
    if (this.drivers.get(driver.callId) === driver) {
      this.drivers.delete(driver.callId);
    }
    this.settledAt.delete(driver);
  }

  /** The call of this driver settled: it is forgotten soon. A driver that is not in the table is not kept at all. */
  settled(driver: DrivenCall): void {
    if (this.drivers.get(driver.callId) !== driver || this.settledAt.has(driver)) {
      return;
    }
    this.settledAt.set(driver, this.context.clock.monotonic());
    if (this.settledAt.size > SETTLED_MAX) {
      const oldest = this.settledAt.keys().next().value;
      if (oldest !== undefined) {
        this.remove(oldest);
      }
    }
    this.forgetLater();
  }

  get size(): number {
    return this.drivers.size;
  }

  *[Symbol.iterator](): IterableIterator<CallDriver> {
    yield* this.drivers.values();
  }

  private forgetLater(): void {
    const oldest = this.settledAt.values().next().value;
    if (this.forgetting || oldest === undefined) {
      return;
    }
    const { timers, clock, figures } = this.context;
    this.forgetting = true;
    timers.after(oldest + figures.settledMemoryMs - clock.monotonic(), () => {
      this.forgetting = false;
      const before = clock.monotonic() - figures.settledMemoryMs;
      for (const [driver, at] of this.settledAt) {
        if (at > before) {
          break;
        }
        this.remove(driver);
      }
      this.forgetLater();
    });
  }
}
