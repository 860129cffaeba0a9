/**
 * When each session is pinged: sessions sit in slots of a ring that is gone round once in a ping interval.
 *
 * Invariants: slots are filled evenly, whenever sessions come, so that a thousand that connect in one turn are not pinged in one
 * turn for ever after; a loop that stood still makes pings late, and makes up for it in small steps, never in one turn, and never
 * for more than one round; a loop that is always late still goes round in one interval; there is one timer for all.
 */
import type { Clock } from "../domain/ports/clock.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** As fine as the timer wheel. */
const SLOT_MS = 20;
/** A timer is a little late often: so many slots are gone through in one turn without more ado. */
const SLOTS_A_TURN = 3;
/** Of more that are due, this share in one turn. */
const CATCH_UP_SHARE = 0.25;
/** Multiples of it, each less its whole part, lie as evenly as can be, wherever one stops. */
const GOLDEN = (Math.sqrt(5) - 1) / 2;

/** Where a member sits: for its removal. */
export type PingSlot = number;

export class PingRing<T> {
  private readonly slots: readonly Set<T>[];
  private task: TimerTask | undefined;
  private count = 0;
  private added = 0;
  private position = 0;
  /** Monotonic: when the ring was at `position`. */
  private positionAtMs = 0;

  /** `beat` is called for each member once in `intervalMs`, from its first slot on; it may remove members. */
  constructor(
    private readonly context: { readonly timers: TimerWheel; readonly clock: Pick<Clock, "monotonic">; readonly intervalMs: number },
    private readonly beat: (member: T) => void,
  ) {
    this.slots = Array.from({ length: Math.max(1, Math.round(context.intervalMs / SLOT_MS)) }, () => new Set<T>());
  }

  /** Members. */
  get size(): number {
    return this.count;
  }

  /** From now on `member` is pinged; for the first time within one interval. */
  add(member: T): PingSlot {
    const slot = Math.floor(((this.added * GOLDEN) % 1) * this.slots.length);
    this.added += 1;
    this.slots[slot]?.add(member);
    this.count += 1;
    if (this.task === undefined) {
      this.positionAtMs = this.context.clock.monotonic();
      this.turnLater();
    }
    return slot;
  }

  /** Idempotent. */
  remove(member: T, slot: PingSlot): void {
    if (this.slots[slot]?.delete(member) === true) {
      this.count -= 1;
    }
    if (this.count === 0) {
      this.task?.cancel();
      this.task = undefined;
    }
  }

  private get slotMs(): number {
    return this.context.intervalMs / this.slots.length;
  }

  private turnLater(): void {
    const delayMs = this.positionAtMs + this.slotMs - this.context.clock.monotonic();
    this.task = this.context.timers.after(Math.max(0, delayMs), () => this.turn());
  }

  private turn(): void {
    const now = this.context.clock.monotonic();
    const missed = Math.floor((now - this.positionAtMs) / this.slotMs);
    const due = Math.min(missed, this.slots.length);
    const steps = Math.min(due, Math.max(SLOTS_A_TURN, Math.ceil(due * CATCH_UP_SHARE)));
    this.positionAtMs += (missed - due + steps) * this.slotMs;
    for (let step = 0; step < steps; step += 1) {
      this.position = (this.position + 1) % this.slots.length;
      for (const member of this.slots[this.position] ?? []) {
        this.beat(member);
      }
    }
    if (this.count > 0) {
      this.turnLater();
    }
  }
}
