/**
 * Takes over the open calls of brokers that are gone, and at the start those of earlier incarnations of this one.
 *
 * The live brokers share the calls out by rendezvous hashing; two that disagree for a moment race on an append, and one wins.
 */
import { createHash } from "node:crypto";
import { isSettledState } from "../domain/call/call-state.js";
import type { Ledger } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { CallRouter } from "./call-router.js";
import type { DriverTable } from "./driver-table.js";
import type { Membership } from "./membership.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Calls that are read and adopted at once. */
const CONCURRENCY = 32;
/** What nobody adopted in a sweep, because the brokers disagreed about who lives, is looked at again after this time. */
const SWEEP_AGAIN_MS = 2_000;

export class TakeOver {
  private sweeping: Promise<void> = Promise.resolve();
  private stopped = false;

  constructor(
    private readonly context: {
      readonly ledger: Ledger;
      readonly membership: Membership;
      readonly table: DriverTable;
      readonly router: CallRouter;
      readonly timers: TimerWheel;
      readonly log: Log;
    },
  ) {}

  /** Resolves after the first sweep: what earlier incarnations left behind is driven again. */
  async start(): Promise<void> {
    this.context.membership.onGone((brokerId) => this.sweepSoon(brokerId));
    await this.sweep(undefined);
  }

  stop(): Promise<void> {
    this.stopped = true;
    return this.sweeping;
  }

  private sweepSoon(gone: string): void {
    this.sweeping = this.sweeping
      .then(() => this.sweep(gone))
      .catch((error: unknown) => {
        this.context.log.error("take_over_failed", {
          other_broker_id: gone,
          error: error instanceof Error ? error.message : String(error),
        });
        this.context.timers.after(SWEEP_AGAIN_MS, () => this.sweepSoon(gone));
      });
  }

  private async sweep(gone: string | undefined): Promise<void> {
    const owners = new Map<string, number>();
    let adopted = 0;
    const under = new Set<Promise<void>>();
    for await (const { callId } of this.context.ledger.openCalls()) {
      if (this.stopped) {
        return;
      }
      const job: Promise<void> = this.look(callId, owners)
        .then((mine) => {
          adopted += mine ? 1 : 0;
        })
        .finally(() => under.delete(job));
      under.add(job);
      if (under.size >= CONCURRENCY) {
        await Promise.race(under);
      }
    }
    await Promise.all(under);
    if (adopted > 0 || gone !== undefined) {
      this.context.log.info("take_over_swept", { other_broker_id: gone, adopted, left: gone === undefined ? 0 : (owners.get(gone) ?? 0) });
    }
    if (gone === undefined || this.context.membership.isLive(gone)) {
      return;
    }
    if ((owners.get(gone) ?? 0) > 0) {
      this.context.timers.after(SWEEP_AGAIN_MS, () => this.sweepSoon(gone));
      return;
    }
    await this.context.ledger.retire(gone);
  }

  /** Adopts the call when its driver is gone and it falls to this broker; `owners` counts what is left to others. */
  private async look(callId: string, owners: Map<string, number>): Promise<boolean> {
    const found = await this.context.router.find(callId);
    if (found === undefined || isSettledState(found.known) || found.drives) {
      return false;
    }
    const { driver } = found.known.record;
    if (driver !== this.context.membership.brokerId && this.context.membership.isLive(driver)) {
      return false;
    }
    if (
      rendezvous(this.context.membership.live(), callId) === this.context.membership.brokerId &&
      (await this.context.router.adopt(found))
    ) {
      return true;
    }
    owners.set(driver, (owners.get(driver) ?? 0) + 1);
    return false;
  }
}

/** The broker with the highest hash for this call: every broker that sees the same others chooses the same. */
export function rendezvous(brokers: readonly string[], callId: string): string | undefined {
  let best: { readonly broker: string; readonly weight: string } | undefined;
  for (const broker of brokers) {
    const weight = createHash("sha256").update(`${broker}\n${callId}`).digest("hex");
    if (best === undefined || weight > best.weight) {
      best = { broker, weight };
    }
  }
  return best?.broker;
}
