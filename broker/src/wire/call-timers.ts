/** The two timers of a driven call: its deadline in the ledger's time, and the lease of its grant on the monotonic clock. */
import type { CallState } from "../domain/call/call-state.js";
import type { Clock } from "../domain/ports/clock.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

export interface CallTimersContext {
  readonly clock: Clock;
  readonly timers: TimerWheel;
  readonly figures: { readonly leaseMs: number; readonly pingIntervalMs: number; readonly driverAnswerMs: number };
}

export class CallTimers {
  private deadlineTask: TimerTask | undefined;
  private leaseTask: TimerTask | undefined;
  /** Monotonic. The task looks at it: a lease is renewed with every ping, and its task is moved only when it comes due. */
  private leaseEndsAtMs = 0;
  private leaseTaskAtMs = 0;

  constructor(
    private readonly context: CallTimersContext,
    private readonly due: { readonly onDeadline: () => void; readonly onLease: () => void },
  ) {}

  /** Sets the deadline of this state, in place of the one before. */
  arm(state: CallState): void {
    this.deadlineTask?.cancel();
    this.deadlineTask = undefined;
    const atMs = dueAt(state);
    if (atMs === null) {
      return;
    }
    const { timers, clock } = this.context;
    this.deadlineTask = timers.after(atMs - clock.now(), () => {
      if (clock.now() < atMs) {
        // The wall clock was set back meanwhile: the deadline is in the ledger's time.
        this.arm(state);
        return;
      }
      this.due.onDeadline();
    });
  }

  /** The lease counts from now; default: a whole one. */
  renewLease(leaseMs = this.context.figures.leaseMs): void {
    this.leaseEndsAtMs = this.context.clock.monotonic() + leaseMs;
    if (this.leaseTask === undefined || this.leaseEndsAtMs < this.leaseTaskAtMs) {
      this.leaseTask?.cancel();
      this.lookAtLease(leaseMs);
    }
  }

  endLease(): void {
    this.leaseTask?.cancel();
    this.leaseTask = undefined;
  }

  stop(): void {
    this.deadlineTask?.cancel();
    this.endLease();
  }

  private lookAtLease(afterMs: number): void {
    this.leaseTaskAtMs = this.context.clock.monotonic() + afterMs;
    this.leaseTask = this.context.timers.after(afterMs, () => {
      this.leaseTask = undefined;
      const leftMs = this.leaseEndsAtMs - this.context.clock.monotonic();
      if (leftMs > 0) {
        this.lookAtLease(leftMs);
      } else {
        this.leaseOver();
      }
    });
  }

  /** G3: who stood still has heard nobody. Each runner is pinged once, and its answer relayed, before its silence counts. */
  private leaseOver(): void {
    const { clock, timers, figures } = this.context;
    const stalledUntilMs = timers.stalledUntilMs;
    const leftMs = stalledUntilMs === undefined ? 0 : stalledUntilMs + figures.pingIntervalMs + figures.driverAnswerMs - clock.monotonic();
    if (leftMs > 0) {
      this.renewLease(leftMs);
      return;
    }
    this.due.onLease();
  }
}

function dueAt(state: CallState): number | null {
  switch (state.kind) {
    case "awaiting_confirmation":
    case "submitted":
      return state.expiresAtMs;
    case "queued":
    case "running":
      return state.record.deadlineAtMs;
    case "needs_reconciliation":
      return state.asked?.expiresAtMs ?? null;
    default:
      return null;
  }
}
