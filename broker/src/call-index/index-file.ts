/**
 * The SQLite file of the call index: opened, recognised, and made anew where it does not fit.
 *
 * Invariants:
 * - Nothing here is the truth: a file that is broken or of another format is made anew.
 * - Only files with the index's own mark are deleted. A database of something else is refused, and what is no database at all
 *   is put aside as `.broken`.
 */
import { closeSync, openSync, readSync, renameSync, rmSync } from "node:fs";
import Database from "better-sqlite3";
import { openSqlite } from "../sqlite/open-sqlite.js";
import { CallRows, createTables } from "./call-rows.js";

/** Rises with every change of the tables: an index of another format is rebuilt. */
const FORMAT = 2;
/** "TRci" in SQLite's header: tells the index from other databases. */
const APPLICATION_ID = 0x54526369;
const CACHE_KIB = 8_192;

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

/** `kept`: it is opened again by a later process, also after a power cut. `temporary`: it ends with this process, and is never synced. */
export type FileLife = "kept" | "temporary";

export interface OpenedRows {
  readonly rows: CallRows;
  /** Why what was in the file before is gone; null when it was kept or there was none. */
  readonly dropped: "broken" | "format" | null;
}

/** Opens or makes the index file (`:memory:` keeps it in the process). Throws {@link CallIndexError}. */
export function openCallRows(file: string, life: FileLife = "kept"): OpenedRows {
  try {
    const found = open(file, life);
    if (found !== "format") {
      return { rows: found, dropped: null };
    }
    return { rows: remakeCallRows(file, life), dropped: "format" };
  } catch (error) {
    if (!isBroken(error)) {
      throw unusable(file, error);
    }
    return { rows: remakeCallRows(file, life), dropped: "broken" };
  }
}

/** Does a process have the index open? A file that is not there, or is no database, is held by nobody. */
export function isIndexHeld(file: string): boolean {
  let database: Database.Database;
  try {
    database = openSqlite(file, { fileMustExist: true, timeout: 0 });
  } catch {
    return false;
  }
  try {
    database.exec("BEGIN EXCLUSIVE");
    return false;
  } catch (error) {
    return error instanceof Database.SqliteError && error.code.startsWith("SQLITE_BUSY");
  } finally {
    database.close();
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
export function remakeCallRows(file: string, life: FileLife = "kept"): CallRows {
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
    const made = open(file, life);
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

function open(file: string, life: FileLife): CallRows | "format" {
  const database = openSqlite(file, { timeout: 1_000 });
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
    database.pragma(`synchronous = ${life === "kept" ? "NORMAL" : "OFF"}`);
    database.pragma(`cache_size = -${CACHE_KIB}`);
    if (tables === 0) {
      database.transaction(() => {
        createTables(database);
        database.pragma(`application_id = ${APPLICATION_ID}`);
        database.pragma(`user_version = ${FORMAT}`);
      })();
    }
    return new CallRows(database);
  } catch (error) {
    database.close();
    throw error;
  }
}
