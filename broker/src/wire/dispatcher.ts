/**
 * Finds runners for calls and calls for runners.
 *
 * Invariants: every queued call that this broker drives waits in its lane, is being granted, or has a time before which it
 * must not run; a claim that appears makes its broker look for what waits, here at once and elsewhere by a wake-up on the bus.
 */
import type { CallRequest, Grant, ReconcileGrant } from "../domain/call/call-state.js";
import { backOffMs, decideUnauthorized } from "../domain/call/decide.js";
import type { WaitingFor } from "../domain/call-view.js";
import type { Bus } from "../domain/ports/bus.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import { CallSearch } from "./call-search.js";
import type { OfferTaken } from "./commands.js";
import type { DrivenCall, DriverEffects } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import { holderOf } from "./grant-holder.js";
import type { LaneDesk } from "./lane-desk.js";
import type { Membership } from "./membership.js";
import type { OfferDesk } from "./offer-desk.js";
import type { PermitDesk } from "./permit-desk.js";
import { LOCAL_CLAIM, type Placement } from "./placement.js";
import type { ReconcileAsks } from "./reconcile-asks.js";
import { handlerKeyOf, placeKey, type Requirement, requirementOf } from "./requirement.js";
import { freeSlots, type Session } from "./session.js";
import type { SessionPost } from "./session-post.js";
import type { Reservation, SessionRegistry } from "./session-registry.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";
import { WaitingCalls } from "./waiting-calls.js";

/** Waiting calls that are granted in one turn of the event loop at most: thousands may wait for a runner that comes. */
const FED_A_TURN_MAX = 64;
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
  readonly lanes: LaneDesk;
  readonly permits: PermitDesk;
  readonly desk: () => OfferDesk;
  readonly post: () => SessionPost;
  readonly reconcileAsks: () => ReconcileAsks;
  /** G7: may who made the call still have it run? Asked before each grant but the one with which it is accepted. */
  readonly mayRun: (request: CallRequest) => boolean | Promise<boolean>;
}

export class Dispatcher implements DriverEffects {
  private readonly waiting = new WaitingCalls();
  private readonly elsewhere: CallSearch;
  private readonly placing = new Set<DrivenCall>();
  private readonly delayed = new Map<DrivenCall, TimerTask>();
  private readonly notices = new Map<DrivenCall, TimerTask>();
  /** Sessions that may take more of what waits in the next turn. */
  private readonly hungry = new Set<Session>();
  private fedThisTurn = 0;
  private turn: { cancel(): void } | undefined;
  private stopped = false;

  constructor(private readonly context: DispatcherContext) {
    this.elsewhere = new CallSearch({
      ...context,
      waiting: this.waiting,
      granted: (driver, placement) => void this.grantTo(driver, placement),
      failed: (driver, error) => this.failed(driver, error),
    });
  }

  start(): void {
    this.elsewhere.start();
  }

  stop(): void {
    this.stopped = true;
    this.turn?.cancel();
    this.hungry.clear();
    this.elsewhere.stop();
  }

  /** What waits and what is on its way: all 0 at rest. */
  inspect(): {
    readonly waiting: number;
    readonly placing: number;
    readonly delayed: number;
    readonly notices: number;
    readonly searches: number;
    readonly inLanes: number;
    readonly permits: number;
  } {
    return {
      waiting: this.waiting.size,
      placing: this.placing.size,
      delayed: this.delayed.size,
      notices: this.notices.size,
      searches: this.elsewhere.size,
      inLanes: this.context.lanes.size,
      permits: this.context.permits.size,
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
    } else if (this.context.lanes.mayGo(driver) && this.needsNoPermit(driver)) {
      this.place(driver);
    } else {
      this.noticeLater(driver);
    }
  }

  withdraw(driver: DrivenCall): void {
    this.waiting.remove(driver);
    this.context.lanes.withdraw(driver);
    cancel(this.delayed, driver);
    cancel(this.notices, driver);
  }

  sendGrant(driver: DrivenCall, grant: Grant, placement: Placement | undefined): void {
    this.context.permits.running(driver);
    this.context.post().sendGrant(driver, grant, placement);
  }

  pushCancel(driver: DrivenCall, grant: Grant, reason: string): void {
    this.context.post().pushCancel(driver, grant, reason);
  }

  revoke(driver: DrivenCall, grant: Pick<Grant, "grantId" | "fence">, reason: string): void {
    this.context.post().revoke(driver, grant, reason);
  }

  sendReconcile(driver: DrivenCall, asked: ReconcileGrant): void {
    this.context.post().sendReconcile(driver, asked);
  }

  reconcileAgain(driver: DrivenCall): void {
    this.context.reconcileAsks().later(driver);
  }

  askHolder(driver: DrivenCall, grant: Grant): Promise<boolean> {
    return this.context.post().askHolder(driver, grant);
  }

  grantEnded(driver: DrivenCall): void {
    this.context.permits.grantEnded(driver);
  }

  settled(driver: DrivenCall): void {
    this.context.permits.forget(driver);
    this.context.lanes.settled(driver);
    this.context.table.settled(driver);
  }

  handedOver(driver: DrivenCall): void {
    this.withdraw(driver);
    this.context.lanes.forget(driver);
    this.context.permits.forget(driver);
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

  whyWaiting(driver: DrivenCall): WaitingFor {
    if (this.context.permits.isBlocked(driver)) {
      return "capacity";
    }
    return this.context.lanes.isWaiting(driver) ? "order" : this.context.registry.whyNot(requirementOf(driver.known.record.request));
  }

  private claimAppeared(session: Session): void {
    this.feed(session);
    if (freeSlots(session) > 0) {
      const { application, binding } = session.ref;
      this.elsewhere.claimAppeared(placeKey(application, binding, session.bindingKind === "backend" ? null : session.subject));
    }
  }

  private feed(session: Session): void {
    this.context.registry.freed(session);
    while (!this.stopped && this.waiting.size > 0 && freeSlots(session) > 0 && this.context.clock.monotonic() >= session.leftAloneUntilMs) {
      const driver = this.waiting.next(session);
      if (driver === undefined) {
        return;
      }
      if (this.fedThisTurn >= FED_A_TURN_MAX) {
        this.hungry.add(session);
        return;
      }
      this.countFed();
      if (!this.placeHere(driver, session)) {
        return;
      }
    }
  }

  private countFed(): void {
    this.fedThisTurn += 1;
    this.turn ??= this.context.clock.schedule(0, () => {
      this.turn = undefined;
      this.fedThisTurn = 0;
      const hungry = [...this.hungry];
      this.hungry.clear();
      for (const session of hungry) {
        this.feed(session);
      }
    });
  }

  private place(driver: DrivenCall): void {
    if (this.placeHere(driver)) {
      return;
    }
    const lane = this.waiting.add(driver);
    this.noticeLater(driver);
    this.elsewhere.search(lane);
  }

  /** False: no runner of this broker is free, or not this one. */
  private placeHere(driver: DrivenCall, session?: Session): boolean {
    const { registry, clock } = this.context;
    const requirement = requirementOf(driver.known.record.request);
    const reservation = session === undefined ? registry.reserve(requirement, clock.monotonic()) : registry.reserveOf(session, requirement);
    if (reservation === undefined) {
      return false;
    }
    this.waiting.serve(driver);
    void this.grantTo(driver, this.placementOf(reservation, requirement));
    return true;
  }

  /** A grant that lost a race leaves the call to be offered again, if it still waits. Never rejects. */
  private async grantTo(driver: DrivenCall, placement: Placement): Promise<boolean> {
    this.placing.add(driver);
    if (driver.known.record.request.limits !== undefined && !(await this.permitted(driver, placement))) {
      return false;
    }
    let granted = false;
    let failed = false;
    try {
      const mayRun = this.context.mayRun(driver.known.record.request);
      if (mayRun !== true && !(await mayRun)) {
        this.placing.delete(driver);
        placement.release();
        driver.later("unauthorized", (state) => decideUnauthorized(state, this.context.clock.now()));
        return false;
      }
      granted = await driver.grant(placement);
    } catch (error) {
      failed = true;
      placement.release();
      this.failed(driver, error);
    }
    this.placing.delete(driver);
    if (!granted && driver.drives) {
      this.context.permits.unused(driver);
      if (failed) {
        this.offerLater(driver, PLACE_AGAIN_MS * (0.5 + this.context.ids.random()));
      } else {
        this.offer(driver);
      }
    }
    return granted;
  }

  /** A call that has a runner and waits for a permit is offered when it has that, too. */
  private needsNoPermit(driver: DrivenCall): boolean {
    this.context.permits.queued(driver);
    return !this.context.permits.isBlocked(driver);
  }

  /** Asks for a permit; false: there is none now, and the claim was given back. Never rejects. */
  private async permitted(driver: DrivenCall, placement: Placement): Promise<boolean> {
    const { permits, bus } = this.context;
    if (await permits.acquire(driver)) {
      return true;
    }
    this.placing.delete(driver);
    placement.release();
    if (placement.offerId !== LOCAL_CLAIM) {
      bus.publish("taken", JSON.stringify({ callId: driver.callId, offerId: null } satisfies OfferTaken));
    }
    if (driver.drives) {
      // The permit may have come meanwhile.
      this.offer(driver);
    }
    return false;
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
        if (!this.waiting.has(driver) && !this.context.lanes.isWaiting(driver) && !this.context.permits.isBlocked(driver)) {
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
