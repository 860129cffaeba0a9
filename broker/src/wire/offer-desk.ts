/**
 * Answers the offers of other brokers with claims of runners that are connected here.
 *
 * Invariants: an answer reserves its claim for a moment, and takes one grant within half a lease, counted by this broker's own
 * clock from its answer on: a grant that comes without an answer, or too late, is never sent, so that no grant outlives its
 * lease in a buffer or in a broker that stood still (G1, G3); one call is answered once at a time, and a claim that another
 * broker's answer made needless is free again at once.
 */
import type { Bus, Subscription } from "../domain/ports/bus.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Offer, OfferAnswer, OfferTaken } from "./commands.js";
import type { Figures } from "./figures.js";
import { holderOf } from "./grant-holder.js";
import { handlerKeyOf, handlerToken } from "./requirement.js";
import { freeSlots, type Session, slotsInUse } from "./session.js";
import type { Reservation, SessionRegistry } from "./session-registry.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** An answered offer that a grant takes up. */
export interface Claim {
  readonly session: Session;
  /** The newest ping answer at the time of the claim: the runner counts the grant's lease from there. */
  readonly pongNumber: number;
  /** Gives the slot back, if it is still reserved. */
  release(): void;
}

interface Answered {
  readonly offerId: string;
  readonly callId: string;
  readonly session: Session;
  readonly pongNumber: number;
  reservation: Reservation | undefined;
  task: TimerTask;
}

export class OfferDesk {
  private readonly answered = new Map<string, Answered>();
  private readonly byCall = new Map<string, Answered>();
  private readonly subscriptions = new Map<string, { readonly sessions: Set<Session>; readonly subscription: Subscription }>();
  private taken: Subscription | undefined;
  private own: Subscription | undefined;
  private stopped = false;

  constructor(
    private readonly context: {
      readonly brokerId: string;
      readonly bus: Bus;
      readonly clock: Clock;
      readonly ids: IdSource;
      readonly figures: Figures;
      readonly timers: TimerWheel;
      readonly registry: SessionRegistry;
      /** `session` has a slot again that was reserved and that nobody came for. `wasFull`: it had none. */
      readonly freed: (session: Session, wasFull: boolean) => void;
    },
  ) {}

  start(): void {
    const { bus, brokerId } = this.context;
    this.own = bus.respond(`broker.${brokerId}.offer`, async (payload) => this.answer(payload) ?? "null");
    this.taken = bus.subscribe("taken", (payload) => {
      const { callId, offerId } = JSON.parse(payload) as OfferTaken;
      const answered = this.byCall.get(callId);
      if (answered !== undefined && answered.offerId !== offerId) {
        this.forget(answered);
        this.release(answered);
      }
    });
  }

  /** Answers that were not taken up. */
  get size(): number {
    return this.answered.size;
  }

  stop(): void {
    this.stopped = true;
    this.taken?.unsubscribe();
    this.own?.unsubscribe();
    for (const { subscription } of this.subscriptions.values()) {
      subscription.unsubscribe();
    }
    this.subscriptions.clear();
    for (const { task } of this.answered.values()) {
      task.cancel();
    }
    this.answered.clear();
    this.byCall.clear();
  }

  /** From now on offers are answered for the handlers of `session`. Idempotent. */
  sessionAdded(session: Session): void {
    for (const key of session.handlers.keys()) {
      const held = this.subscriptions.get(key);
      if (held !== undefined) {
        held.sessions.add(session);
        continue;
      }
      const subscription = this.context.bus.respond(`offer.${handlerToken(key)}`, async (payload) => this.answer(payload));
      this.subscriptions.set(key, { sessions: new Set([session]), subscription });
    }
  }

  /** Idempotent. */
  sessionRemoved(session: Session): void {
    for (const key of session.handlers.keys()) {
      const held = this.subscriptions.get(key);
      if (held?.sessions.delete(session) === true && held.sessions.size === 0) {
        held.subscription.unsubscribe();
        this.subscriptions.delete(key);
      }
    }
  }

  /** Takes the answer up, once; undefined: it is too late, or there was none, and a grant must not be sent for it. */
  take(offerId: string, callId: string): Claim | undefined {
    const found = this.answered.get(offerId);
    if (found === undefined || found.callId !== callId) {
      return undefined;
    }
    this.forget(found);
    const { session, pongNumber, reservation } = found;
    if (reservation === undefined && freeSlots(session) <= 0) {
      // The slot went to another call meanwhile: a runner gets no more than it claimed.
      return undefined;
    }
    return { session, pongNumber, release: () => reservation?.release() };
  }

  private answer(payload: string): string | undefined {
    const { brokerId, clock, ids, figures, timers, registry } = this.context;
    const { callId, requirement } = JSON.parse(payload) as Offer;
    if (this.stopped || this.byCall.get(callId)?.reservation !== undefined) {
      return undefined;
    }
    const reservation = registry.reserve(requirement, clock.monotonic());
    if (reservation === undefined) {
      return undefined;
    }
    const { session } = reservation;
    const answered: Answered = {
      offerId: ids.next("offer"),
      callId,
      session,
      pongNumber: session.pongNumber,
      reservation,
      task: timers.after(figures.reservationMs, () => this.unreserve(answered)),
    };
    this.answered.set(answered.offerId, answered);
    this.byCall.set(callId, answered);
    const answer: OfferAnswer = {
      offerId: answered.offerId,
      holder: holderOf(session, handlerKeyOf(requirement), brokerId),
      session: session.ref,
      sight: session.sight,
      focused: session.focused,
      load: slotsInUse(session),
    };
    return JSON.stringify(answer);
  }

  /** Nobody came for the slot in time. Who comes a little later may still find one. */
  private unreserve(answered: Answered): void {
    const { figures, timers } = this.context;
    answered.task = timers.after(Math.max(0, figures.leaseMs / 2 - figures.reservationMs), () => this.forget(answered));
    this.release(answered);
  }

  private release(answered: Answered): void {
    const { session, reservation } = answered;
    if (reservation !== undefined) {
      const wasFull = freeSlots(session) <= 0;
      answered.reservation = undefined;
      reservation.release();
      this.context.freed(session, wasFull);
    }
  }

  private forget(answered: Answered): void {
    answered.task.cancel();
    this.answered.delete(answered.offerId);
    if (this.byCall.get(answered.callId) === answered) {
      this.byCall.delete(answered.callId);
    }
  }
}
