/**
 * A lease as the runner counts it (G3): from when the runner sent the newest answer that the broker is known to have, by the
 * clock that advanced more. So it ends before the broker's own count does, on frozen tabs and jumping clocks too.
 */
import { betweenMs, type Instant } from "./clock.js";

/** One grant's lease. */
export class Lease {
  #from: Instant;
  constructor(
    from: Instant,
    readonly lengthMs: number,
  ) {
    this.#from = from;
  }

  /** What is left at that moment, in ms; 0 or less when it is over. */
  leftMs(now: Instant): number {
    return this.lengthMs - betweenMs(this.#from, now);
  }

  /** Counts from `sentAt` when that is later than before. */
  renew(sentAt: Instant): void {
    if (sentAt.monotonicMs > this.#from.monotonicMs) this.#from = sentAt;
  }
}

/** How many answers are remembered; a broker that names an older one gets its grant declined. */
const ANSWERS_KEPT = 256;

/** When each answer of one session was sent: number 0 is the hello, the others are pongs. */
export class AnswerTimes {
  readonly #sent = new Map<number, Instant>();

  /** A number that was used before keeps its earlier time: nothing is counted too late. */
  record(number: number, at: Instant): void {
    if (this.#sent.has(number)) return;
    this.#sent.set(number, at);
    if (this.#sent.size <= ANSWERS_KEPT) return;
    const oldest = this.#sent.keys().next();
    if (!oldest.done) this.#sent.delete(oldest.value);
  }

  /** Null for an answer that was not sent in this session, or is too long ago. */
  of(number: number): Instant | null {
    return this.#sent.get(number) ?? null;
  }
}
