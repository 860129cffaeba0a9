/**
 * The sessions of this broker, found by what a call needs. Owns the choice of a runner and the reservation of its claim.
 *
 * Invariants: a session is offered only for its own application, binding and subject (I8); a reservation and a held grant
 * each take one slot, so a runner never gets more than it claimed; looking for a runner costs the same however many are
 * connected: who was found full is not looked at again before {@link SessionRegistry.freed} names it.
 */
import type { WaitingFor } from "../domain/call-view.js";
import { laneKey, laneKeyOf, placeKey, type Requirement } from "./requirement.js";
import { freeSlots, type Session, slotsInUse } from "./session.js";

/** A claim that is kept for one call until it is granted or released. */
export interface Reservation {
  readonly session: Session;
  /** Idempotent. */
  release(): void;
}

/** Sessions compared for one call: those that were not used for longest. More than one person's tabs. */
const COMPARED_MAX = 64;

/** The sessions that serve the same calls. */
interface SessionLane {
  /** The longest unused first. One that got full meanwhile is found out when it is looked at. */
  readonly free: Set<Session>;
  readonly full: Set<Session>;
}

export class SessionRegistry {
  /** By handler and subject: what one call could go to, however many others are connected. */
  private readonly byLane = new Map<string, SessionLane>();
  /** Those that are `full` in some lane. */
  private readonly parked = new Set<Session>();
  private readonly byRunner = new Map<string, Session>();
  /** By binding and subject. */
  private readonly byPlace = new Map<string, Set<Session>>();

  get all(): IterableIterator<Session> {
    return this.byRunner.values();
  }

  get size(): number {
    return this.byRunner.size;
  }

  add(session: Session): void {
    this.byRunner.set(runnerKey(session.ref), session);
    addTo(this.byPlace, placeOf(session), session);
    for (const key of session.handlers.keys()) {
      const lane = laneOf(key, session);
      const found = this.byLane.get(lane);
      if (found === undefined) {
        this.byLane.set(lane, { free: new Set([session]), full: new Set() });
      } else {
        found.free.add(session);
      }
    }
  }

  remove(session: Session): void {
    if (this.byRunner.get(runnerKey(session.ref)) === session) {
      this.byRunner.delete(runnerKey(session.ref));
    }
    removeFrom(this.byPlace, placeOf(session), session);
    this.parked.delete(session);
    for (const key of session.handlers.keys()) {
      const name = laneOf(key, session);
      const lane = this.byLane.get(name);
      lane?.free.delete(session);
      lane?.full.delete(session);
      if (lane?.free.size === 0 && lane.full.size === 0) {
        this.byLane.delete(name);
      }
    }
  }

  /** The session may have a free slot again, or may be asked again. Whoever makes it so has to say so. */
  freed(session: Session): void {
    if (!this.parked.delete(session)) {
      return;
    }
    for (const key of session.handlers.keys()) {
      const lane = this.byLane.get(laneOf(key, session));
      if (lane?.full.delete(session) === true) {
        lane.free.add(session);
      }
    }
  }

  /** The present session of a runner, whatever its epoch. */
  find(runner: { readonly application: string; readonly binding: string; readonly runnerId: string }): Session | undefined {
    return this.byRunner.get(runnerKey(runner));
  }

  /**
   * Reserves one slot of the best session: visible before unknown before hidden, focused before not, then least loaded, then longest unused.
   * `nowMs` is monotonic: a runner that just declined is left alone for a while.
   */
  reserve(requirement: Requirement, nowMs: number): Reservation | undefined {
    const lane = this.byLane.get(laneKeyOf(requirement));
    if (lane === undefined) {
      return undefined;
    }
    let best: Session | undefined;
    let compared = 0;
    for (const session of lane.free) {
      if (freeSlots(session) <= 0 || nowMs < session.leftAloneUntilMs) {
        lane.free.delete(session);
        lane.full.add(session);
        this.parked.add(session);
        continue;
      }
      if (!serves(session, requirement)) {
        continue;
      }
      if (best === undefined || compare(session, best) < 0) {
        best = session;
      }
      compared += 1;
      if (compared === COMPARED_MAX || (slotsInUse(best) === 0 && isBestSight(best))) {
        // Enough were looked at, or there is no better one.
        break;
      }
    }
    return best === undefined ? undefined : this.reservationOf(best, lane);
  }

  /** Reserves one slot of this very session; undefined: it has none, or does not serve such calls. */
  reserveOf(session: Session, requirement: Requirement): Reservation | undefined {
    const lane = this.byLane.get(laneKeyOf(requirement));
    return lane?.free.has(session) === true && freeSlots(session) > 0 && serves(session, requirement)
      ? this.reservationOf(session, lane)
      : undefined;
  }

  /** Why no session takes a call now. */
  whyNot(requirement: Requirement): WaitingFor {
    const { application, binding, subject } = requirement;
    if (!this.byPlace.has(placeKey(application, binding, subject))) {
      return "runner";
    }
    return this.byLane.has(laneKeyOf(requirement)) ? "capacity" : "handler";
  }

  private reservationOf(session: Session, { free }: SessionLane): Reservation {
    // To the end of the order: equals are used in turn.
    free.delete(session);
    free.add(session);
    let held = true;
    session.reserved += 1;
    return {
      session,
      release: () => {
        if (held) {
          held = false;
          session.reserved -= 1;
          this.freed(session);
        }
      },
    };
  }
}

/** X4, I8: off the backend only the call's own subject is served. */
export function serves(session: Session, requirement: Requirement): boolean {
  return session.bindingKind === "backend"
    ? requirement.subject === null
    : session.subject === requirement.subject && requirement.subject !== null;
}

/** Handlers of a backend serve calls of all subjects, those elsewhere only their session's. */
function laneOf(handler: string, session: Session): string {
  return laneKey(handler, servedSubject(session));
}

function placeOf(session: Session): string {
  return placeKey(session.ref.application, session.ref.binding, servedSubject(session));
}

function servedSubject(session: Session): string | null {
  return session.bindingKind === "backend" ? null : (session.subject ?? "");
}

/** No other session is preferred for how it is seen. */
function isBestSight(session: Session): boolean {
  return session.bindingKind === "backend" ? session.sight > 0 : session.sight === 2 && session.focused;
}

function compare(a: Session, b: Session): number {
  return b.sight - a.sight || Number(b.focused) - Number(a.focused) || slotsInUse(a) - slotsInUse(b);
}

function runnerKey(runner: { readonly application: string; readonly binding: string; readonly runnerId: string }): string {
  return `${runner.application}\n${runner.binding}\n${runner.runnerId}`;
}

function addTo(index: Map<string, Set<Session>>, key: string, session: Session): void {
  const found = index.get(key);
  if (found === undefined) {
    index.set(key, new Set([session]));
  } else {
    found.add(session);
  }
}

function removeFrom(index: Map<string, Set<Session>>, key: string, session: Session): void {
  const found = index.get(key);
  found?.delete(session);
  if (found?.size === 0) {
    index.delete(key);
  }
}
