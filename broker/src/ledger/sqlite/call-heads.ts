/**
 * Where each call's chain of entries ends, and whether the call is open: the SQLite ledger's index of calls.
 *
 * Call ids come in no order. An index of them that is written with every entry touches a page of its own for each, and the more
 * calls are stored the less those pages are shared. So the index is written late and in the order of the ids: calls that moved are
 * kept in memory, and when there are enough of them, they are written slice by slice in the transactions of later entries.
 *
 * Invariants:
 * - The entries are the truth. The table has the heads as of `folded` at least; each call that moved after is in memory, and what
 *   memory says of a call comes first. At the start memory is made from the entries after `folded`.
 * - `folded` moves in the transaction of the last slice. A broker that was killed between slices finds heads in the table that are
 *   newer than `folded`, and reads the same ones from the entries.
 * - A transaction that fails ends the process (L8), so memory is never ahead of what is stored.
 */
import type Database from "better-sqlite3";
import type { Version } from "../../domain/ports/ledger.js";

/** Calls that are gathered before they are written: some two megabytes, and read again in a moment after a crash. */
const GATHERED_CALLS = 8_192;
/** Calls that are written for each call that moves, so that a round is over long before the next one is due. */
const FOLDED_PER_MOVE = 2;
/** Calls of one page of open ones, without those that are in memory only. */
const PAGE_CALLS = 1_000;

/** Tables of the heads; of schema 2. */
export const HEADS_SCHEMA = `
  CREATE TABLE calls (call_id TEXT PRIMARY KEY, last INTEGER NOT NULL, open INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  CREATE INDEX open_calls ON calls (call_id) WHERE open = 1;
  CREATE TABLE heads (one INTEGER PRIMARY KEY CHECK (one = 1), folded INTEGER NOT NULL) STRICT;
  INSERT INTO heads VALUES (1, 0);
`;

/** What an entry does to its call's place among the open ones; stored with the entry. */
export const NONE = 0;
export const OPENS = 1;
export const SETTLES = 2;

/** A head in one number: the version, and in the lowest bit whether the call is open. */
type Head = number;

const NO_HEAD: Head = 0;
const headOf = (version: Version, open: boolean): Head => version * 2 + (open ? 1 : 0);
const versionOf = (head: Head): Version => Math.floor(head / 2);
const isOpen = (head: Head): boolean => head % 2 === 1;
const inOrder = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** See the module's header. All methods throw what SQLite throws. */
export class CallHeads {
  readonly #stored: Database.Statement<[string], Head>;
  readonly #put: Database.Statement<[string, Version, number]>;
  readonly #delete: Database.Statement<[string]>;
  readonly #setFolded: Database.Statement<[Version]>;
  readonly #openAfter: Database.Statement<[string], string>;
  #gathered = new Map<string, Head>();
  /** What is being written, in the order of ids from `#at` on; later moves of the same calls are gathered anew. */
  #folding = new Map<string, Head>();
  #order: readonly string[] = [];
  #at = 0;
  /** Where the table stands when `#folding` is written. */
  #foldingTo: Version = 0;

  readonly #gatheredCalls: number;

  /** Reads the entries that are not in the table yet. `gatheredCalls`: how many calls are gathered before they are written. */
  constructor(database: Database.Database, gatheredCalls = GATHERED_CALLS) {
    this.#gatheredCalls = gatheredCalls;
    this.#stored = database.prepare<[string], Head>("SELECT last * 2 + open FROM calls WHERE call_id = ?").pluck();
    this.#put = database.prepare("INSERT OR REPLACE INTO calls (call_id, last, open) VALUES (?, ?, ?)");
    this.#delete = database.prepare("DELETE FROM calls WHERE call_id = ?");
    this.#setFolded = database.prepare("UPDATE heads SET folded = ?");
    this.#openAfter = database
      .prepare<[string], string>(
        `SELECT call_id FROM calls INDEXED BY open_calls WHERE open = 1 AND call_id > ? ORDER BY call_id LIMIT ${PAGE_CALLS + 1}`,
      )
      .pluck();
    const folded = database.prepare<[], Version>("SELECT folded FROM heads").pluck().get() ?? 0;
    const moves = database
      .prepare<[Version], [string, Version, number]>(
        `SELECT call_id, version, mark FROM entries WHERE version > ? ORDER BY version LIMIT ${PAGE_CALLS}`,
      )
      .raw();
    for (let rows = moves.all(folded); rows.length > 0; rows = moves.all(rows.at(-1)?.[1] ?? 0)) {
      for (const [callId, version, mark] of rows) {
        this.moved(callId, version, mark);
      }
    }
  }

  /** Calls in memory. */
  get inMemory(): number {
    return this.#gathered.size + this.#folding.size;
  }

  /** The call's last version; 0 for none. */
  last(callId: string): Version {
    return versionOf(this.#head(callId));
  }

  /** An entry of the call is stored. */
  moved(callId: string, version: Version, mark: number): void {
    const open = mark === OPENS || (mark === NONE && isOpen(this.#head(callId)));
    this.#gathered.set(callId, headOf(version, open));
  }

  /**
   * The newest entries of a settled call were removed, in this transaction; `version` is the last one that is left, 0: none. Written at once: the
   * entries from which memory is made after a crash say nothing of what is gone.
   */
  removed(callId: string, version: Version): void {
    const head = version === 0 ? NO_HEAD : headOf(version, false);
    if (this.#folding.has(callId)) this.#folding.set(callId, head);
    this.#gathered.delete(callId);
    this.#write(callId, head);
  }

  /** Writes the next slice, after `moves` calls moved up to `latest`. In the transaction that stores their entries. */
  fold(moves: number, latest: Version): void {
    if (this.#order.length === 0) {
      if (this.#gathered.size < this.#gatheredCalls) return;
      this.#folding = this.#gathered;
      this.#order = [...this.#gathered.keys()].sort(inOrder);
      this.#at = 0;
      this.#foldingTo = latest;
      this.#gathered = new Map();
    }
    const end = Math.min(this.#order.length, this.#at + moves * FOLDED_PER_MOVE);
    for (; this.#at < end; this.#at += 1) {
      const callId = this.#order[this.#at] as string;
      this.#write(callId, this.#folding.get(callId) ?? NO_HEAD);
    }
    if (end < this.#order.length) return;
    this.#setFolded.run(this.#foldingTo);
    this.#folding = new Map();
    this.#order = [];
  }

  /** Open calls in the order of their ids. `more`: some may come after the last one. */
  openAfter(callId: string): { readonly callIds: readonly string[]; readonly more: boolean } {
    const stored = this.#openAfter.all(callId);
    const more = stored.length > PAGE_CALLS;
    if (more) stored.pop();
    const end = more ? stored.at(-1) : undefined;
    const found = new Set(stored.filter((each) => isOpen(this.#head(each))));
    for (const moved of [this.#folding, this.#gathered]) {
      for (const each of moved.keys()) {
        if (each > callId && (end === undefined || each <= end) && isOpen(this.#head(each))) found.add(each);
      }
    }
    return { callIds: [...found].sort(inOrder), more };
  }

  #write(callId: string, head: Head): void {
    if (head === NO_HEAD) this.#delete.run(callId);
    else this.#put.run(callId, versionOf(head), isOpen(head) ? 1 : 0);
  }

  #head(callId: string): Head {
    return this.#gathered.get(callId) ?? this.#folding.get(callId) ?? this.#stored.get(callId) ?? NO_HEAD;
  }
}
