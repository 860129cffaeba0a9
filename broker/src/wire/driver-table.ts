/** The calls that this broker drives, and for a moment those that just settled, for who still waits for them. */
import type { CallDriver } from "./call-driver.js";
import type { DrivenCall } from "./driver-context.js";
import type { Figures } from "./figures.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Settled calls kept at most: under load the moment is shorter. */
const SETTLED_MAX = 1_000;

export class DriverTable {
  private readonly drivers = new Map<string, CallDriver>();
  private readonly settledOnes = new Set<DrivenCall>();

  constructor(
    private readonly timers: TimerWheel,
    private readonly figures: Figures,
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
    this.settledOnes.delete(driver);
  }

  settled(driver: DrivenCall): void {
    this.settledOnes.add(driver);
    if (this.settledOnes.size > SETTLED_MAX) {
      const oldest = this.settledOnes.values().next().value;
      if (oldest !== undefined) {
        this.remove(oldest);
      }
    }
    this.timers.after(this.figures.settledMemoryMs, () => this.remove(driver));
  }

  *[Symbol.iterator](): IterableIterator<CallDriver> {
    yield* this.drivers.values();
  }
}
