/**
 * Knows whether this broker reaches its ledger. While it does not, agents are told 503 (which means "may be stored:
 * repeat with the same key") and runners are sent elsewhere; what is under way goes on until it is known.
 */
import { BrokerError } from "../domain/broker-error.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Ledger } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { Figures } from "./figures.js";
import type { TimerWheel } from "./timer-wheel.js";

const CHECK_INTERVAL_MS = 1_000;

export class LedgerWatch {
  private reachedAt = 0;
  private toldAway = false;
  private stopped = false;
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly context: {
      readonly ledger: Pick<Ledger, "check">;
      readonly clock: Clock;
      readonly timers: TimerWheel;
      readonly figures: Figures;
      readonly log: Log;
    },
  ) {}

  start(): void {
    this.reachedAt = this.context.clock.monotonic();
    this.look();
  }

  stop(): void {
    this.stopped = true;
  }

  get away(): boolean {
    return this.context.clock.monotonic() - this.reachedAt > this.context.figures.ledgerAnswerMs;
  }

  /** Called once each time that the ledger has been out of reach for too long. */
  onAway(listener: () => void): void {
    this.listeners.add(listener);
  }

  /** The work's outcome, or `ledger_away` when it takes longer than an agent is let wait; the work itself goes on. */
  guard<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const late = this.context.timers.after(this.context.figures.ledgerAnswerMs, () => reject(ledgerAway()));
      work.then(resolve, reject).finally(() => late.cancel());
    });
  }

  private look(): void {
    if (this.stopped) {
      return;
    }
    this.context.ledger.check().then(
      () => {
        if (this.toldAway) {
          this.context.log.info("ledger_back", {});
        }
        this.reachedAt = this.context.clock.monotonic();
        this.toldAway = false;
      },
      (error: unknown) => this.context.log.debug("ledger_check_failed", { error: error instanceof Error ? error.message : String(error) }),
    );
    if (this.away && !this.toldAway) {
      this.toldAway = true;
      this.context.log.error("ledger_away", { away_ms: Math.round(this.context.clock.monotonic() - this.reachedAt) });
      for (const listener of this.listeners) {
        listener();
      }
    }
    this.context.timers.after(CHECK_INTERVAL_MS, () => this.look());
  }
}

export function ledgerAway(): BrokerError {
  return new BrokerError("ledger_away", "the ledger does not answer; what was asked may be stored: repeat with the same idempotency key", {
    retryAfterSeconds: 1,
  });
}
