/**
 * The SQLite file of the call index: one row for each call, and the place in the ledger up to which the rows are right.
 *
 * Invariants:
 * - Rows and place are written in one transaction, so the file is always the picture of one ledger version.
 * - Nothing here is the truth: a file that is broken or of another format is made anew.
 * - Only files with the index's own mark are deleted. A database of something else is refused, and what is no database at all
 *   is put aside as `.broken`.
 */
import { closeSync, openSync, readSync, renameSync, rmSync } from "node:fs";
import Database from "better-sqlite3";
import { type CallStateName, OPEN_STATES } from "../domain/call-view.js";
import type { Version } from "../domain/ports/ledger.js";

/** Rises with every change of the tables: an index of another format is rebuilt. */
const FORMAT = 1;
/** "TRci" in SQLite's header: tells the index from other databases. */
const APPLICATION_ID = 0x54526369;

/** What a call can be found by, in the order in which the index on a column is preferred: the choosier first. An open state comes third. */
export const FILTER_COLUMNS = ["session", "subject", "agent", "tool", "toolset", "binding", "state"] as const;
export type FilterColumn = (typeof FILTER_COLUMNS)[number];

export interface CallRow {
  /** Version of the call's first entry: the order of creation, and the row's key. */
  readonly opened: Version;
  readonly callId: string;
  readonly application: string;
  readonly state: CallStateName;
  readonly tool: string;
  readonly toolset: string;
  readonly binding: string;
  readonly agent: string | null;
  readonly subject: string | null;
  readonly session: string | null;
}

/** How far the rows go, and one entry by which the ledger is recognised. */
export interface LedgerPlace {
  /** Version of the last entry that was looked at; 0 for none. */
  readonly version: Version;
  readonly anchor: { readonly callId: string; readonly version: Version; readonly entryId: string } | null;
}

export const NO_PLACE: LedgerPlace = { version: 0, anchor: null };

export interface RowQuery {
  readonly application: string;
  /** Null: the column is not filtered. */
  readonly filter: Readonly<Record<FilterColumn, string | null>>;
  /** Only calls accepted before this version; null for the first page. */
  readonly before: Version | null;
  /** Rows to find, at most. */
  readonly limit: number;
  /** Rows to look at, at most, where several filters are given: a rare combination must not hold the process up. */
  readonly lookAtMax: number;
}

export interface FoundRows {
  readonly calls: readonly { readonly opened: Version; readonly callId: string }[];
  /** Where the next query goes on (its `before`); null when there is nothing more. With it fewer calls than `limit` may be found. */
  readonly next: Version | null;
}

export type CallIndexErrorCode =
  /** Another process holds the file. */
  | "in_use"
  /** The file is a database of something else. */
  | "foreign_file"
  /** The file cannot be opened or made. */
  | "unusable";

/** The index cannot work with its file; the message says which and what to do. */
export class CallIndexError extends Error {
  override readonly name = "CallIndexError";
  constructor(
    readonly code: CallIndexErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

export interface OpenedRows {
  readonly rows: CallRows;
  /** Why what was in the file before is gone; null when it was kept or there was none. */
  readonly dropped: "broken" | "format" | null;
}

/** Opens or makes the index file (`:memory:` keeps it in the process). Throws {@link CallIndexError}. */
export function openCallRows(file: string): OpenedRows {
  try {
    const found = open(file);
    if (found !== "format") {
      return { rows: found, dropped: null };
    }
    return { rows: remakeCallRows(file), dropped: "format" };
  } catch (error) {
    if (!isBroken(error)) {
      throw unusable(file, error);
    }
    return { rows: remakeCallRows(file), dropped: "broken" };
  }
}

/**
 * Is the file itself damaged, so that only a new one helps? `SQLITE_ERROR` is among it: all statements are fixed, so it means
 * that the file lacks a table, column or index of its format.
 */
export function isBroken(error: unknown): boolean {
  return error instanceof Database.SqliteError && /^SQLITE_(ERROR$|NOTADB|CORRUPT|FORMAT)/.test(error.code);
}

/** Makes an empty index file in the place of a broken one, which must not be open here. Throws {@link CallIndexError}. */
export function remakeCallRows(file: string): CallRows {
  try {
    const mark = file === ":memory:" ? undefined : markOf(file);
    if (typeof mark === "number" && mark !== APPLICATION_ID) {
      throw foreign(file);
    }
    if (mark === "no_database") {
      renameSync(file, `${file}.broken`);
    }
    for (const name of [file, `${file}-wal`, `${file}-shm`, `${file}-journal`]) {
      rmSync(name, { force: true });
    }
    const made = open(file);
    if (made === "format") {
      throw new CallIndexError("unusable", `the call index ${file} changed while it was made: another process writes it`);
    }
    return made;
  } catch (error) {
    throw unusable(file, error);
  }
}

/** The application id in the header of a SQLite file, read without SQLite; undefined when there is no such file. */
function markOf(file: string): number | "no_database" | undefined {
  let handle: number;
  try {
    handle = openSync(file, "r");
  } catch {
    return undefined;
  }
  try {
    const header = Buffer.alloc(100);
    const bytes = readSync(handle, header, 0, header.length, 0);
    const isDatabase = bytes === header.length && header.toString("latin1", 0, 16) === "SQLite format 3\0";
    return isDatabase ? header.readInt32BE(68) : "no_database";
  } finally {
    closeSync(handle);
  }
}

function foreign(file: string): CallIndexError {
  return new CallIndexError("foreign_file", `${file} is the database of something else: name another file for the call index`);
}

function unusable(file: string, error: unknown): CallIndexError {
  if (error instanceof CallIndexError) {
    return error;
  }
  const cause = error instanceof Error ? error.message : String(error);
  if (error instanceof Database.SqliteError && error.code.startsWith("SQLITE_BUSY")) {
    return new CallIndexError("in_use", `the call index ${file} is held by another process: give each broker a file of its own`, {
      cause: error,
    });
  }
  return new CallIndexError(
    "unusable",
    `the call index ${file} cannot be opened (${cause}): make its folder writable, or name another file`,
    {
      cause: error,
    },
  );
}

function open(file: string): CallRows | "format" {
  const database = new Database(file, { timeout: 1_000 });
  try {
    // One process owns the file; a second one is refused instead of mixing in.
    database.pragma("locking_mode = EXCLUSIVE");
    const applicationId = database.pragma("application_id", { simple: true });
    const format = database.pragma("user_version", { simple: true });
    const tables = database.prepare("SELECT count(*) FROM sqlite_schema").pluck().get();
    if (tables !== 0 && applicationId !== APPLICATION_ID) {
      throw foreign(file);
    }
    if (tables !== 0 && format !== FORMAT) {
      database.close();
      return "format";
    }
    // A power cut may cost the last transactions, never their order: what is missing is read from the ledger again.
    database.pragma("journal_mode = WAL");
    database.pragma("synchronous = NORMAL");
    if (tables === 0) {
      create(database);
    }
    return new CallRows(database);
  } catch (error) {
    database.close();
    throw error;
  }
}

const indexOf = (column: FilterColumn): string => `calls_by_${column}`;
const indexedBy = (column: FilterColumn | undefined): string =>
  `INDEXED BY ${column === undefined ? "calls_by_application" : indexOf(column)}`;
const equal = (columns: readonly FilterColumn[]): string => columns.map((column) => `AND ${column} = ?`).join(" ");
const valuesOf = (query: RowQuery, columns: readonly FilterColumn[]): string[] => columns.map((column) => query.filter[column] ?? "");

/** The filter that leaves the fewest rows to look at. Few calls are open at a time. */
function choosiest(filtered: readonly FilterColumn[], state: string | null): FilterColumn | undefined {
  const isOpen = (OPEN_STATES as readonly (string | null)[]).includes(state);
  const order: readonly FilterColumn[] = isOpen ? ["session", "subject", "state", ...FILTER_COLUMNS] : FILTER_COLUMNS;
  return order.find((column) => filtered.includes(column));
}

function create(database: Database.Database): void {
  const nullable: readonly string[] = ["agent", "subject", "session"];
  database.transaction(() => {
    database.exec(`
      CREATE TABLE calls (
        opened INTEGER PRIMARY KEY, call_id TEXT NOT NULL UNIQUE, application TEXT NOT NULL, state TEXT NOT NULL, tool TEXT NOT NULL,
        toolset TEXT NOT NULL, binding TEXT NOT NULL, agent TEXT, subject TEXT, session TEXT
      );
      CREATE TABLE place (
        one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, anchor_call TEXT, anchor_version INTEGER, anchor_entry TEXT
      );
      INSERT INTO place VALUES (1, 0, NULL, NULL, NULL);
      CREATE INDEX calls_by_application ON calls (application);
      ${FILTER_COLUMNS.map(
        (column) =>
          `CREATE INDEX ${indexOf(column)} ON calls (application, ${column})${nullable.includes(column) ? ` WHERE ${column} IS NOT NULL` : ""};`,
      ).join("\n")}
    `);
    database.pragma(`application_id = ${APPLICATION_ID}`);
    database.pragma(`user_version = ${FORMAT}`);
  })();
}

/** The open index file. Every method may throw what SQLite throws; {@link isBroken} tells damage from the rest. */
export class CallRows {
  readonly #database: Database.Database;
  readonly #queries = new Map<string, Database.Statement>();
  readonly #put: Database.Statement;
  readonly #putPlace: Database.Statement;
  readonly #stateOf: Database.Statement;
  readonly #write: (rows: Iterable<CallRow>, place: LedgerPlace) => void;

  constructor(database: Database.Database) {
    this.#database = database;
    this.#put = database.prepare(
      `INSERT INTO calls (opened, call_id, application, state, tool, toolset, binding, agent, subject, session)
       VALUES (@opened, @callId, @application, @state, @tool, @toolset, @binding, @agent, @subject, @session)
       ON CONFLICT (opened) DO UPDATE SET state = excluded.state`,
    );
    this.#putPlace = database.prepare("UPDATE place SET version = ?, anchor_call = ?, anchor_version = ?, anchor_entry = ?");
    this.#stateOf = database.prepare("SELECT state FROM calls WHERE call_id = ?").pluck();
    this.#write = database.transaction((rows: Iterable<CallRow>, place: LedgerPlace) => {
      for (const row of rows) {
        this.#put.run(row);
      }
      this.#putPlace.run(place.version, place.anchor?.callId ?? null, place.anchor?.version ?? null, place.anchor?.entryId ?? null);
    });
  }

  /** How far the rows go. */
  place(): LedgerPlace {
    const row = this.#database.prepare("SELECT version, anchor_call, anchor_version, anchor_entry FROM place").raw().get();
    if (!Array.isArray(row)) {
      return NO_PLACE;
    }
    const [version, callId, anchorVersion, entryId]: readonly unknown[] = row;
    const anchor =
      typeof callId === "string" && typeof anchorVersion === "number" && typeof entryId === "string"
        ? { callId, version: anchorVersion, entryId }
        : null;
    return typeof version === "number" ? { version, anchor } : NO_PLACE;
  }

  /** Writes rows and place together. */
  write(rows: Iterable<CallRow>, place: LedgerPlace): void {
    this.#write(rows, place);
  }

  /** Forgets everything: the ledger is another one. */
  clear(): void {
    this.#database.transaction(() => {
      this.#database.exec("DELETE FROM calls");
      this.#putPlace.run(0, null, null, null);
    })();
  }

  /** The state of a call's row, undefined when it has none. */
  stateOf(callId: string): string | undefined {
    const state: unknown = this.#stateOf.get(callId);
    return typeof state === "string" ? state : undefined;
  }

  /** Matching calls, the last accepted first. */
  find(query: RowQuery): FoundRows {
    const filtered = FILTER_COLUMNS.filter((column) => query.filter[column] !== null);
    const by = choosiest(filtered, query.filter.state);
    const along = by === undefined ? [] : [by];
    const start = query.before ?? Number.MAX_SAFE_INTEGER;
    const border = filtered.length > 1 ? this.#border(by, along, start, query) : undefined;
    const found = this.#select(
      `SELECT opened, call_id AS callId FROM calls ${indexedBy(by)} WHERE application = ? ${equal(filtered)}
       AND opened < ? AND opened >= ? ORDER BY opened DESC LIMIT ?`,
    ).all(query.application, ...valuesOf(query, filtered), start, border ?? 0, query.limit + 1) as { opened: Version; callId: string }[];
    const calls = found.slice(0, query.limit);
    const last = calls.at(-1);
    return { calls, next: found.length > query.limit && last !== undefined ? last.opened : (border ?? null) };
  }

  /** The last row that may be looked at; undefined when it is the last of all. The index alone answers this. */
  #border(by: FilterColumn | undefined, along: readonly FilterColumn[], start: Version, query: RowQuery): Version | undefined {
    const rows = this.#select(
      `SELECT opened FROM calls ${indexedBy(by)} WHERE application = ? ${equal(along)} AND opened < ? ORDER BY opened DESC LIMIT 2 OFFSET ?`,
    ).all(query.application, ...valuesOf(query, along), start, query.lookAtMax - 1) as { opened: Version }[];
    return rows.length === 2 ? rows[0]?.opened : undefined;
  }

  #select(sql: string): Database.Statement {
    const known = this.#queries.get(sql);
    const statement = known ?? this.#database.prepare(sql);
    this.#queries.set(sql, statement);
    return statement;
  }

  close(): void {
    this.#database.close();
  }
}
