/**
 * What a ledger appended itself, kept for its own tails: an entry whose writer is here need not come back from the store.
 *
 * Invariants:
 * - What is handed out was acknowledged, under the version that the store gave it.
 * - Only entries with a note are kept, never their data. At most {@link OWN_ENTRIES_MAX} wait for one tail: what is not kept,
 *   for want of a note or of room, is a gap, and is read from the store like an entry of another broker.
 * - A tail gets each version at most once, whether it comes from here or from the store.
 */
import type { NewEntry, TailedEntry, Version } from "../domain/ports/ledger.js";

/** Entries that wait for one tail, at most: some ten megabytes. */
export const OWN_ENTRIES_MAX = 65_536;

/** The ledger's side: who follows, and what is new. */
export class OwnEntries {
  readonly #tails = new Set<OwnTail>();

  /** From now on, keeps what is appended for a tail that begins at `from`. It has to be ended. */
  follow(from: Version): OwnTail {
    const tail = new OwnTail(from, () => this.#tails.delete(tail));
    this.#tails.add(tail);
    return tail;
  }

  /** `entry` is stored as `version`, on top of `previous`. */
  stored(callId: string, version: Version, previous: Version, { entryId, note }: Pick<NewEntry, "entryId" | "note">): void {
    if (note === undefined || this.#tails.size === 0) return;
    const entry: TailedEntry = { callId, version, previous, entryId, note, data: undefined };
    for (const tail of this.#tails) tail.keep(entry);
  }
}

/** One tail's side: its place, and what waits for it. */
export class OwnTail {
  readonly #kept = new Map<Version, TailedEntry>();
  readonly #ended: () => void;
  #next: Version;

  /** Made by {@link OwnEntries.follow}. */
  constructor(from: Version, ended: () => void) {
    this.#next = Math.max(1, from);
    this.#ended = ended;
  }

  /** The version that the tail wants next. */
  get next(): Version {
    return this.#next;
  }

  /** Is the next version here? */
  get hasNext(): boolean {
    return this.#kept.has(this.#next);
  }

  /** Entries that wait. */
  get size(): number {
    return this.#kept.size;
  }

  keep(entry: TailedEntry): void {
    if (entry.version >= this.#next && this.#kept.size < OWN_ENTRIES_MAX) this.#kept.set(entry.version, entry);
  }

  /** The next entry, if it is here; the tail then wants the one after it. */
  take(): TailedEntry | undefined {
    const entry = this.#kept.get(this.#next);
    if (entry !== undefined) {
      this.#kept.delete(this.#next);
      this.#next += 1;
    }
    return entry;
  }

  /** All up to `version` came from the store, or is not stored at all. */
  passed(version: Version): void {
    if (version < this.#next) return;
    if (this.#kept.size > 0) {
      // Usually one entry was passed; after a leap it is cheaper to look through what is kept.
      if (version - this.#next < this.#kept.size) for (let each = this.#next; each <= version; each += 1) this.#kept.delete(each);
      else for (const each of this.#kept.keys()) if (each <= version) this.#kept.delete(each);
    }
    this.#next = version + 1;
  }

  end(): void {
    this.#kept.clear();
    this.#ended();
  }
}
