/**
 * Finds runners for calls and calls for runners, and carries what drivers say to the sessions of runners, here or on
 * another broker.
 *
 * Invariants: every call that waits is in `waiting` until it is granted, settled or handed over; a claim that appears
 * makes its broker look for what waits, here at once and elsewhere by a wake-up on the bus; wake-ups may get lost, so
 * open offers are repeated (B3).
 */
import type { Grant } from "../domain/call/call-state.js";
import { backOffMs } from "../domain/call/decide.js";
import type { Bus, Subscription } from "../domain/ports/bus.js";
import { BusError } from "../domain/ports/bus.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { GrantToSend, Offer, OfferAnswer, SessionAnswer, SessionCommand } from "./commands.js";
import type { DrivenCall, DriverEffects } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import type { Placement } from "./placement.js";
import { handlerKeyOf, handlerToken, requirementOf } from "./requirement.js";
import { freeSlots, type Session, type SessionRef, slotsInUse } from "./session.js";
import type { Reservation, SessionRegistry } from "./session-registry.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";
import { WaitingCalls } from "./waiting-calls.js";

/** Wait for the answers of other brokers to an offer: one exchange on a busy machine. */
const OFFER_ANSWER_MS = 100;

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
  /** Carries a command out on a session of this broker. */
  readonly onSession: (ref: SessionRef, command: SessionCommand) => SessionAnswer;
}

export class Dispatcher implements DriverEffects {
  private readonly waiting = new WaitingCalls();
  private readonly offerTasks = new Map<DrivenCall, TimerTask>();
  private readonly noticeTasks = new Map<DrivenCall, TimerTask>();
  private readonly offered = new Map<string, { readonly reservation: Reservation; readonly task: TimerTask }>();
  private readonly offerSubscriptions = new Map<string, { count: number; readonly subscription: Subscription }>();
  private wakeUps: Subscription | undefined;
  private stopped = false;

  constructor(private readonly context: DispatcherContext) {}

  start(): void {
    this.wakeUps = this.context.bus.subscribe("wake.*", (payload) => this.wokenUp(payload));
  }

  stop(): void {
    this.stopped = true;
    this.wakeUps?.unsubscribe();
    for (const { subscription } of this.offerSubscriptions.values()) {
      subscription.unsubscribe();
    }
    this.offerSubscriptions.clear();
  }

  /** A claim on this broker for a call that is not stored yet: the fast path. Leaves calls that wait their turn. */
  reserveLocal(requirement: ReturnType<typeof requirementOf>): Placement | undefined {
    if (this.waiting.hasFor(handlerKeyOf(requirement))) {
      return undefined;
    }
    const reservation = this.context.registry.reserve(requirement, this.context.clock.monotonic());
    return reservation === undefined ? undefined : this.placementOf(reservation, handlerKeyOf(requirement));
  }

  offer(driver: DrivenCall): void {
    const state = driver.known;
    if (state.kind !== "queued" || this.stopped) {
      return;
    }
    const delayMs = state.notBeforeMs === null ? 0 : state.notBeforeMs - this.context.clock.now();
    if (delayMs > 0) {
      this.offerAgain(driver, delayMs);
      return;
    }
    this.place(driver);
  }

  withdraw(driver: DrivenCall): void {
    this.waiting.remove(driver);
    this.offerTasks.get(driver)?.cancel();
    this.offerTasks.delete(driver);
    this.noticeTasks.get(driver)?.cancel();
    this.noticeTasks.delete(driver);
  }

  sendGrant(driver: DrivenCall, grant: Grant, placement: Placement | undefined): void {
    const session = placement?.session ?? driver.location;
    if (session === undefined) {
      return;
    }
    const { request, argumentsJson, deadlineAtMs } = driver.known.record;
    const toSend: GrantToSend = {
      driver: this.context.brokerId,
      callId: driver.callId,
      grantId: grant.grantId,
      fence: grant.fence,
      attempt: grant.attempt,
      tool: request.tool,
      version: request.version,
      toolset: request.toolset,
      toolsetVersion: request.toolsetVersion,
      argumentsJson,
      subject: request.subject,
      agent: request.agent,
      session: request.session,
      deadlineAtMs: deadlineAtMs ?? grant.grantedAtMs + request.timeoutMs,
      scopes: request.scopes,
      traceparent: request.traceparent,
    };
    const sent = this.toSession(session, { op: "grant", grant: toSend });
    placement?.release();
    this.background(
      sent.then((answer) =>
        answer === "never_sent"
          ? driver.returned(grant.grantId, "unsent", "the runner's session ended before the grant was sent")
          : undefined,
      ),
      driver,
    );
  }

  pushCancel(driver: DrivenCall, grant: Grant, reason: string): void {
    this.tellRunner(driver, { op: "cancel", callId: driver.callId, grantId: grant.grantId, fence: grant.fence, reason });
  }

  revoke(driver: DrivenCall, grant: Grant, reason: string): void {
    this.tellRunner(driver, { op: "revoke", callId: driver.callId, grantId: grant.grantId, fence: grant.fence, reason });
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
    for (const key of session.handlers.keys()) {
      const held = this.offerSubscriptions.get(key);
      if (held !== undefined) {
        held.count += 1;
        continue;
      }
      const subscription = this.context.bus.respond(`offer.${handlerToken(key)}`, async (payload) => this.answerOffer(payload));
      this.offerSubscriptions.set(key, { count: 1, subscription });
    }
    this.claimAppeared(session);
  }

  sessionRemoved(session: Session): void {
    for (const key of session.handlers.keys()) {
      const held = this.offerSubscriptions.get(key);
      if (held === undefined) {
        continue;
      }
      held.count -= 1;
      if (held.count === 0) {
        held.subscription.unsubscribe();
        this.offerSubscriptions.delete(key);
      }
    }
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

  private claimAppeared(session: Session): void {
    this.feed(session);
    if (this.context.membership.alone || freeSlots(session) <= 0) {
      return;
    }
    for (const key of session.handlers.keys()) {
      this.context.bus.publish(`wake.${handlerToken(key)}`, key);
    }
  }

  private feed(session: Session): void {
    while (!this.stopped && this.waiting.size > 0 && freeSlots(session) > 0 && this.context.clock.monotonic() >= session.leftAloneUntilMs) {
      const driver = this.waiting.next(session);
      if (driver === undefined) {
        return;
      }
      this.waiting.remove(driver);
      this.place(driver);
      if (this.waiting.has(driver)) {
        return;
      }
    }
  }

  private wokenUp(handlerKey: string): void {
    for (const driver of [...this.waiting.of(handlerKey)]) {
      this.offerElsewhere(driver);
    }
  }

  private place(driver: DrivenCall): void {
    const requirement = requirementOf(driver.known.record.request);
    const reservation = this.context.registry.reserve(requirement, this.context.clock.monotonic());
    if (reservation !== undefined) {
      this.background(this.grantTo(driver, this.placementOf(reservation, handlerKeyOf(requirement))), driver);
      return;
    }
    this.waiting.add(driver);
    this.noticeWaiting(driver);
    this.offerElsewhere(driver);
  }

  private offerElsewhere(driver: DrivenCall): void {
    if (this.context.membership.alone) {
      return;
    }
    this.offerAgain(driver, this.context.figures.offerRepeatMs * (0.75 + this.context.ids.random() / 2));
    this.background(this.askOthers(driver), driver);
  }

  private async askOthers(driver: DrivenCall): Promise<void> {
    const requirement = requirementOf(driver.known.record.request);
    const offer: Offer = { callId: driver.callId, requirement };
    const subject = `offer.${handlerToken(handlerKeyOf(requirement))}`;
    const answers = await this.answersTo(subject, JSON.stringify(offer), requirement.subject === null ? 1 : this.context.membership.others);
    const best = answers.sort(
      (a, b) => Number(b.visible) - Number(a.visible) || Number(b.focused) - Number(a.focused) || a.load - b.load,
    )[0];
    if (best === undefined || driver.known.kind !== "queued" || !this.waiting.has(driver)) {
      return;
    }
    this.waiting.remove(driver);
    await this.grantTo(driver, { holder: best.holder, session: best.session, release: () => undefined });
  }

  /** A grant that lost a race leaves the call to be offered again, if it still waits. */
  private async grantTo(driver: DrivenCall, placement: Placement): Promise<void> {
    if (!(await driver.grant(placement)) && driver.drives) {
      this.offer(driver);
    }
  }

  private async answersTo(subject: string, payload: string, max: number): Promise<OfferAnswer[]> {
    try {
      const answers = await this.context.bus.requestMany(subject, payload, { timeoutMs: OFFER_ANSWER_MS, max });
      return answers.map((answer) => JSON.parse(answer) as OfferAnswer);
    } catch (error) {
      if (error instanceof BusError) {
        // The offer is repeated, and the bus tells its own state.
        return [];
      }
      throw error;
    }
  }

  private answerOffer(payload: string): string | undefined {
    const { callId, requirement } = JSON.parse(payload) as Offer;
    if (this.offered.has(callId) || this.stopped) {
      return undefined;
    }
    const reservation = this.context.registry.reserve(requirement, this.context.clock.monotonic());
    if (reservation === undefined) {
      return undefined;
    }
    const task = this.context.timers.after(this.context.figures.reservationMs, () => this.endReservation(callId));
    this.offered.set(callId, { reservation, task });
    const { holder, session } = this.placementOf(reservation, handlerKeyOf(requirement));
    const answer: OfferAnswer = {
      holder,
      session,
      visible: reservation.session.visible,
      focused: reservation.session.focused,
      load: slotsInUse(reservation.session),
    };
    return JSON.stringify(answer);
  }

  /** The reserved claim is granted now, or nobody came for it. */
  endReservation(callId: string): void {
    const held = this.offered.get(callId);
    if (held === undefined) {
      return;
    }
    this.offered.delete(callId);
    held.task.cancel();
    held.reservation.release();
    this.feed(held.reservation.session);
  }

  private offerAgain(driver: DrivenCall, delayMs: number): void {
    this.offerTasks.get(driver)?.cancel();
    this.offerTasks.set(
      driver,
      this.context.timers.after(delayMs, () => {
        this.offerTasks.delete(driver);
        if (driver.known.kind === "queued" && driver.drives) {
          this.waiting.remove(driver);
          this.place(driver);
        }
      }),
    );
  }

  private noticeWaiting(driver: DrivenCall): void {
    if (this.noticeTasks.has(driver)) {
      return;
    }
    this.noticeTasks.set(
      driver,
      this.context.timers.after(this.context.figures.waitingNoticeMs, () => {
        this.noticeTasks.delete(driver);
        if (this.waiting.has(driver)) {
          this.background(driver.noteWaiting(this.whyWaiting(driver)), driver);
        }
      }),
    );
  }

  whyWaiting(driver: DrivenCall): "runner" | "handler" | "capacity" {
    const why = this.context.registry.whyNot(requirementOf(driver.known.record.request));
    return why === "handler" || why === "capacity" ? why : "runner";
  }

  private placementOf(reservation: Reservation, handlerKey: string): Placement {
    const { session } = reservation;
    const handler = session.handlers.get(handlerKey);
    return {
      holder: {
        runnerId: session.ref.runnerId,
        sessionEpoch: session.ref.sessionEpoch,
        journalId: session.journalId,
        brokerId: this.context.brokerId,
        handlerReadOnly: handler?.readOnly ?? false,
        handlerIdempotent: handler?.idempotent ?? false,
        handlerCancellable: handler?.cancellable ?? false,
      },
      session: session.ref,
      release: () => {
        reservation.release();
        // Who waits for this very slot would otherwise learn of it by nothing.
        this.feed(session);
      },
    };
  }

  private tellRunner(driver: DrivenCall, command: SessionCommand): void {
    if (driver.location !== undefined) {
      this.background(this.toSession(driver.location, command), driver);
    }
  }

  /** Repeated until it is answered or the session's broker is gone; idempotent by the grant. */
  private async toSession(ref: SessionRef, command: SessionCommand): Promise<SessionAnswer> {
    if (ref.brokerId === this.context.brokerId) {
      return this.context.onSession(ref, command);
    }
    const payload = JSON.stringify({ ref, command });
    for (let tries = 1; !this.stopped; tries += 1) {
      try {
        const answer = await this.context.bus.request(`broker.${ref.brokerId}.session`, payload, {
          timeoutMs: this.context.figures.driverAnswerMs,
        });
        return JSON.parse(answer) as SessionAnswer;
      } catch (error) {
        if (!(error instanceof BusError) || !this.context.membership.isLive(ref.brokerId)) {
          return "gone";
        }
        await new Promise<void>((resolve) => this.context.timers.after(backOffMs(tries, this.context.ids.random()), resolve));
      }
    }
    return "gone";
  }

  private background(job: Promise<unknown>, driver: DrivenCall): void {
    job.catch((error: unknown) =>
      this.context.log.error("dispatch_failed", { call_id: driver.callId, error: error instanceof Error ? error.message : String(error) }),
    );
  }
}
