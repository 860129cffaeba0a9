/**
 * The database of one journal, version 1: `meta` has what names the journal under the key `journal`, `records` one record under
 * each number, in the order in which they were written.
 *
 * Invariants:
 * - a transaction that a promise here stands for is durable when it resolves, as far as the browser keeps `durability: "strict"`;
 * - every transaction is begun, and told to commit, before the function that writes returns: the end of the page does not undo it;
 * - a connection that somebody else needs gone (an upgrade, a deletion) is closed at once, and its owner told.
 */
import { type DBSchema, type IDBPDatabase, openDB } from "idb";
import { JournalError, messageOf } from "../core/errors.js";
import { readStoredRecord, type StoredRecord } from "../core/stored-record.js";

/** Version of the database's form. A browser refuses an older one to code that knows only this one. */
const FORMAT = 1;
/** How long a database may take to open: another page that upgrades or deletes it is waited for. */
const OPENS_WITHIN_MS = 10_000;

/** What names a journal. */
export interface JournalMeta {
  readonly journalId: string;
  /** Of the runner that last had it; "" when unknown. */
  readonly runnerId: string;
  /** When it was given back, Unix ms; null while somebody has it, and after a crash. */
  readonly leftAt: number | null;
}

interface JournalSchema extends DBSchema {
  meta: { key: "journal"; value: unknown };
  records: { key: number; value: unknown };
}

/** An open database. */
export type JournalStore = IDBPDatabase<JournalSchema>;

/** What a database holds. */
export interface StoredJournal {
  /** Null when the database is new, or says nothing that names a journal. */
  readonly meta: JournalMeta | null;
  readonly records: readonly { readonly key: number; readonly record: StoredRecord }[];
  /** Keys of records that cannot be read. */
  readonly damaged: readonly number[];
}

/** Opens the database, and makes it where there is none. `lost` is called at most once, when the connection is gone. @throws JournalError */
export async function openStore(name: string, lost: (why: string) => void): Promise<JournalStore> {
  let isOver = false;
  let store: JournalStore | null = null;
  const gone = (why: string) => {
    if (isOver) return;
    isOver = true;
    store?.close();
    lost(why);
  };
  const opening = openDB<JournalSchema>(name, FORMAT, {
    upgrade(fresh) {
      fresh.createObjectStore("meta");
      fresh.createObjectStore("records");
    },
    blocking: () => gone("its database is being deleted or upgraded by another page"),
    terminated: () => gone("the browser closed its database, as when site data are cleared"),
  });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new JournalError("journal_unwritable", "another page keeps the database of this journal from being opened: close it")),
      OPENS_WITHIN_MS,
    );
  });
  try {
    store = await Promise.race([opening, late]);
    return store;
  } catch (error) {
    isOver = true;
    opening.then((opened) => opened.close()).catch(() => undefined);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Whether the database was made by a newer version of this SDK. */
export function isNewer(error: unknown): boolean {
  return error instanceof DOMException && error.name === "VersionError";
}

/** Reads everything. What cannot be read is named, not thrown. */
export async function readStore(store: JournalStore): Promise<StoredJournal> {
  const meta = await store.get("meta", "journal").catch(() => undefined);
  const keys = await store.getAllKeys("records");
  const values = await store.getAll("records").catch(() => null);
  const records: { key: number; record: StoredRecord }[] = [];
  const damaged: number[] = [];
  for (const [index, key] of keys.entries()) {
    const value = values === null ? await store.get("records", key).catch(() => undefined) : values[index];
    const record = readStoredRecord(value);
    if (record === null || typeof key !== "number") damaged.push(key);
    else records.push({ key, record });
  }
  return { meta: readMeta(meta), records, damaged };
}

function readMeta(stored: unknown): JournalMeta | null {
  if (typeof stored !== "object" || stored === null) return null;
  const { journalId, runnerId, leftAt } = stored as Readonly<Record<string, unknown>>;
  if (typeof journalId !== "string" || journalId === "" || typeof runnerId !== "string") return null;
  return { journalId, runnerId, leftAt: typeof leftAt === "number" ? leftAt : null };
}

/** One transaction's worth of changes. */
export interface Change {
  readonly clear?: boolean;
  readonly meta?: JournalMeta;
  readonly put?: readonly { readonly key: number; readonly record: StoredRecord }[];
  readonly remove?: readonly number[];
}

/** Makes the changes, all or none. `isAwaited` false: nobody waits until they are safe from a power cut. */
export function writeStore(store: JournalStore, change: Change, isAwaited: boolean): Promise<void> {
  try {
    const transaction = store.transaction(["meta", "records"], "readwrite", { durability: isAwaited ? "strict" : "relaxed" });
    const meta = transaction.objectStore("meta");
    const records = transaction.objectStore("records");
    const requests: Promise<unknown>[] = [];
    if (change.clear === true) requests.push(meta.clear(), records.clear());
    if (change.meta !== undefined) requests.push(meta.put(change.meta, "journal"));
    for (const key of change.remove ?? []) requests.push(records.delete(key));
    for (const { key, record } of change.put ?? []) requests.push(records.put(record, key));
    transaction.commit();
    // The transaction says why it failed; what each request says of it is not heard.
    for (const request of requests) request.catch(() => undefined);
    return transaction.done;
  } catch (error) {
    // The connection is closing, or the browser closed it.
    return Promise.reject(error);
  }
}

/** A failure of the database, as the journal tells it. */
export function storeFault(error: unknown): JournalError {
  if (error instanceof JournalError) return error;
  const isFull = error instanceof DOMException && error.name === "QuotaExceededError";
  const why = isFull ? "this origin's storage is full: free some, or ask for persistent storage" : messageOf(error);
  return new JournalError("journal_unwritable", `the journal in IndexedDB cannot be written: ${why}`, { cause: error });
}
