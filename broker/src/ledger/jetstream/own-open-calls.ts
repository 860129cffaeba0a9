/**
 * The calls that this ledger opened and that only a scan would find: no marker, not settled.
 *
 * Invariant (L4): every call that this ledger opened, or may yet learn that it opened, and that has neither an acknowledged marker
 * nor a settling entry, has a version of at least `scanFrom`.
 */
import type { Version } from "../../domain/ports/ledger.js";

/** An opening append whose outcome is not known. */
export interface PendingOpening {
  /** Its version, when it gets one, is higher than this. */
  floor: Version;
}

interface OpenCallState {
  readonly version: Version;
  readonly openedAt: number;
  /** A marker is being put. */
  marking: boolean;
}

/** Small: it forgets a call when it settles or has its marker. */
export class OwnOpenCalls {
  /** In the order of sending, so that the first has the lowest floor. */
  readonly #pending = new Set<PendingOpening>();
  readonly #calls = new Map<string, OpenCallState>();
  #newest: Version;

  constructor(newest: Version) {
    this.#newest = newest;
  }

  /** Calls that only a scan would find. */
  get size(): number {
    return this.#calls.size + this.#pending.size;
  }

  /** Notes that a version was stored: what is sent from now on gets a higher one. */
  stored(version: Version): void {
    if (version > this.#newest) this.#newest = version;
  }

  /** The newest version that was heard of. */
  get newest(): Version {
    return this.#newest;
  }

  /** Starts anew from `newest`: the server lost what was after it, and gives those versions out again. */
  rolledBack(newest: Version): void {
    this.#newest = newest;
    for (const opening of this.#pending) opening.floor = Math.min(opening.floor, newest);
  }

  sent(): PendingOpening {
    const opening: PendingOpening = { floor: this.#newest };
    this.#pending.add(opening);
    return opening;
  }

  opened(opening: PendingOpening, callId: string, version: Version, now: number): void {
    this.#pending.delete(opening);
    this.#calls.set(callId, { version, openedAt: now, marking: false });
  }

  /** It was stored by nobody, or by another. */
  notOpened(opening: PendingOpening): void {
    this.#pending.delete(opening);
  }

  /** Whether only a scan would have found the call: then it has no marker to remove. */
  settled(callId: string): boolean {
    const call = this.#calls.get(callId);
    if (call === undefined) return false;
    this.#calls.delete(callId);
    return !call.marking;
  }

  /** Calls opened at `before` or earlier whose marker is to be put now, at most `max`. */
  takeUnmarked(before: number, max: number): string[] {
    const taken: string[] = [];
    for (const [callId, call] of this.#calls) {
      if (taken.length === max || call.openedAt > before) break;
      if (call.marking) continue;
      call.marking = true;
      taken.push(callId);
    }
    return taken;
  }

  /** The call's marker is acknowledged. `false`: it settled meanwhile, and the marker must go again. */
  marked(callId: string): boolean {
    return this.#calls.delete(callId);
  }

  get scanFrom(): Version {
    let lowest = this.#newest + 1;
    const [first] = this.#pending;
    if (first !== undefined) lowest = Math.min(lowest, first.floor + 1);
    for (const { version } of this.#calls.values()) lowest = Math.min(lowest, version);
    return lowest;
  }
}
