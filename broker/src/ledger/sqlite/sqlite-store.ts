/**
 * The tables of the SQLite ledger and what is done in them. Runs in the worker thread; everything is synchronous.
 *
 * Invariants:
 * - Versions come from `AUTOINCREMENT` and are never used again, even when the newest entry is deleted (L3).
 * - The compare and the insert are one transaction (L8); the index of calls follows from the entries (see `call-heads.ts`).
 * - Each entry names the one before it, so a call is read backwards from its head.
 * - No statement is left open: each answer is a page that was read to its end.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import type Database from "better-sqlite3";
import {
  type BlobPlace,
  type EntryPlace,
  LedgerError,
  type StoredEntry,
  type TailedEntry,
  type Version,
} from "../../domain/ports/ledger.js";
import { openSqlite } from "../../sqlite/open-sqlite.js";
import { CallHeads, HEADS_SCHEMA, NONE, OPENS, SETTLES } from "./call-heads.js";
import { openSqliteLanes, type SqliteLanes } from "./sqlite-lanes.js";
import { APPEND_STRIDE, MARKS, OUTCOMES } from "./sqlite-protocol.js";

const SCHEMA_VERSION = 2;
const PAGE_ENTRIES = 256;
/** Places in one answer: they are small. */
const PAGE_PLACES = 1_000;
/** Entries that are read from the table at once. */
const STEP_ENTRIES = 64;
/** A page ends early when its entries are large, so that one answer stays small beside the heap. */
const PAGE_UNITS = 2_097_152;
/** 16 MiB of log between checkpoints: fewer of the commits that also have to sync the database itself. */
const CHECKPOINT_PAGES = 4_096;

const SCHEMA = `
  CREATE TABLE entries (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    call_id TEXT NOT NULL,
    previous INTEGER NOT NULL,
    entry_id TEXT NOT NULL,
    mark INTEGER NOT NULL DEFAULT ${NONE},
    note TEXT,
    data TEXT NOT NULL
  ) STRICT;
  CREATE TABLE blobs (name TEXT PRIMARY KEY, digest TEXT NOT NULL, text TEXT NOT NULL) STRICT;
  ${HEADS_SCHEMA}
`;

/** From each schema to the next one. Schema 1 had neither notes nor marks, and an index that was written with each entry. */
const MIGRATIONS: Readonly<Record<number, string>> = {
  1: `
    ALTER TABLE entries ADD COLUMN mark INTEGER NOT NULL DEFAULT ${NONE};
    ALTER TABLE entries ADD COLUMN note TEXT;
    ALTER TABLE open_calls RENAME TO open_calls_1;
    ${HEADS_SCHEMA}
    INSERT INTO calls (call_id, last, open)
      SELECT call_id, max(version), call_id IN (SELECT call_id FROM open_calls_1) FROM entries GROUP BY call_id;
    UPDATE heads SET folded = (SELECT coalesce(max(version), 0) FROM entries);
    DROP INDEX entries_of_call;
    DROP TABLE open_calls_1;
  `,
};
/** Pages of the index of calls stay in memory: 16 MiB are those of some 300,000 calls. */
const CACHE_KIB = 16_384;

const ENTRY_COLUMNS = "version, call_id AS callId, previous, entry_id AS entryId, data";
const TAILED_COLUMNS = "version, call_id AS callId, previous, entry_id AS entryId, note, iif(note IS NULL, data, NULL) AS data";
/** As stored, for each place in {@link MARKS}. */
const STORED_MARKS = MARKS.map((mark) => ({ none: NONE, opens: OPENS, settles: SETTLES })[mark]);
const [APPENDED, DUPLICATE, CONFLICT] = OUTCOMES.map((_, index) => index) as [number, number, number];

type TailedRow = Omit<TailedEntry, "note" | "data"> & { readonly note: string | null; readonly data: string | null };

export interface Page<T> {
  readonly entries: readonly T[];
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
  read(callId: string, from: Version): Page<StoredEntry>;
  /** Entries of all calls; without the data of those that have a note. */
  page(from: Version): Page<TailedEntry>;
  /** Where entries lie, from a version on. */
  places(from: Version): { readonly places: readonly EntryPlace[]; readonly more: boolean };
  /** Removes entries of a call. Inside a transaction only. */
  remove(callId: string, versions: readonly Version[]): void;
  /** Where values lie, from a place on. */
  blobPlaces(from: number): { readonly places: readonly BlobPlace[]; readonly more: boolean };
  blobPlace(name: string): number | undefined;
  /** `false`: the value does not lie there. Inside a transaction only. */
  removeBlob(name: string, place: number): boolean;
  openCallsAfter(callId: string): { readonly callIds: readonly string[]; readonly more: boolean };
  latest(): Version;
  readonly lanes: SqliteLanes;
  close(): void;
}

/** Opens `ledger.db` in a folder that the caller has locked. Throws {@link LedgerError} `misconfigured` for a newer schema. */
export function openSqliteStore(dataDir: string, busyTimeoutMs: number): SqliteStore {
  const path = join(dataDir, "ledger.db");
  const database = openSqlite(path, { timeout: busyTimeoutMs });
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
  database.pragma(`cache_size = -${CACHE_KIB}`);
  const version = database.pragma("user_version", { simple: true });
  if (version === SCHEMA_VERSION) return;
  const migration = MIGRATIONS[version as number];
  if (version !== 0 && migration === undefined) {
    throw new LedgerError(
      "misconfigured",
      `${path} has schema ${version}, this broker knows ${SCHEMA_VERSION}: use the broker that wrote it`,
    );
  }
  database.transaction(() => {
    database.exec(migration ?? SCHEMA);
    database.pragma(`user_version = ${SCHEMA_VERSION}`);
  })();
}

function statements(database: Database.Database): SqliteStore {
  const begin = database.prepare("BEGIN IMMEDIATE");
  const commit = database.prepare("COMMIT");
  const insert = database.prepare<[string, Version, string, number, string | null, string]>(
    "INSERT INTO entries (call_id, previous, entry_id, mark, note, data) VALUES (?, ?, ?, ?, ?, ?)",
  );
  const link = database.prepare<[Version], Link>("SELECT call_id AS callId, previous, entry_id AS entryId FROM entries WHERE version = ?");
  const entry = database.prepare<[Version], StoredEntry>(`SELECT ${ENTRY_COLUMNS} FROM entries WHERE version = ?`);
  const searched = database.prepare<[string], Version>("SELECT coalesce(max(version), 0) FROM entries WHERE call_id = ?").pluck();
  const all = database.prepare<[number], TailedRow>(
    `SELECT ${TAILED_COLUMNS} FROM entries WHERE version >= ? ORDER BY version LIMIT ${STEP_ENTRIES}`,
  );
  const blob = database.prepare<[string], { digest: string; text: string }>("SELECT digest, text FROM blobs WHERE name = ?");
  const storeBlob = database.prepare<[number, string, string, string]>(
    "INSERT OR REPLACE INTO blobs (rowid, name, digest, text) VALUES (?, ?, ?, ?)",
  );
  const moveBlob = database.prepare<[number, string]>("UPDATE blobs SET rowid = ? WHERE name = ?");
  const placeOfBlob = database.prepare<[string], number>("SELECT rowid FROM blobs WHERE name = ?").pluck();
  const blobsFrom = database.prepare<[number], BlobPlace>(
    `SELECT name, rowid AS place FROM blobs WHERE rowid >= ? ORDER BY rowid LIMIT ${PAGE_PLACES}`,
  );
  const deleteBlob = database.prepare<[string, number]>("DELETE FROM blobs WHERE name = ? AND rowid = ?");
  // Places are given out here, since SQLite uses the highest one again when its row is gone. Nobody remembers one over a restart.
  let lastBlob = database.prepare<[], number>("SELECT coalesce(max(rowid), 0) FROM blobs").pluck().get() ?? 0;
  const placesFrom = database.prepare<[Version], EntryPlace>(
    `SELECT version, call_id AS callId, previous FROM entries WHERE version >= ? ORDER BY version LIMIT ${PAGE_PLACES}`,
  );
  const deleteEntry = database.prepare<[Version, string]>("DELETE FROM entries WHERE version = ? AND call_id = ?");
  const latest = database.prepare<[], Version>("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entries'").pluck();
  const heads = new CallHeads(database);

  /** The call's last version. Only entries that somebody deleted by hand have to be searched for. */
  const lastOf = (callId: string): Version => {
    const last = heads.last(callId);
    if (last === 0 || link.get(last) !== undefined) return last;
    return searched.get(callId) ?? 0;
  };

  /** The call's versions from its last one back to `from`. What lies before an entry that is gone is gone, too. */
  function* backwards(callId: string, from: Version): Generator<Version, void> {
    for (let version = lastOf(callId); version >= Math.max(1, from); ) {
      const found = link.get(version);
      if (found?.callId !== callId) return;
      yield version;
      version = found.previous;
    }
  }

  const sameEntry = (callId: string, expected: Version, entryId: string): Version | undefined => {
    for (const version of backwards(callId, expected + 1)) if (link.get(version)?.entryId === entryId) return version;
    return undefined;
  };

  return {
    begin: () => void begin.run(),
    commit: () => void commit.run(),
    appendAll: (appends, outcomes) => {
      let stored = 0;
      let newest: Version = 0;
      for (let at = 0; at < appends.length; at += APPEND_STRIDE) {
        const callId = appends[at] as string;
        const expected = appends[at + 1] as Version;
        const entryId = appends[at + 2] as string;
        if (heads.last(callId) !== expected) {
          const last = lastOf(callId);
          if (last !== expected) {
            const same = sameEntry(callId, expected, entryId);
            if (same === undefined) outcomes.push(CONFLICT, last);
            else outcomes.push(DUPLICATE, same);
            continue;
          }
        }
        const mark = STORED_MARKS[appends[at + 4] as number];
        if (mark === undefined) throw new TypeError(`unknown mark ${appends[at + 4]}`);
        const note = appends[at + 5] as string;
        const { lastInsertRowid } = insert.run(callId, expected, entryId, mark, note === "" ? null : note, appends[at + 3] as string);
        newest = Number(lastInsertRowid);
        heads.moved(callId, newest, mark);
        stored += 1;
        outcomes.push(APPENDED, newest);
      }
      if (stored > 0) heads.fold(stored, newest);
    },
    putBlob: (name, text) => {
      const digest = digestOf(text);
      const stored = blob.get(name);
      if (stored !== undefined && digestOf(stored.text) === stored.digest) {
        if (stored.digest !== digest) return false;
        lastBlob += 1;
        moveBlob.run(lastBlob, name);
        return true;
      }
      lastBlob += 1;
      storeBlob.run(lastBlob, name, digest, text);
      return true;
    },
    blobPlaces: (from) => {
      const places = blobsFrom.all(from);
      return { places, more: places.length === PAGE_PLACES };
    },
    blobPlace: (name) => placeOfBlob.get(name),
    removeBlob: (name, place) => deleteBlob.run(name, place).changes > 0,
    places: (from) => {
      const places = placesFrom.all(from);
      return { places, more: places.length === PAGE_PLACES };
    },
    remove: (callId, versions) => {
      const going = new Set(versions);
      const last = lastOf(callId);
      let left = last;
      while (left > 0 && going.has(left)) left = link.get(left)?.previous ?? 0;
      // What a link leads to may be gone already: then nothing is left.
      if (left > 0 && link.get(left)?.callId !== callId) left = 0;
      for (const version of versions) deleteEntry.run(version, callId);
      if (left !== last) heads.removed(callId, left);
    },
    getBlob: (name) => {
      const stored = blob.get(name);
      if (stored === undefined) throw new LedgerError("blob_missing", `blob ${name} is not stored`);
      if (digestOf(stored.text) !== stored.digest) {
        throw new LedgerError("blob_corrupt", `blob ${name} does not match its digest: restore it from a backup`);
      }
      return stored.text;
    },
    read: (callId, from) => {
      const versions = [...backwards(callId, from)].reverse();
      return pageOf(entriesAt(versions, (version) => entry.get(version)));
    },
    page: (from) => {
      const { entries, more } = pageOf(inSteps(from, (version) => all.all(version)));
      return { entries: entries.map((row) => ({ ...row, note: row.note ?? undefined, data: row.data ?? undefined })), more };
    },
    openCallsAfter: (callId) => heads.openAfter(callId),
    latest: () => latest.get() ?? 0,
    lanes: openSqliteLanes(database),
    close: () => void database.close(),
  };
}

interface Link {
  readonly callId: string;
  readonly previous: Version;
  readonly entryId: string;
}

function* entriesAt(versions: Iterable<Version>, at: (version: Version) => StoredEntry | undefined): Generator<StoredEntry> {
  for (const version of versions) {
    const found = at(version);
    if (found !== undefined) yield found;
  }
}

/** All rows from a version on, a step at a time: an iterator of SQLite's own would be garbage (see `openSqlite`). */
function* inSteps<T extends { readonly version: Version }>(from: Version, step: (from: Version) => readonly T[]): Generator<T> {
  for (let rows = step(from); rows.length > 0; rows = step((rows.at(-1)?.version ?? 0) + 1)) {
    yield* rows;
    if (rows.length < STEP_ENTRIES) return;
  }
}

/** Reads to the end of a page inside one turn. */
function pageOf<T extends { readonly data: string | null }>(rows: Iterable<T>): Page<T> {
  const entries: T[] = [];
  let units = 0;
  for (const row of rows) {
    const length = row.data?.length ?? 0;
    if (entries.length === PAGE_ENTRIES || (units > 0 && units + length > PAGE_UNITS)) return { entries, more: true };
    entries.push(row);
    units += length;
  }
  return { entries, more: false };
}

function digestOf(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("base64url");
}
