/**
 * A journal in IndexedDB that this page holds: records one by one, group commit, no rewriting while all is well.
 *
 * Invariants:
 * - I1 What `append` resolved for is in a committed transaction of strict durability.
 * - I2 Only the holder of the journal's lock writes; one whose lock was stolen writes nothing more.
 * - I3 A database that was lost (deleted, closed by the browser) is written anew from the picture, under the same journal id, before
 *   anything else is: the picture knows all that the journal ever promised.
 * - I4 Records that cannot be read cost the journal its id: what it says of starts counts no longer, its receipts are still delivered.
 */
import { backOffMs } from "../core/back-off.js";
import { type Clock, pause } from "../core/clock.js";
import { JournalError } from "../core/errors.js";
import { randomId } from "../core/ids.js";
import type { JournalRecord, OpenJournal } from "../core/journal.js";
import { JournalPicture } from "../core/journal-picture.js";
import type { EventLog } from "../core/log.js";
import { grantOf, type StoredRecord, takeStored } from "../core/stored-record.js";
import type { HeldSlot } from "./journal-slots.js";
import { type Change, type JournalMeta, type JournalStore, openStore, readStore, storeFault, writeStore } from "./journal-store.js";

/** How long a note may wait for company. */
const NOTE_DELAY_MS = 200;
/** Records written between two looks for what need not be kept. */
const PRUNED_EACH = 512;
const REOPEN_DELAYS = { baseMs: 250, maxMs: 15_000, jitter: 0.5 };

interface Waiting {
  readonly record: JournalRecord;
  /** Absent for a note. */
  readonly resolve?: () => void;
  readonly reject?: (error: JournalError) => void;
}

export interface StoredJournalOptions {
  readonly clock: Clock;
  readonly log: EventLog | undefined;
  /** The runner that has it from now on; "" leaves the name as it is. */
  readonly runnerId: string;
}

/** A journal that is open; see the rules above. */
export class StoredJournal implements OpenJournal {
  #queue: Waiting[] = [];
  #flushing: Promise<void> | null = null;
  #noteTimer: { cancel(): void } | null = null;
  #closing: Promise<void> | null = null;
  readonly #closed = new AbortController();
  #store: JournalStore | null = null;
  /** Why there is no store; said to whoever appends. */
  #lostBy = "";
  #isStolen = false;
  /** Keys of the records of each grant. */
  #keys = new Map<string, number[]>();
  #recordCount = 0;
  #nextKey = 1;
  #sincePruned = 0;
  #told: (fault: string | null) => void = () => {};

  private constructor(
    private readonly slot: HeldSlot,
    private readonly meta: JournalMeta,
    readonly view: JournalPicture,
    /** When whoever had it before gave it back, Unix ms; null when that one crashed, or nobody had it. */
    readonly leftAt: number | null,
    private readonly options: StoredJournalOptions,
  ) {}

  /** Opens the journal of a slot whose lock is held. The caller gives the lock back when this rejects. */
  static async open(slot: HeldSlot, options: StoredJournalOptions): Promise<StoredJournal> {
    let journal: StoredJournal | null = null;
    let lostEarly = "";
    const lost = (why: string) => {
      if (journal === null) lostEarly = why;
      else journal.#lost(why);
    };
    const store = await openStore(slot.name, lost);
    try {
      const stored = await readStore(store);
      const picture = new JournalPicture(options.clock);
      for (const { record } of stored.records) takeStored(picture, record);
      const isDamaged = stored.damaged.length > 0 || (stored.meta === null && stored.records.length > 0);
      if (isDamaged) {
        options.log?.error("journal_damaged", {
          unreadable: stored.damaged.length,
          message: "records of the journal in IndexedDB cannot be read: calls that it held may need reconciliation",
        });
      }
      const journalId = isDamaged || stored.meta === null ? randomId("jrn") : stored.meta.journalId;
      const runnerId = options.runnerId === "" ? (stored.meta?.runnerId ?? "") : options.runnerId;
      const made = new StoredJournal(
        slot,
        { journalId, runnerId, leftAt: null },
        picture.reopened(options.clock),
        stored.meta?.leftAt ?? null,
        options,
      );
      for (const { key, record } of stored.records) made.#keep(key, record);
      const overdue = made.#takeOverdue();
      // Also shows that the place can be written.
      await writeStore(store, { meta: made.meta, remove: [...stored.damaged, ...overdue] }, true);
      journal = made;
      made.#store = store;
      slot.lock.onStolen(() => made.#stolen());
      if (lostEarly !== "") made.#lost(lostEarly);
      return made;
    } catch (error) {
      store.close();
      throw storeFault(error);
    }
  }

  get journalId(): string {
    return this.meta.journalId;
  }

  /** Id of the runner that last had the journal before this one; "" when unknown. */
  get runnerId(): string {
    return this.meta.runnerId;
  }

  watch(listener: (fault: string | null) => void): void {
    this.#told = listener;
    if (this.#store === null && this.#closing === null) listener(this.#lostBy);
  }

  append(record: JournalRecord): Promise<void> {
    if (this.#closing !== null) return Promise.reject(new JournalError("journal_closed", "the journal was closed"));
    if (this.#store === null) return Promise.reject(new JournalError("journal_unwritable", this.#lostBy));
    return new Promise((resolve, reject) => {
      this.#queue.push({ record, resolve, reject });
      this.#flush();
    });
  }

  note(record: JournalRecord): void {
    if (this.#closing !== null) return;
    this.view.apply(record);
    this.#queue.push({ record });
    this.#noteTimer ??= this.options.clock.schedule(NOTE_DELAY_MS, () => {
      this.#noteTimer = null;
      this.#flush();
    });
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Deletes the journal with all that it holds, then gives it back. */
  async destroy(): Promise<void> {
    this.#queue = [];
    this.#noteTimer?.cancel();
    this.#closed.abort();
    this.#closing ??= Promise.resolve();
    this.#store?.close();
    this.#store = null;
    try {
      await deleteStore(this.slot.name);
    } finally {
      this.slot.lock.release();
    }
  }

  /** Everything that matters is under way when this first waits: the page may be gone by then. */
  async #close(): Promise<void> {
    this.#closed.abort();
    this.#noteTimer?.cancel();
    const store = this.#store;
    const batch = this.#queue;
    this.#queue = [];
    const last = store === null ? undefined : this.#write(store, batch, { ...this.meta, leftAt: this.options.clock.now() });
    const before = this.#flushing;
    this.#store = null;
    // Waits for its transactions; whoever takes the journal next reads after them, since a database does one after the other.
    store?.close();
    this.slot.lock.release();
    if (store === null) for (const { reject } of batch) reject?.(new JournalError("journal_closed", "the journal was closed"));
    await before;
    await last;
  }

  #flush(): void {
    if (this.#flushing !== null || this.#queue.length === 0 || this.#closing !== null) return;
    this.#flushing = this.#drain().finally(() => {
      this.#flushing = null;
      if (this.#queue.some(({ resolve }) => resolve !== undefined)) this.#flush();
    });
  }

  async #drain(): Promise<void> {
    // One turn, so that what is appended together is written together.
    await Promise.resolve();
    while (this.#queue.length > 0 && this.#store !== null) {
      const batch = this.#queue;
      this.#queue = [];
      if (!(await this.#write(this.#store, batch))) return;
    }
  }

  /** Writes a batch and answers for it; true when it is durable. The transaction is begun before this returns. Never rejects. */
  #write(store: JournalStore, batch: readonly Waiting[], meta?: JournalMeta): Promise<boolean> {
    const put = batch.map(({ record }) => ({ key: this.#nextKey++, record }));
    const isAwaited = batch.some(({ resolve }) => resolve !== undefined);
    this.#sincePruned += put.length;
    const remove = this.#sincePruned >= PRUNED_EACH ? this.#takeOverdue() : [];
    return writeStore(store, { put, remove, ...(meta === undefined ? {} : { meta }) }, isAwaited).then(
      () => {
        for (const { key, record } of put) this.#keep(key, record);
        for (const { record, resolve } of batch) {
          if (resolve === undefined) continue;
          this.view.apply(record);
          resolve();
        }
        return true;
      },
      (error: unknown) => {
        // Notes are in the picture already, and go with the next batch.
        this.#queue.unshift(...batch.filter(({ resolve }) => resolve === undefined));
        const fault =
          this.#store === null && this.#lostBy !== "" ? new JournalError("journal_unwritable", this.#lostBy) : storeFault(error);
        for (const { reject } of batch) reject?.(fault);
        return false;
      },
    );
  }

  #keep(key: number, record: StoredRecord): void {
    const grantId = grantOf(record);
    const keys = this.#keys.get(grantId);
    if (keys === undefined) this.#keys.set(grantId, [key]);
    else keys.push(key);
    this.#recordCount += 1;
    this.#nextKey = Math.max(this.#nextKey, key + 1);
  }

  /** Keys of what the picture has forgotten. They are forgotten here, too: what stays in the store after a fault goes with the next opening. */
  #takeOverdue(): readonly number[] {
    this.#sincePruned = 0;
    this.view.prune();
    const overdue: number[] = [];
    for (const [grantId, keys] of this.#keys) {
      if (this.view.get(grantId) !== undefined) continue;
      overdue.push(...keys);
      this.#keys.delete(grantId);
    }
    this.#recordCount -= overdue.length;
    return overdue;
  }

  #stolen(): void {
    if (this.#closing !== null) return;
    this.#isStolen = true;
    this.#store?.close();
    this.#lost("another page took this journal by force: reload this one");
  }

  #lost(why: string): void {
    if (this.#closing !== null) return;
    this.#store = null;
    this.#lostBy = `the journal in IndexedDB cannot be written: ${why}`;
    this.options.log?.warn("journal_lost", { message: why });
    this.#told(this.#lostBy);
    if (!this.#isStolen) void this.#reopen();
  }

  /** Opens the database again and writes into it what it lost (I3), until that succeeds. */
  async #reopen(): Promise<void> {
    const { clock } = this.options;
    for (let failures = 1; !this.#closed.signal.aborted && !this.#isStolen; failures += 1) {
      try {
        await this.#restore();
        return;
      } catch (error) {
        this.#lostBy = storeFault(error).message;
        this.#told(this.#lostBy);
      }
      await pause(clock, backOffMs(failures, Math.random, REOPEN_DELAYS), this.#closed.signal);
    }
  }

  async #restore(): Promise<void> {
    let isLost = false;
    const store = await openStore(this.slot.name, (why) => {
      isLost = true;
      if (this.#store === store) this.#lost(why);
    });
    try {
      const meta = await store.get("meta", "journal");
      const isWhole =
        (meta as JournalMeta | undefined)?.journalId === this.journalId && (await store.count("records")) >= this.#recordCount;
      if (!isWhole) await this.#rewrite(store);
      if (isLost || this.#isStolen) throw new JournalError("journal_unwritable", "its database was lost again");
      if (this.#closing !== null) return store.close();
      this.#store = store;
      this.#told(null);
      this.#flush();
    } catch (error) {
      store.close();
      throw error;
    }
  }

  async #rewrite(store: JournalStore): Promise<void> {
    // Notes that still wait are in the picture.
    this.#queue = this.#queue.filter(({ resolve }) => resolve !== undefined);
    this.view.prune();
    const put = [...this.view.entries()].map((entry) => ({
      key: this.#nextKey++,
      record: { kind: "entry", entry: { ...entry } } as const,
    }));
    const change: Change = { clear: true, meta: this.meta, put };
    await writeStore(store, change, true);
    this.#keys = new Map();
    this.#recordCount = 0;
    for (const { key, record } of put) this.#keep(key, record);
  }
}

function deleteStore(name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(name);
    request.onsuccess = () => resolve();
    request.onerror = () => reject(storeFault(request.error));
  });
}
