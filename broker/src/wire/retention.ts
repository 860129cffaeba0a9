/**
 * Removes settled calls whose time is over, and values that nothing names (L6, L7, X12): one broker at a time does it, slowly.
 *
 * Invariants:
 * - The live broker with the highest hash does the work. Two that disagree for a moment do the same work, which is harmless.
 * - A sweep goes through the entries in the order in which they were stored, and ends at the first call that was accepted too short a time ago
 *   to be over. What a broker left half removed is found on the way, and finished.
 * - Nothing is remembered that the ledger does not have: a sweep that fails, or ends in the middle, is done again.
 */
import { isSettledState } from "../domain/call/call-state.js";
import { judgeCall, type Keeping } from "../domain/call/retention.js";
import type { Bus, Subscription } from "../domain/ports/bus.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import { type Ledger, LedgerError, type Version } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { CallMeter } from "../domain/ports/meter.js";
import { entriesOf, removeCall } from "./call-removal.js";
import type { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import { rendezvous } from "./take-over.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";
import { UnnamedValues } from "./unnamed-values.js";

/** Calls that are looked at at once. */
const BATCH = 32;
const SUBJECT = "retention.removed";

/** A call that is gone, and the version of its acceptance, as far as that is known. */
export interface RemovedCall {
  readonly callId: string;
  readonly opened: Version;
}

export interface RetentionContext {
  /** How long settled calls are kept. `never`: for ever; values that nothing names are removed all the same. */
  readonly retentionMs: number | "never";
  readonly brokerId: string;
  readonly ledger: Ledger;
  readonly bus: Bus;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly timers: TimerWheel;
  readonly membership: Pick<Membership, "live">;
  readonly table: DriverTable;
  /** Told of calls that are gone, by whichever broker removed them; undefined: this broker keeps no index. */
  readonly index: { dropped(calls: readonly RemovedCall[]): void } | undefined;
  readonly figures: Pick<Figures, "retentionSweepMs" | "retentionPaceMs" | "unnamedValueMs">;
  readonly log: Log;
  readonly meter?: CallMeter | undefined;
}

interface Sweep {
  calls: number;
  values: number;
  unreadable: number;
  /** Calls that were looked at and stay: their later entries say nothing new. */
  readonly stays: Set<string>;
  /** A call was met that is too young: all after it are, too. */
  isOver: boolean;
}

export class Retention {
  private readonly stopping = new AbortController();
  private readonly values: UnnamedValues;
  private subscription: Subscription | undefined;
  private timer: TimerTask | undefined;
  private sweeping: Promise<void> = Promise.resolve();
  /** Monotonic: until then nothing is begun. */
  private restUntilMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly context: RetentionContext) {
    this.values = new UnnamedValues({
      ledger: context.ledger,
      clock: context.clock,
      graceMs: context.figures.unnamedValueMs,
      pace: () => this.pace(1),
    });
  }

  start(): void {
    this.subscription = this.context.bus.subscribe(SUBJECT, (payload) => this.forget(JSON.parse(payload) as readonly RemovedCall[]));
    this.sweepLater();
  }

  /** Resolves when nothing is removed any more. */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.timer?.cancel();
    this.subscription?.unsubscribe();
    await this.sweeping;
  }

  /**
   * Finishes the removal of a call that another broker began, so that a new one can have its id (X12). False: the call is not expired. Rejects
   * when the ledger does.
   */
  async finish(callId: string): Promise<boolean> {
    const judged = judgeCall(await entriesOf(this.context.ledger, callId), Number.NEGATIVE_INFINITY);
    if (judged.kind === "absent") {
      return true;
    }
    if (judged.kind !== "leaves") {
      return false;
    }
    await removeCall(this.context.ledger, callId, judged);
    return true;
  }

  /** Brokers that start together do not sweep together. */
  private sweepLater(): void {
    const { timers, figures, ids } = this.context;
    this.timer = timers.after(figures.retentionSweepMs * (0.5 + ids.random() / 2), () => {
      this.sweeping = this.sweep().then(() => {
        if (!this.stopping.signal.aborted) {
          this.sweepLater();
        }
      });
    });
  }

  private get isElected(): boolean {
    return rendezvous(this.context.membership.live(), "retention") === this.context.brokerId;
  }

  /** Never rejects. */
  private async sweep(): Promise<void> {
    if (!this.isElected) {
      return;
    }
    const { log, clock, meter, retentionMs } = this.context;
    const begunAtMs = clock.monotonic();
    const swept: Sweep = { calls: 0, values: 0, unreadable: 0, stays: new Set(), isOver: false };
    let unnamed = 0;
    try {
      if (retentionMs !== "never") {
        await this.sweepCalls(swept, clock.now() - retentionMs);
      }
      unnamed = await this.values.sweep(this.stopping.signal);
    } catch (error) {
      if (!(this.stopping.signal.aborted || (error instanceof LedgerError && error.code === "closed"))) {
        log.warn("retention_failed", { error: error instanceof Error ? error.message : String(error), calls: swept.calls });
      }
    }
    if (unnamed > 0) {
      meter?.removed(0, unnamed);
      log.info("unnamed_values_removed", { values: unnamed });
    }
    if (swept.calls > 0 || swept.unreadable > 0) {
      const { calls, values, unreadable, stays } = swept;
      log.info("retention_swept", { calls, values, unreadable, kept: stays.size, took_ms: Math.round(clock.monotonic() - begunAtMs) });
    }
  }

  private async sweepCalls(swept: Sweep, settledBeforeMs: number): Promise<void> {
    const { signal } = this.stopping;
    let batch = new Set<string>();
    for await (const { callId } of this.context.ledger.places(0, signal)) {
      if (!swept.stays.has(callId)) {
        batch.add(callId);
      }
      if (batch.size >= BATCH) {
        await this.work(batch, swept, settledBeforeMs);
        batch = new Set();
        if (swept.isOver || signal.aborted || !this.isElected) {
          return;
        }
      }
    }
    if (!signal.aborted) {
      await this.work(batch, swept, settledBeforeMs);
    }
  }

  /** Removes those of the calls whose time is over, and says so to all brokers. */
  private async work(callIds: ReadonlySet<string>, swept: Sweep, settledBeforeMs: number): Promise<void> {
    const { bus, meter } = this.context;
    await this.pace(callIds.size);
    const removed: RemovedCall[] = [];
    // What was removed is told also when one of them failed.
    const ends = await Promise.allSettled(
      [...callIds].map(async (callId) => {
        const entries = await entriesOf(this.context.ledger, callId);
        const judged = judgeCall(entries, settledBeforeMs);
        if (judged.kind === "leaves") {
          const values = await removeCall(this.context.ledger, callId, judged);
          // Of an expired call what came before its first entry was its acceptance, mostly.
          removed.push({ callId, opened: isWhole(judged) ? (judged.versions[0] ?? 0) : (entries[0]?.previous ?? 0) });
          swept.calls += 1;
          swept.values += values;
          meter?.removed(1, values);
        } else if (judged.kind !== "absent") {
          swept.stays.add(callId);
          swept.unreadable += judged.kind === "unreadable" ? 1 : 0;
          swept.isOver ||= judged.kind === "stays" && judged.acceptedAtMs >= settledBeforeMs;
        }
      }),
    );
    if (removed.length > 0) {
      this.forget(removed);
      bus.publish(SUBJECT, JSON.stringify(removed));
    }
    const failed = ends.find((end) => end.status === "rejected");
    if (failed !== undefined) {
      throw failed.reason;
    }
  }

  /** The calls are gone: what this broker remembers of them, for those who ask, goes as well. */
  private forget(calls: readonly RemovedCall[]): void {
    const { table, index } = this.context;
    for (const { callId } of calls) {
      const driver = table.get(callId);
      if (driver?.answers === true && isSettledState(driver.known)) {
        table.remove(driver);
      }
    }
    index?.dropped(calls);
  }

  /** Waits for the time that the work before was to take. */
  private async pace(calls: number): Promise<void> {
    const { clock, timers, figures } = this.context;
    const { signal } = this.stopping;
    const now = clock.monotonic();
    const waitMs = this.restUntilMs - now;
    this.restUntilMs = Math.max(now, this.restUntilMs) + calls * figures.retentionPaceMs;
    if (waitMs <= 0 || signal.aborted) {
      return;
    }
    await new Promise<void>((resolve) => {
      const task = timers.after(waitMs, () => done());
      const done = (): void => {
        task.cancel();
        signal.removeEventListener("abort", done);
        resolve();
      };
      signal.addEventListener("abort", done, { once: true });
    });
  }
}

function isWhole(judged: Extract<Keeping, { readonly kind: "leaves" }>): boolean {
  return judged.settledAtMs !== null;
}
