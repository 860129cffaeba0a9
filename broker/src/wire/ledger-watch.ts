/**
 * Knows whether this broker reaches its ledger. While it does not, agents are told 503 (which means "may be stored:
 * repeat with the same key") and runners are sent elsewhere; what is under way goes on until it is known.
 */
import { BrokerError } from "../domain/broker-error.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Ledger } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { Figures } from "./figures.js";
import { settledWithin } from "./settled-within.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Between two checks, at most: several have to fail before the ledger counts as away. */
const CHECK_INTERVAL_MS_MAX = 1_000;
const CHECKS_BEFORE_AWAY = 4;
/** Unanswered checks are not piled up: the ones that wait tell when it is back. */
const CHECKS_MAX = 5;
/** At the end of a broker, answers that only wait for the ledger have this long to come. */
const ANSWERS_MS = 200;

interface Guard {
  /** Monotonic. */
  readonly untilMs: number;
  giveUp(): void;
}

export class LedgerWatch {
  private reachedAt = 0;
  private toldAway = false;
  private stopped = false;
  private closed = false;
  private idle: () => void = () => undefined;
  /** Checks that are under way. */
  private checking = 0;
  private readonly listeners = new Set<() => void>();
  /** Who waits, oldest first. All wait equally long, so one task serves them all. */
  private readonly guards = new Set<Guard>();
  private givingUp = false;

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
    // A broker that stood still has asked nobody: that says nothing about the ledger.
    this.context.timers.onStall(() => {
      this.reachedAt = Math.max(this.reachedAt, this.context.clock.monotonic());
    });
    this.look();
  }

  /** Whoever still waits for the ledger after a moment is told that it is away. */
  async stop(): Promise<void> {
    this.stopped = true;
    if (this.guards.size > 0) {
      const idle = new Promise<void>((resolve) => {
        this.idle = resolve;
      });
      await settledWithin(this.context.timers, idle, ANSWERS_MS);
    }
    this.closed = true;
    for (const guard of this.guards) {
      guard.giveUp();
    }
  }

  get away(): boolean {
    return this.silentMs > this.context.figures.ledgerAnswerMs;
  }

  /** Since the ledger last answered a check. */
  get silentMs(): number {
    return this.context.clock.monotonic() - this.reachedAt;
  }

  /** Called once each time that the ledger has been out of reach for too long. */
  onAway(listener: () => void): void {
    this.listeners.add(listener);
  }

  /** The work's outcome, or `ledger_away` when it takes longer than an agent is let wait; the work itself goes on. */
  guard<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const guard: Guard = {
        untilMs: this.context.clock.monotonic() + this.context.figures.ledgerAnswerMs,
        giveUp: () => reject(ledgerAway()),
      };
      this.guards.add(guard);
      this.giveUpLater();
      work.then(
        (value) => {
          this.answered(guard);
          resolve(value);
        },
        (error: unknown) => {
          this.answered(guard);
          reject(error);
        },
      );
      if (this.closed) {
        guard.giveUp();
      }
    });
  }

  private answered(guard: Guard): void {
    this.guards.delete(guard);
    if (this.guards.size === 0) {
      this.idle();
    }
  }

  private giveUpLater(): void {
    const oldest = this.guards.values().next().value;
    if (this.givingUp || oldest === undefined) {
      return;
    }
    const { timers, clock } = this.context;
    this.givingUp = true;
    timers.after(oldest.untilMs - clock.monotonic(), () => {
      this.givingUp = false;
      const now = clock.monotonic();
      for (const guard of this.guards) {
        if (guard.untilMs > now) {
          break;
        }
        guard.giveUp();
        this.answered(guard);
      }
      this.giveUpLater();
    });
  }

  private look(): void {
    if (this.stopped) {
      return;
    }
    if (this.checking < CHECKS_MAX) {
      this.checking += 1;
      this.context.ledger.check().then(
        () => {
          this.checking -= 1;
          if (this.toldAway) {
            this.context.log.info("ledger_back", {});
          }
          this.reachedAt = this.context.clock.monotonic();
          this.toldAway = false;
        },
        (error: unknown) => {
          this.checking -= 1;
          this.context.log.debug("ledger_check_failed", { error: error instanceof Error ? error.message : String(error) });
        },
      );
    }
    if (this.away && !this.toldAway) {
      this.toldAway = true;
      this.context.log.error("ledger_away", { away_ms: Math.round(this.context.clock.monotonic() - this.reachedAt) });
      for (const listener of this.listeners) {
        listener();
      }
    }
    const intervalMs = Math.min(CHECK_INTERVAL_MS_MAX, this.context.figures.ledgerAnswerMs / CHECKS_BEFORE_AWAY);
    this.context.timers.after(intervalMs, () => this.look());
  }
}

export function ledgerAway(): BrokerError {
  return new BrokerError("ledger_away", "the ledger does not answer; what was asked may be stored: repeat with the same idempotency key", {
    retryAfterSeconds: 1,
  });
}
