/**
 * Takes over the open calls of brokers that are gone, and at the start those of earlier incarnations of this one. The other
 * way round, finds out which calls others took over from this broker while they thought it gone.
 *
 * Invariants: the live brokers share the calls out by rendezvous hashing, and what one of them left undone is taken by
 * whoever still finds it a moment later; two that disagree race on an append, and one wins. Nothing of a broker that answers
 * is taken.
 */
import { createHash } from "node:crypto";
import { isSettledState } from "../domain/call/call-state.js";
import { EntryFormatError } from "../domain/call/entry-codec.js";
import { type Bus, BusError, type Subscription } from "../domain/ports/bus.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Ledger } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { BrokerPost } from "./broker-post.js";
import type { CallDriver } from "./call-driver.js";
import type { CallRouter } from "./call-router.js";
import type { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Calls that are read and adopted at once. */
const CONCURRENCY = 32;
/** What nobody adopted in a sweep is looked at again after this time, or after as long as the sweep took. */
const SWEEP_AGAIN_MS = 2_000;

export class TakeOver {
  private endpoint: Subscription | undefined;
  private sweeping: Promise<void> = Promise.resolve();
  private verifying: Promise<void> | undefined;
  private verifyAgain = false;
  private stopped = false;

  constructor(
    private readonly context: {
      readonly ledger: Ledger;
      readonly bus: Bus;
      readonly membership: Membership;
      readonly table: DriverTable;
      readonly router: CallRouter;
      readonly post: BrokerPost;
      readonly clock: Pick<Clock, "monotonic">;
      readonly timers: TimerWheel;
      readonly figures: Pick<Figures, "driverAnswerMs">;
      readonly log: Log;
    },
  ) {}

  /** Resolves after the first sweep: what earlier incarnations left behind is driven again. */
  async start(): Promise<void> {
    const { membership, bus, post } = this.context;
    membership.onGone((brokerId) => {
      this.sweepSoon(brokerId, false);
      // It may have taken calls over from this broker, and died before it said so.
      this.verifyAll();
    });
    membership.onDoubt(() => this.verifyAll());
    membership.onBack((brokerId) => {
      post.ask(brokerId, "verify", "").catch((error: unknown) => this.context.log.error("verify_not_asked", failure(brokerId, error)));
    });
    this.endpoint = bus.respond(`broker.${membership.brokerId}.verify`, async () => {
      this.verifyAll();
      return "";
    });
    this.sweeping = this.sweep(undefined, false);
    await this.sweeping;
  }

  /** Resolves when nothing is taken over any more. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.endpoint?.unsubscribe();
    await Promise.all([this.sweeping, this.verifying]);
  }

  private sweepSoon(gone: string | undefined, whoeverFinds: boolean): void {
    this.sweeping = this.sweeping
      .catch(() => undefined)
      .then(() => this.sweep(gone, whoeverFinds))
      .catch((error: unknown) => {
        // What it had not got to is for the others, who see this broker go.
        if (this.stopped) return;
        this.context.log.error("take_over_failed", failure(gone ?? "", error));
        this.context.timers.after(SWEEP_AGAIN_MS, () => this.sweepSoon(gone, whoeverFinds));
      });
  }

  private async sweep(gone: string | undefined, whoeverFinds: boolean): Promise<void> {
    const { ledger, membership, timers, clock, log } = this.context;
    const startedAt = clock.monotonic();
    const answers = new Map<string, Promise<boolean>>();
    let adopted = 0;
    let left = 0;
    await inParallel(ledger.openCalls(), async ({ callId }) => {
      if (this.stopped) {
        return;
      }
      const outcome = await this.look(callId, whoeverFinds, answers).catch((error: unknown) => this.lookFailed(callId, error));
      adopted += outcome === "adopted" ? 1 : 0;
      left += outcome === "left" ? 1 : 0;
    });
    if (this.stopped) {
      return;
    }
    if (adopted > 0 || gone !== undefined) {
      log.info("take_over_swept", { other_broker_id: gone ?? null, adopted, left });
    }
    if (left > 0) {
      timers.after(Math.max(SWEEP_AGAIN_MS, clock.monotonic() - startedAt), () => this.sweepSoon(gone, true));
      return;
    }
    if (gone !== undefined && !membership.isLive(gone)) {
      await ledger.retire(gone);
    }
  }

  /** Adopts the call when its driver is gone and it falls to this broker. */
  private async look(
    callId: string,
    whoeverFinds: boolean,
    answers: Map<string, Promise<boolean>>,
  ): Promise<"adopted" | "left" | "not concerned"> {
    const { router, membership } = this.context;
    const found = await router.find(callId);
    if (found === undefined || isSettledState(found.known)) {
      return "not concerned";
    }
    const { driver } = found.known.record;
    if (driver === membership.brokerId) {
      router.attached(found);
      return "not concerned";
    }
    if (membership.isLive(driver)) {
      return "not concerned";
    }
    if (!membership.isGone(driver)) {
      // Never seen: gone before this broker came, or so new that its heartbeat is on its way.
      const answer = answers.get(driver) ?? this.answers(driver);
      answers.set(driver, answer);
      if (await answer) {
        return "not concerned";
      }
    }
    const mine = whoeverFinds || rendezvous(membership.live(), callId) === membership.brokerId;
    return mine && (await router.adopt(found)) ? "adopted" : "left";
  }

  /** One call that cannot be read, or adopted, keeps no other from being driven. */
  private lookFailed(callId: string, error: unknown): "left" | "not concerned" {
    this.context.log.error("take_over_failed", { call_id: callId, error: error instanceof Error ? error.message : String(error) });
    // What a newer broker wrote is for a newer broker to drive.
    return error instanceof EntryFormatError ? "not concerned" : "left";
  }

  private async answers(brokerId: string): Promise<boolean> {
    try {
      await this.context.bus.request(`broker.${brokerId}.verify`, "", { timeoutMs: this.context.figures.driverAnswerMs });
      return true;
    } catch (error) {
      if (error instanceof BusError && (error.code === "no_responder" || error.code === "timeout")) {
        return false;
      }
      // This broker cannot ask: that says nothing about the other one.
      throw error;
    }
  }

  /** Looks at each call that this broker thinks it drives; asked for meanwhile, once more. */
  private verifyAll(): void {
    if (this.stopped) {
      return;
    }
    if (this.verifying !== undefined) {
      this.verifyAgain = true;
      return;
    }
    const once = async (): Promise<void> => {
      do {
        this.verifyAgain = false;
        await inParallel([...this.context.table], (driver) => this.verify(driver));
      } while (this.verifyAgain && !this.stopped);
    };
    this.verifying = once().finally(() => {
      this.verifying = undefined;
    });
  }

  /** Never rejects: what could not be looked at is looked at again. */
  private async verify(driver: CallDriver): Promise<void> {
    try {
      if (!this.stopped && (await driver.created)) {
        await driver.verify();
      }
    } catch (error) {
      this.context.log.error("verify_failed", {
        call_id: driver.callId,
        error: error instanceof Error ? error.message : String(error),
      });
      if (driver.drives) {
        this.context.timers.after(SWEEP_AGAIN_MS, () => void this.verify(driver));
      }
    }
  }
}

/** {@link CONCURRENCY} jobs at once; the first failure ends it, when the jobs under way are over. */
async function inParallel<T>(items: Iterable<T> | AsyncIterable<T>, job: (item: T) => Promise<void>): Promise<void> {
  const under = new Set<Promise<void>>();
  let failure: { readonly error: unknown } | undefined;
  for await (const item of items) {
    const one: Promise<void> = job(item)
      .catch((error: unknown) => {
        failure ??= { error };
      })
      .finally(() => under.delete(one));
    under.add(one);
    if (under.size >= CONCURRENCY) {
      await Promise.race(under);
    }
    if (failure !== undefined) {
      break;
    }
  }
  await Promise.all(under);
  if (failure !== undefined) {
    throw failure.error;
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

function failure(brokerId: string, error: unknown): { readonly other_broker_id: string; readonly error: string } {
  return { other_broker_id: brokerId, error: error instanceof Error ? error.message : String(error) };
}
