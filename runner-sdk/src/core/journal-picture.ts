/** The picture that a journal's records make, with the rules of what is kept and for how long (J3). */
import { type Clock, systemClock } from "./clock.js";
import { FirstInFirstOut } from "./first-in-first-out.js";
import type { JournalEntry, JournalRecord, JournalView } from "./journal.js";
import type { Receipt } from "./messages.js";

/** How long acknowledged records are kept (G5). */
export const ACKNOWLEDGED_KEPT_MS = 24 * 3_600_000;
/** How many acknowledged records are kept, the newest ones. */
export const ACKNOWLEDGED_KEPT_MAX = 10_000;
/** How much payload acknowledged records may hold together; the newest is kept in any case. */
export const ACKNOWLEDGED_PAYLOAD_MAX = 16 * 1_048_576;
/** How long a start without an end is reported. */
export const OPEN_KEPT_MS = 7 * ACKNOWLEDGED_KEPT_MS;
/** How long a submitted call can be settled: as long as a tool may let it wait. */
export const SUBMITTED_KEPT_MS = 30 * ACKNOWLEDGED_KEPT_MS;

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** An entry, and where it stands among those that are over. */
class Kept implements Mutable<JournalEntry> {
  attempt = 0;
  tool = "";
  version = "";
  phase: JournalEntry["phase"] = "granted";
  refused = false;
  startedHere = false;
  startedAt = 0;
  receipt: Receipt | null = null;
  acknowledged = false;
  #queue: FirstInFirstOut<Kept> | null = null;
  #number = 0;

  constructor(
    readonly callId: string,
    readonly grantId: string,
    readonly fence: number,
    public at: number,
  ) {}

  /** In one queue at a time. */
  enter(queue: FirstInFirstOut<Kept>): void {
    this.#queue = queue;
    this.#number = queue.add(this);
  }

  /** The queue that it was in. */
  leave(): FirstInFirstOut<Kept> | null {
    const queue = this.#queue;
    queue?.remove(this.#number);
    this.#queue = null;
    return queue;
  }
}

/** Applies records and answers questions about them. Not durable by itself. */
export class JournalPicture implements JournalView {
  readonly #entries = new Map<string, Kept>();
  /** Nearly every call has one grant: that is kept without a list around it. */
  readonly #byCall = new Map<string, Kept | readonly Kept[]>();
  readonly #open = new Map<string, Kept>();
  /** In the order of their acknowledgement. */
  readonly #acknowledged = new FirstInFirstOut<Kept>();
  readonly #submitted = new FirstInFirstOut<Kept>();
  #payload = 0;
  #forgottenFence = 0;

  constructor(private readonly clock: Clock = systemClock) {}

  get(grantId: string): JournalEntry | undefined {
    return this.#entries.get(grantId);
  }

  ofCall(callId: string): readonly JournalEntry[] {
    const found = this.#byCall.get(callId);
    if (found === undefined) return NONE;
    return found instanceof Kept ? [found] : found;
  }

  unacknowledged(): Iterable<JournalEntry> {
    return this.#open.values();
  }

  refusedFence(callId: string): number | null {
    let newest: number | null = null;
    for (const entry of this.ofCall(callId)) if (entry.refused && (newest === null || entry.fence > newest)) newest = entry.fence;
    return newest;
  }

  get forgottenFence(): number {
    return this.#forgottenFence;
  }

  /** How many grants are known. */
  get size(): number {
    return this.#entries.size;
  }

  /** Everything that is kept, oldest first. */
  entries(): Iterable<JournalEntry> {
    return this.#entries.values();
  }

  /** Takes a record in. A record about a grant that was never seen, or is forgotten, changes nothing but for `granted`, `refused` and `finished`. */
  apply(record: JournalRecord): void {
    switch (record.kind) {
      case "granted": {
        if (this.#entries.has(record.grantId)) break;
        const entry = this.#add(new Kept(record.callId, record.grantId, record.fence, record.at));
        entry.attempt = record.attempt;
        entry.tool = record.tool;
        entry.version = record.version;
        break;
      }
      case "started": {
        const entry = this.#entries.get(record.grantId);
        if (entry === undefined || entry.phase === "finished") return;
        this.#reopen(entry);
        entry.phase = "started";
        entry.startedHere = true;
        entry.startedAt = record.at;
        entry.at = record.at;
        break;
      }
      case "finished": {
        const { receipt, at } = record;
        let entry = this.#entries.get(receipt.grantId);
        if (entry === undefined) {
          entry = this.#add(new Kept(receipt.callId, receipt.grantId, receipt.fence, at));
          entry.attempt = receipt.attempt;
        }
        this.#reopen(entry);
        entry.phase = "finished";
        entry.receipt = receipt;
        entry.at = at;
        break;
      }
      case "refused": {
        let entry = this.#entries.get(record.grantId);
        if (entry === undefined) {
          entry = this.#add(new Kept(record.callId, record.grantId, record.fence, record.at));
          // It may have begun, and its records were dropped.
          if (!record.neverStarted) entry.phase = "started";
        }
        entry.refused = true;
        if (record.neverStarted && entry.phase === "started") {
          entry.phase = "granted";
          entry.startedAt = 0;
        }
        if (entry.phase !== "finished") entry.at = record.at;
        break;
      }
      case "acknowledged": {
        const entry = this.#entries.get(record.grantId);
        if (entry === undefined || entry.acknowledged) return;
        entry.acknowledged = true;
        entry.at = record.at;
        this.#open.delete(entry.grantId);
        if (entry.receipt?.outcome.kind === "submitted") entry.enter(this.#submitted);
        else {
          entry.enter(this.#acknowledged);
          this.#payload += payloadOf(entry);
        }
        this.prune();
        break;
      }
    }
  }

  /** Puts an entry back as it was stored. */
  restore(entry: JournalEntry): void {
    const { callId, grantId, fence, at, ...known } = entry;
    Object.assign(this.#add(new Kept(callId, grantId, fence, at)), known, { acknowledged: false });
    if (entry.acknowledged) {
      this.apply({ kind: "acknowledged", grantId: entry.grantId, at: entry.at });
    }
  }

  /** Drops what need not be kept any longer. */
  prune(): void {
    const now = this.clock.now();
    for (let entry = this.#acknowledged.oldest; entry !== undefined; entry = this.#acknowledged.oldest) {
      const tooMany =
        this.#acknowledged.size > ACKNOWLEDGED_KEPT_MAX || (this.#payload > ACKNOWLEDGED_PAYLOAD_MAX && this.#acknowledged.size > 1);
      if (!tooMany && now - entry.at < ACKNOWLEDGED_KEPT_MS) break;
      this.#forget(entry);
    }
    for (let entry = this.#submitted.oldest; entry !== undefined; entry = this.#submitted.oldest) {
      if (now - entry.at < SUBMITTED_KEPT_MS) break;
      this.#forget(entry);
    }
  }

  /** The same picture for a later process: what had started there has an unknown outcome here, and what is overdue is dropped. */
  reopened(clock: Clock): JournalPicture {
    const next = new JournalPicture(clock);
    next.#forgottenFence = this.#forgottenFence;
    for (const entry of this.#entries.values()) {
      const overdue = entry.phase === "started" && clock.now() - entry.at >= OPEN_KEPT_MS;
      if (!overdue) next.restore({ ...entry, startedHere: false });
    }
    next.prune();
    return next;
  }

  #add(entry: Kept): Kept {
    this.#entries.set(entry.grantId, entry);
    this.#open.set(entry.grantId, entry);
    const siblings = this.#byCall.get(entry.callId);
    if (siblings === undefined) this.#byCall.set(entry.callId, entry);
    else this.#byCall.set(entry.callId, siblings instanceof Kept ? [siblings, entry] : [...siblings, entry]);
    return entry;
  }

  /** What is new about a grant is not acknowledged yet. */
  #reopen(entry: Kept): void {
    if (!entry.acknowledged) return;
    this.#close(entry);
    entry.acknowledged = false;
    this.#open.set(entry.grantId, entry);
  }

  /** Takes an entry out of the lists of what is over. */
  #close(entry: Kept): void {
    if (entry.leave() === this.#acknowledged) this.#payload -= payloadOf(entry);
  }

  #forget(entry: Kept): void {
    this.#close(entry);
    if (entry.phase !== "granted") this.#forgottenFence = Math.max(this.#forgottenFence, entry.fence);
    this.#entries.delete(entry.grantId);
    const siblings = this.#byCall.get(entry.callId);
    if (siblings === undefined || siblings instanceof Kept) this.#byCall.delete(entry.callId);
    else {
      const left = siblings.filter((other) => other !== entry);
      this.#byCall.set(entry.callId, left.length === 1 ? (left[0] as Kept) : left);
    }
  }
}

const NONE: readonly JournalEntry[] = [];

function payloadOf(entry: JournalEntry): number {
  const outcome = entry.receipt?.outcome;
  if (outcome?.kind === "succeeded") return outcome.resultJson.length;
  if (outcome?.kind === "submitted") return outcome.handleJson.length;
  return 0;
}
