/**
 * Finds runners for calls and calls for runners.
 *
 * Invariants: every queued call that this broker drives waits in its lane, is being granted, or has a time before which it
 * must not run; a claim that appears makes its broker look for what waits, here at once and elsewhere by a wake-up on the bus;
 * wake-ups may get lost, so a lane that is not empty is offered again and again (B3); a lane costs the bus the same however
 * many calls wait in it.
 */
import type { Grant } from "../domain/call/call-state.js";
import { backOffMs } from "../domain/call/decide.js";
import { type Bus, BusError, type Subscription } from "../domain/ports/bus.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { Offer, OfferAnswer } from "./commands.js";
import type { DrivenCall, DriverEffects } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import { holderOf } from "./grant-holder.js";
import type { Membership } from "./membership.js";
import type { OfferDesk } from "./offer-desk.js";
import { LOCAL_CLAIM, type Placement } from "./placement.js";
import { handlerKeyOf, handlerToken, placeKey, type Requirement, requirementOf } from "./requirement.js";
import { freeSlots, type Session } from "./session.js";
import type { SessionPost } from "./session-post.js";
import type { Reservation, SessionRegistry } from "./session-registry.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";
import { type Lane, WaitingCalls } from "./waiting-calls.js";

/** Wait for the answers of other brokers to an offer: one exchange on a busy machine. Repeated offers wait longer. */
const OFFER_ANSWER_MS = 100;
const OFFER_ANSWER_AGAIN_MS = 400;
/** Calls of one lane that are offered to other brokers at once: an answer makes room for the next. */
const OFFERED_AT_ONCE = 16;
/** A call whose grant failed for a reason of this broker's own is placed again after this time. */
const PLACE_AGAIN_MS = 500;

export interface DispatcherContext {
  readonly brokerId: string;
  readonly bus: Bus;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly log: Log;
  readonly figures: Figures;
  readonly timers: TimerWheel;
  readonly registry: SessionRegistry;
  readonly table: DriverTable;
  readonly membership: Membership;
  readonly desk: () => OfferDesk;
  readonly post: () => SessionPost;
}

/** The offers of one lane to other brokers. */
interface Search {
  readonly asking: Set<DrivenCall>;
  /** Offers in a row that nobody answered. */
  misses: number;
  task: TimerTask | undefined;
}

export class Dispatcher implements DriverEffects {
  private readonly waiting = new WaitingCalls();
  private readonly searches = new Map<string, Search>();
  private readonly placing = new Set<DrivenCall>();
  private readonly delayed = new Map<DrivenCall, TimerTask>();
  private readonly notices = new Map<DrivenCall, TimerTask>();
  private wakeUps: Subscription | undefined;
  private stopped = false;

  constructor(private readonly context: DispatcherContext) {}

  start(): void {
    this.wakeUps = this.context.bus.subscribe("claims", (payload) => this.wokenUp(payload));
  }

  stop(): void {
    this.stopped = true;
    this.wakeUps?.unsubscribe();
    for (const { task } of this.searches.values()) {
      task?.cancel();
    }
    this.searches.clear();
  }

  /** What waits and what is on its way: all 0 at rest. */
  inspect(): {
    readonly waiting: number;
    readonly placing: number;
    readonly delayed: number;
    readonly notices: number;
    readonly searches: number;
  } {
    return {
      waiting: this.waiting.size,
      placing: this.placing.size,
      delayed: this.delayed.size,
      notices: this.notices.size,
      searches: this.searches.size,
    };
  }

  /** A claim on this broker for a call that is not stored yet: the fast path. Leaves calls that wait their turn. */
  reserveLocal(requirement: Requirement): Placement | undefined {
    if (this.waiting.laneFor(requirement) !== undefined) {
      return undefined;
    }
    const reservation = this.context.registry.reserve(requirement, this.context.clock.monotonic());
    return reservation === undefined ? undefined : this.placementOf(reservation, requirement);
  }

  offer(driver: DrivenCall): void {
    const state = driver.known;
    if (state.kind !== "queued" || this.stopped || this.placing.has(driver)) {
      return;
    }
    const delayMs = state.notBeforeMs === null ? 0 : state.notBeforeMs - this.context.clock.now();
    if (delayMs > 0) {
      this.offerLater(driver, delayMs);
    } else {
      this.place(driver);
    }
  }

  withdraw(driver: DrivenCall): void {
    this.waiting.remove(driver);
    cancel(this.delayed, driver);
    cancel(this.notices, driver);
  }

  sendGrant(driver: DrivenCall, grant: Grant, placement: Placement | undefined): void {
    this.context.post().sendGrant(driver, grant, placement);
  }

  pushCancel(driver: DrivenCall, grant: Grant, reason: string): void {
    this.context.post().pushCancel(driver, grant, reason);
  }

  revoke(driver: DrivenCall, grant: Grant, reason: string): void {
    this.context.post().revoke(driver, grant, reason);
  }

  askHolder(driver: DrivenCall, grant: Grant): Promise<boolean> {
    return this.context.post().askHolder(driver, grant);
  }

  settled(driver: DrivenCall): void {
    this.context.table.settled(driver);
  }

  handedOver(driver: DrivenCall): void {
    this.withdraw(driver);
    this.context.table.remove(driver);
  }

  /** A session was added: offers of other brokers are answered for its handlers, and what waits for it is asked for. */
  sessionAdded(session: Session): void {
    this.context.desk().sessionAdded(session);
    this.claimAppeared(session);
  }

  sessionRemoved(session: Session): void {
    this.context.desk().sessionRemoved(session);
  }

  /** `session` may have a free slot again. `wasFull`: other brokers were told of none, so they are woken up. */
  slotFreed(session: Session, wasFull: boolean): void {
    if (wasFull) {
      this.claimAppeared(session);
    } else {
      this.feed(session);
    }
  }

  /** The runner cannot take the call: it is left alone for a while that grows with each decline in a row. */
  declined(session: Session): void {
    session.declines += 1;
    const pauseMs = backOffMs(session.declines, this.context.ids.random());
    session.leftAloneUntilMs = this.context.clock.monotonic() + pauseMs;
    this.context.timers.after(pauseMs, () => this.claimAppeared(session));
  }

  whyWaiting(driver: DrivenCall): "runner" | "handler" | "capacity" {
    const why = this.context.registry.whyNot(requirementOf(driver.known.record.request));
    return why === "handler" || why === "capacity" ? why : "runner";
  }

  private claimAppeared(session: Session): void {
    this.feed(session);
    if (this.stopped || this.context.membership.alone || freeSlots(session) <= 0) {
      return;
    }
    const { application, binding } = session.ref;
    this.context.bus.publish("claims", placeKey(application, binding, session.bindingKind === "backend" ? null : session.subject));
  }

  private feed(session: Session): void {
    while (!this.stopped && this.waiting.size > 0 && freeSlots(session) > 0 && this.context.clock.monotonic() >= session.leftAloneUntilMs) {
      const driver = this.waiting.next(session);
      if (driver === undefined || !this.placeHere(driver)) {
        return;
      }
    }
  }

  private wokenUp(place: string): void {
    for (const lane of this.waiting.lanesAt(place)) {
      this.search(lane);
    }
  }

  private place(driver: DrivenCall): void {
    if (this.placeHere(driver)) {
      return;
    }
    const lane = this.waiting.add(driver);
    this.noticeLater(driver);
    this.search(lane);
  }

  /** False: no runner of this broker is free. */
  private placeHere(driver: DrivenCall): boolean {
    const requirement = requirementOf(driver.known.record.request);
    const reservation = this.context.registry.reserve(requirement, this.context.clock.monotonic());
    if (reservation === undefined) {
      return false;
    }
    this.waiting.remove(driver);
    void this.grantTo(driver, this.placementOf(reservation, requirement));
    return true;
  }

  /** Offers the oldest calls of the lane to other brokers, and again after a while, for as long as calls wait in it. */
  private search(lane: Lane): void {
    if (this.stopped || lane.calls.size === 0) {
      return;
    }
    const search = this.searches.get(lane.key) ?? { asking: new Set(), misses: 0, task: undefined };
    this.searches.set(lane.key, search);
    search.task?.cancel();
    const { timers, figures, ids, membership } = this.context;
    search.task = timers.after(figures.offerRepeatMs * (0.75 + ids.random() / 2), () => {
      const present = this.waiting.lane(lane.key);
      if (present === undefined) {
        this.searches.delete(lane.key);
      } else {
        this.search(present);
      }
    });
    if (membership.alone) {
      return;
    }
    // After an offer that nobody answered one is enough to find out.
    const atOnce = search.misses > 0 ? 1 : OFFERED_AT_ONCE;
    for (const driver of lane.calls) {
      if (search.asking.size >= atOnce) {
        break;
      }
      if (!search.asking.has(driver)) {
        search.asking.add(driver);
        void this.askOthers(driver, search);
      }
    }
  }

  private async askOthers(driver: DrivenCall, search: Search): Promise<void> {
    let granted = false;
    try {
      const requirement = requirementOf(driver.known.record.request);
      const best = await this.bestAnswer(driver, requirement, search.misses > 0 ? OFFER_ANSWER_AGAIN_MS : OFFER_ANSWER_MS);
      search.misses = best === undefined ? search.misses + 1 : 0;
      if (best !== undefined && driver.known.kind === "queued" && this.waiting.has(driver)) {
        this.waiting.remove(driver);
        const { holder, session, offerId } = best;
        granted = await this.grantTo(driver, { holder, session, offerId, release: () => undefined });
      }
    } catch (error) {
      this.failed(driver, error);
    } finally {
      search.asking.delete(driver);
    }
    if (granted) {
      // There may be a claim for the next one, too.
      const lane = this.waiting.laneFor(requirementOf(driver.known.record.request));
      if (lane !== undefined) {
        this.search(lane);
      }
    }
  }

  private async bestAnswer(driver: DrivenCall, requirement: Requirement, timeoutMs: number): Promise<OfferAnswer | undefined> {
    const { bus, membership } = this.context;
    const offer: Offer = { callId: driver.callId, requirement };
    const subject = `offer.${handlerToken(handlerKeyOf(requirement))}`;
    // Off the backend it matters which tab it is: all answers are compared.
    const max = requirement.subject === null ? 1 : Math.max(1, membership.others);
    try {
      const answers = await bus.requestMany(subject, JSON.stringify(offer), { timeoutMs, max });
      return answers
        .map((answer) => JSON.parse(answer) as OfferAnswer)
        .sort((a, b) => Number(b.visible) - Number(a.visible) || Number(b.focused) - Number(a.focused) || a.load - b.load)[0];
    } catch (error) {
      if (error instanceof BusError) {
        // The offer is repeated, and the bus tells its own state.
        return undefined;
      }
      throw error;
    }
  }

  /** A grant that lost a race leaves the call to be offered again, if it still waits. Never rejects. */
  private async grantTo(driver: DrivenCall, placement: Placement): Promise<boolean> {
    this.placing.add(driver);
    let granted = false;
    let failed = false;
    try {
      granted = await driver.grant(placement);
    } catch (error) {
      failed = true;
      this.failed(driver, error);
    }
    this.placing.delete(driver);
    if (!granted && driver.drives) {
      if (failed) {
        this.offerLater(driver, PLACE_AGAIN_MS * (0.5 + this.context.ids.random()));
      } else {
        this.offer(driver);
      }
    }
    return granted;
  }

  private offerLater(driver: DrivenCall, delayMs: number): void {
    cancel(this.delayed, driver);
    this.delayed.set(
      driver,
      this.context.timers.after(delayMs, () => {
        this.delayed.delete(driver);
        if (driver.drives) {
          this.offer(driver);
        }
      }),
    );
  }

  private noticeLater(driver: DrivenCall): void {
    if (this.notices.has(driver)) {
      return;
    }
    this.notices.set(
      driver,
      this.context.timers.after(this.context.figures.waitingNoticeMs, () => {
        this.notices.delete(driver);
        if (!this.waiting.has(driver)) {
          return;
        }
        const waitingFor = this.whyWaiting(driver);
        driver.later("waiting", (state) =>
          state.kind === "queued" && state.waitingFor !== waitingFor
            ? { kind: "waiting", at: this.context.clock.now(), waitingFor }
            : undefined,
        );
      }),
    );
  }

  private placementOf(reservation: Reservation, requirement: Requirement): Placement {
    const { session } = reservation;
    return {
      holder: holderOf(session, handlerKeyOf(requirement), this.context.brokerId),
      session: session.ref,
      offerId: LOCAL_CLAIM,
      release: () => {
        reservation.release();
        // Who waits for this very slot would otherwise learn of it by nothing.
        this.feed(session);
      },
    };
  }

  private failed(driver: DrivenCall, error: unknown): void {
    this.context.log.error("dispatch_failed", { call_id: driver.callId, error: error instanceof Error ? error.message : String(error) });
  }
}

function cancel(tasks: Map<DrivenCall, TimerTask>, driver: DrivenCall): void {
  tasks.get(driver)?.cancel();
  tasks.delete(driver);
}
