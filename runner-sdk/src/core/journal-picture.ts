/** The picture that a journal's records make, with the rules of what is kept and for how long (J3). */
import { type Clock, systemClock } from "./clock.js";
import type { JournalEntry, JournalRecord, JournalView } from "./journal.js";

/** How long acknowledged records are kept (G5). */
export const ACKNOWLEDGED_KEPT_MS = 24 * 3_600_000;
/** How many acknowledged records are kept, the newest ones. */
export const ACKNOWLEDGED_KEPT_MAX = 10_000;
/** How much payload acknowledged records may hold together. */
export const ACKNOWLEDGED_PAYLOAD_MAX = 16 * 1_048_576;
/** How long a submitted call can be settled, and a start without an end is reported. */
export const OPEN_KEPT_MS = 7 * ACKNOWLEDGED_KEPT_MS;

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Applies records and answers questions about them. Not durable by itself. */
export class JournalPicture implements JournalView {
  readonly #entries = new Map<string, Mutable<JournalEntry>>();
  readonly #byCall = new Map<string, Mutable<JournalEntry>[]>();
  readonly #open = new Map<string, Mutable<JournalEntry>>();
  /** In the order of their acknowledgement. */
  readonly #acknowledged = new Map<string, Mutable<JournalEntry>>();
  readonly #submitted = new Map<string, Mutable<JournalEntry>>();
  #payload = 0;

  constructor(private readonly clock: Clock = systemClock) {}

  get(grantId: string): JournalEntry | undefined {
    return this.#entries.get(grantId);
  }

  ofCall(callId: string): readonly JournalEntry[] {
    return this.#byCall.get(callId) ?? [];
  }

  unacknowledged(): Iterable<JournalEntry> {
    return this.#open.values();
  }

  refusedFence(callId: string): number | null {
    let newest: number | null = null;
    for (const entry of this.ofCall(callId)) if (entry.refused && (newest === null || entry.fence > newest)) newest = entry.fence;
    return newest;
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
      case "granted":
        if (!this.#entries.has(record.grantId))
          this.#add({ ...blank(record), attempt: record.attempt, tool: record.tool, version: record.version });
        break;
      case "started": {
        const entry = this.#entries.get(record.grantId);
        if (entry === undefined || entry.phase === "finished") return;
        this.#reopen(entry);
        Object.assign(entry, { phase: "started", startedHere: true, startedAt: record.at, at: record.at });
        break;
      }
      case "finished": {
        const entry =
          this.#entries.get(record.receipt.grantId) ??
          this.#add({ ...blank({ ...record.receipt, at: record.at }), attempt: record.receipt.attempt });
        this.#reopen(entry);
        Object.assign(entry, { phase: "finished", receipt: record.receipt, at: record.at });
        break;
      }
      case "refused": {
        const entry = this.#entries.get(record.grantId) ?? this.#add(blank(record));
        entry.refused = true;
        if (record.neverStarted && entry.phase === "started") Object.assign(entry, { phase: "granted", startedAt: 0 });
        if (entry.phase !== "finished") entry.at = record.at;
        break;
      }
      case "acknowledged": {
        const entry = this.#entries.get(record.grantId);
        if (entry === undefined || entry.acknowledged) return;
        entry.acknowledged = true;
        entry.at = record.at;
        this.#open.delete(entry.grantId);
        if (entry.receipt?.outcome.kind === "submitted") this.#submitted.set(entry.grantId, entry);
        else {
          this.#acknowledged.set(entry.grantId, entry);
          this.#payload += payloadOf(entry);
        }
        this.prune();
        break;
      }
    }
  }

  /** Puts an entry back as it was stored. */
  restore(entry: JournalEntry): void {
    this.#add({ ...entry, acknowledged: false });
    if (entry.acknowledged) {
      this.apply({ kind: "acknowledged", grantId: entry.grantId, at: entry.at });
    }
  }

  /** Drops what need not be kept any longer. */
  prune(): void {
    const now = this.clock.now();
    for (const entry of this.#acknowledged.values()) {
      const tooMany = this.#acknowledged.size > ACKNOWLEDGED_KEPT_MAX || this.#payload > ACKNOWLEDGED_PAYLOAD_MAX;
      if (!tooMany && now - entry.at < ACKNOWLEDGED_KEPT_MS) break;
      this.#forget(entry);
    }
    for (const entry of this.#submitted.values()) {
      if (now - entry.at < OPEN_KEPT_MS) break;
      this.#forget(entry);
    }
  }

  /** The same picture for a later process: what had started there has an unknown outcome here, and what is overdue is dropped. */
  reopened(clock: Clock): JournalPicture {
    const next = new JournalPicture(clock);
    for (const entry of this.#entries.values()) {
      const overdue = entry.phase === "started" && clock.now() - entry.at >= OPEN_KEPT_MS;
      if (!overdue) next.restore({ ...entry, startedHere: false });
    }
    next.prune();
    return next;
  }

  #add(entry: Mutable<JournalEntry>): Mutable<JournalEntry> {
    this.#entries.set(entry.grantId, entry);
    this.#open.set(entry.grantId, entry);
    const siblings = this.#byCall.get(entry.callId);
    if (siblings === undefined) this.#byCall.set(entry.callId, [entry]);
    else siblings.push(entry);
    return entry;
  }

  /** What is new about a grant is not acknowledged yet. */
  #reopen(entry: Mutable<JournalEntry>): void {
    this.#close(entry);
    entry.acknowledged = false;
    this.#open.set(entry.grantId, entry);
  }

  /** Takes an entry out of the lists of what is over. */
  #close(entry: Mutable<JournalEntry>): void {
    if (this.#acknowledged.delete(entry.grantId)) this.#payload -= payloadOf(entry);
    this.#submitted.delete(entry.grantId);
  }

  #forget(entry: Mutable<JournalEntry>): void {
    this.#close(entry);
    this.#entries.delete(entry.grantId);
    const left = this.#byCall.get(entry.callId)?.filter((other) => other !== entry) ?? [];
    if (left.length === 0) this.#byCall.delete(entry.callId);
    else this.#byCall.set(entry.callId, left);
  }
}

function blank(record: { callId: string; grantId: string; fence: number; at: number }): Mutable<JournalEntry> {
  return {
    callId: record.callId,
    grantId: record.grantId,
    fence: record.fence,
    attempt: 0,
    tool: "",
    version: "",
    phase: "granted",
    refused: false,
    startedHere: false,
    startedAt: 0,
    receipt: null,
    acknowledged: false,
    at: record.at,
  };
}

function payloadOf(entry: JournalEntry): number {
  const outcome = entry.receipt?.outcome;
  if (outcome?.kind === "succeeded") return outcome.resultJson.length;
  if (outcome?.kind === "submitted") return outcome.handleJson.length;
  return 0;
}
