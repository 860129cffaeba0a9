/**
 * The sessions of this broker, found by what a call needs. Owns the choice of a runner and the reservation of its claim.
 *
 * Invariants: a session is offered only for its own application, binding and subject (I8); a reservation and a held grant
 * each take one slot, so a runner never gets more than it claimed.
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

export class SessionRegistry {
  /** By handler and subject: what one call could go to, however many others are connected. */
  private readonly byLane = new Map<string, Set<Session>>();
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
      addTo(this.byLane, laneOf(key, session), session);
    }
  }

  remove(session: Session): void {
    if (this.byRunner.get(runnerKey(session.ref)) === session) {
      this.byRunner.delete(runnerKey(session.ref));
    }
    removeFrom(this.byPlace, placeOf(session), session);
    for (const key of session.handlers.keys()) {
      removeFrom(this.byLane, laneOf(key, session), session);
    }
  }

  /** The present session of a runner, whatever its epoch. */
  find(runner: { readonly application: string; readonly binding: string; readonly runnerId: string }): Session | undefined {
    return this.byRunner.get(runnerKey(runner));
  }

  /**
   * Reserves one slot of the best session: visible before hidden, focused before not, then least loaded, then longest unused.
   * `nowMs` is monotonic: a runner that just declined is left alone for a while.
   */
  reserve(requirement: Requirement, nowMs: number): Reservation | undefined {
    const candidates = this.byLane.get(laneKeyOf(requirement));
    if (candidates === undefined) {
      return undefined;
    }
    let best: Session | undefined;
    for (const session of candidates) {
      if (!serves(session, requirement) || freeSlots(session) <= 0 || nowMs < session.leftAloneUntilMs) {
        continue;
      }
      if (best === undefined || compare(session, best) < 0) {
        best = session;
      }
      if (slotsInUse(best) === 0 && best.visible && (best.focused || best.bindingKind === "backend")) {
        // There is no better one.
        break;
      }
    }
    if (best === undefined) {
      return undefined;
    }
    // To the end of the order: equals are used in turn.
    candidates.delete(best);
    candidates.add(best);
    return reservationOf(best);
  }

  /** Why no session takes a call now. */
  whyNot(requirement: Requirement): WaitingFor {
    const { application, binding, subject } = requirement;
    if (!this.byPlace.has(placeKey(application, binding, subject))) {
      return "runner";
    }
    return this.byLane.has(laneKeyOf(requirement)) ? "capacity" : "handler";
  }
}

function reservationOf(session: Session): Reservation {
  let held = true;
  session.reserved += 1;
  return {
    session,
    release() {
      if (held) {
        held = false;
        session.reserved -= 1;
      }
    },
  };
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

function compare(a: Session, b: Session): number {
  return Number(b.visible) - Number(a.visible) || Number(b.focused) - Number(a.focused) || slotsInUse(a) - slotsInUse(b);
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
