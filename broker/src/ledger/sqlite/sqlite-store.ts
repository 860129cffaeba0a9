/**
 * The tables of the SQLite ledger and what is done in them. Runs in the worker thread; everything is synchronous.
 *
 * Invariants:
 * - Versions come from `AUTOINCREMENT` and are never used again, even when the newest entry is deleted (L3).
 * - The compare, the insert and the index of open calls are one transaction (L8).
 * - No statement is left open: each answer is a page that was read to its end.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import Database from "better-sqlite3";
import { LedgerError, type StoredEntry, type Version } from "../../domain/ports/ledger.js";
import { APPEND_STRIDE, MARKS, OUTCOMES } from "./sqlite-protocol.js";

const SCHEMA_VERSION = 1;
const PAGE_ENTRIES = 256;
/** A page ends early when its entries are large, so that one answer stays small beside the heap. */
const PAGE_UNITS = 2_097_152;
const PAGE_CALLS = 1_000;
/** 16 MiB of log between checkpoints: fewer of the commits that also have to sync the database itself. */
const CHECKPOINT_PAGES = 4_096;

const SCHEMA = `
  CREATE TABLE entries (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    call_id TEXT NOT NULL,
    previous INTEGER NOT NULL,
    entry_id TEXT NOT NULL,
    data TEXT NOT NULL
  ) STRICT;
  CREATE INDEX entries_of_call ON entries (call_id);
  CREATE TABLE open_calls (call_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
  CREATE TABLE blobs (name TEXT PRIMARY KEY, digest TEXT NOT NULL, text TEXT NOT NULL) STRICT;
`;

const ENTRY_COLUMNS = "version, call_id AS callId, previous, entry_id AS entryId, data";
const [NONE, OPENS, SETTLES] = MARKS.map((_, index) => index);
const [APPENDED, DUPLICATE, CONFLICT] = OUTCOMES.map((_, index) => index) as [number, number, number];

export interface EntryPage {
  readonly entries: readonly StoredEntry[];
  readonly more: boolean;
}

/** The open database. All methods throw what SQLite throws. */
export interface SqliteStore {
  begin(): void;
  commit(): void;
  /** Stores all of a flat batch of appends, adding outcome and version of each to `outcomes`. Inside a transaction only. */
  appendAll(appends: readonly (string | number)[], outcomes: number[]): void;
  /** `false`: the name holds another text. Inside a transaction only. */
  putBlob(name: string, text: string): boolean;
  /** Throws {@link LedgerError} `blob_missing` or `blob_corrupt`. */
  getBlob(name: string): string;
  read(callId: string, from: Version): EntryPage;
  page(from: Version): EntryPage;
  openCallsAfter(callId: string): { readonly callIds: readonly string[]; readonly more: boolean };
  latest(): Version;
  close(): void;
}

/** Opens `ledger.db` in a folder that the caller has locked. Throws {@link LedgerError} `misconfigured` for a newer schema. */
export function openSqliteStore(dataDir: string, busyTimeoutMs: number): SqliteStore {
  const path = join(dataDir, "ledger.db");
  const database = new Database(path, { timeout: busyTimeoutMs });
  try {
    prepare(database, path);
    return statements(database);
  } catch (error) {
    database.close();
    throw error;
  }
}

function prepare(database: Database.Database, path: string): void {
  database.pragma("journal_mode = WAL");
  database.pragma("synchronous = FULL");
  database.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  const version = database.pragma("user_version", { simple: true });
  if (version === SCHEMA_VERSION) return;
  if (version !== 0) {
    throw new LedgerError(
      "misconfigured",
      `${path} has schema ${version}, this broker knows ${SCHEMA_VERSION}: use the broker that wrote it`,
    );
  }
  database.transaction(() => {
    database.exec(SCHEMA);
    database.pragma(`user_version = ${SCHEMA_VERSION}`);
  })();
}

function statements(database: Database.Database): SqliteStore {
  const begin = database.prepare("BEGIN IMMEDIATE");
  const commit = database.prepare("COMMIT");
  const insert = database.prepare<[string, number, string, string, string, number]>(`
    INSERT INTO entries (call_id, previous, entry_id, data) SELECT ?, ?, ?, ?
    WHERE (SELECT coalesce(max(version), 0) FROM entries WHERE call_id = ?) = ?`);
  const head = database.prepare<[string], Version>("SELECT coalesce(max(version), 0) FROM entries WHERE call_id = ?").pluck();
  const sameEntry = database
    .prepare<[string, number, string], Version>("SELECT version FROM entries WHERE call_id = ? AND version > ? AND entry_id = ?")
    .pluck();
  const open = database.prepare<[string]>("INSERT OR IGNORE INTO open_calls (call_id) VALUES (?)");
  const settle = database.prepare<[string]>("DELETE FROM open_calls WHERE call_id = ?");
  const ofCall = database.prepare<[string, number], StoredEntry>(
    `SELECT ${ENTRY_COLUMNS} FROM entries WHERE call_id = ? AND version >= ? ORDER BY version LIMIT ${PAGE_ENTRIES + 1}`,
  );
  const all = database.prepare<[number], StoredEntry>(
    `SELECT ${ENTRY_COLUMNS} FROM entries WHERE version >= ? ORDER BY version LIMIT ${PAGE_ENTRIES + 1}`,
  );
  const openAfter = database
    .prepare<[string], string>(`SELECT call_id FROM open_calls WHERE call_id > ? ORDER BY call_id LIMIT ${PAGE_CALLS + 1}`)
    .pluck();
  const blob = database.prepare<[string], { digest: string; text: string }>("SELECT digest, text FROM blobs WHERE name = ?");
  const storeBlob = database.prepare<[string, string, string]>("INSERT OR REPLACE INTO blobs (name, digest, text) VALUES (?, ?, ?)");
  const latest = database.prepare<[], Version>("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entries'").pluck();

  return {
    begin: () => void begin.run(),
    commit: () => void commit.run(),
    appendAll: (appends, outcomes) => {
      for (let at = 0; at < appends.length; at += APPEND_STRIDE) {
        const callId = appends[at] as string;
        const expected = appends[at + 1] as number;
        const entryId = appends[at + 2] as string;
        const stored = insert.run(callId, expected, entryId, appends[at + 3] as string, callId, expected);
        if (stored.changes === 1) {
          const mark = appends[at + 4];
          if (mark === OPENS) open.run(callId);
          else if (mark === SETTLES) settle.run(callId);
          else if (mark !== NONE) throw new TypeError(`unknown mark ${mark}`);
          outcomes.push(APPENDED, Number(stored.lastInsertRowid));
          continue;
        }
        const same = sameEntry.get(callId, expected, entryId);
        if (same === undefined) outcomes.push(CONFLICT, head.get(callId) ?? 0);
        else outcomes.push(DUPLICATE, same);
      }
    },
    putBlob: (name, text) => {
      const digest = digestOf(text);
      const stored = blob.get(name);
      if (stored !== undefined && digestOf(stored.text) === stored.digest) return stored.digest === digest;
      storeBlob.run(name, digest, text);
      return true;
    },
    getBlob: (name) => {
      const stored = blob.get(name);
      if (stored === undefined) throw new LedgerError("blob_missing", `blob ${name} is not stored`);
      if (digestOf(stored.text) !== stored.digest) {
        throw new LedgerError("blob_corrupt", `blob ${name} does not match its digest: restore it from a backup`);
      }
      return stored.text;
    },
    read: (callId, from) => pageOf(ofCall.iterate(callId, from)),
    page: (from) => pageOf(all.iterate(from)),
    openCallsAfter: (callId) => {
      const callIds = openAfter.all(callId);
      const more = callIds.length > PAGE_CALLS;
      if (more) callIds.pop();
      return { callIds, more };
    },
    latest: () => latest.get() ?? 0,
    close: () => void database.close(),
  };
}

/** Reads to the end of a page inside one turn; leaving the loop closes the statement. */
function pageOf(rows: IterableIterator<StoredEntry>): EntryPage {
  const entries: StoredEntry[] = [];
  let units = 0;
  for (const row of rows) {
    if (entries.length === PAGE_ENTRIES || (units > 0 && units + row.data.length > PAGE_UNITS)) return { entries, more: true };
    entries.push(row);
    units += row.data.length;
  }
  return { entries, more: false };
}

function digestOf(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("base64url");
}
