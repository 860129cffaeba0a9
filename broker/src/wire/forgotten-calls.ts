/**
 * Compares the open calls that name this broker as their driver with its memory, and takes up those that it forgot (L2).
 *
 * An append whose outcome was not known may land after its broker gave it up; no other broker drives such a call, since its driver
 * lives. Invariants: what another broker drives is read once, not in each round; listing takes a small share of the time, however
 * many calls are open; a round that fails is only late.
 */
import { isSettledState } from "../domain/call/call-state.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Ledger } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { CallRouter } from "./call-router.js";
import type { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import type { LedgerWatch } from "./ledger-watch.js";
import type { Membership } from "./membership.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** A round of this length is followed by a pause so many times as long, where that is more than the interval. */
const PAUSE_FACTOR = 20;
/** Calls of others that are remembered; of more, some are read again. */
const OTHERS_MAX = 100_000;

export interface ForgottenCallsContext {
  readonly ledger: Pick<Ledger, "openCalls">;
  readonly router: Pick<CallRouter, "find" | "attached">;
  readonly table: DriverTable;
  readonly membership: Pick<Membership, "brokerId">;
  readonly ledgerWatch: Pick<LedgerWatch, "away">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly timers: TimerWheel;
  readonly figures: Pick<Figures, "openCallCheckMs">;
  readonly log: Log;
}

export class ForgottenCalls {
  private task: TimerTask | undefined;
  private stopped = false;
  private round: Promise<void> = Promise.resolve();
  /** Open calls that other brokers drive, as of when they were read. Only an adoption by this broker could change it to this one. */
  private others = new Set<string>();

  constructor(private readonly context: ForgottenCallsContext) {}

  async start(): Promise<void> {
    this.later(this.context.figures.openCallCheckMs);
  }

  /** Resolves when nothing is read any more. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.task?.cancel();
    await this.round;
  }

  private later(delayMs: number): void {
    if (!this.stopped) {
      this.task = this.context.timers.after(delayMs, () => {
        this.round = this.compare();
      });
    }
  }

  /** Never rejects. */
  private async compare(): Promise<void> {
    const { clock, figures, ledgerWatch, log } = this.context;
    const startedAt = clock.monotonic();
    try {
      if (!ledgerWatch.away) {
        await this.look();
      }
    } catch (error) {
      log.debug("open_calls_not_compared", { error: error instanceof Error ? error.message : String(error) });
    }
    this.later(Math.max(figures.openCallCheckMs, (clock.monotonic() - startedAt) * PAUSE_FACTOR));
  }

  private async look(): Promise<void> {
    const { ledger, table } = this.context;
    const others = new Set<string>();
    for await (const { callId } of ledger.openCalls()) {
      if (this.stopped) {
        return;
      }
      if (table.get(callId) === undefined && (this.others.has(callId) || (await this.isOfAnother(callId))) && others.size < OTHERS_MAX) {
        others.add(callId);
      }
    }
    this.others = others;
  }

  /** Takes the call up when it names this broker, which does not know it. */
  private async isOfAnother(callId: string): Promise<boolean> {
    const { router, membership, log } = this.context;
    const found = await router.find(callId);
    if (found === undefined || isSettledState(found.known)) {
      return false;
    }
    if (found.known.record.driver !== membership.brokerId) {
      return true;
    }
    if (!this.stopped) {
      log.warn("forgotten_call_found", { call_id: callId });
      router.attached(found);
    }
    return false;
  }
}
