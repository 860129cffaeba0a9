/**
 * The catalog store of an embedded broker: one SQLite file, `catalog.db` in the data folder.
 *
 * Invariants:
 * 1. A write is on disk when its promise resolves (`synchronous=FULL`, write-ahead log).
 * 2. Revisions are row ids of an AUTOINCREMENT table: without it SQLite would hand out a deleted highest id again (L3).
 * 3. Reads go to the file: this process is its only writer, and SQLite's page cache is the memory.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type Database from "better-sqlite3";
import { type CatalogDocument, type CatalogStore, CatalogStoreError } from "../../domain/ports/catalog-store.js";
import type { Log } from "../../domain/ports/log.js";
import { openSqlite } from "../../sqlite/open-sqlite.js";
import { createChangeListeners } from "./change-listeners.js";
import { checkPath, checkPrefix, checkValue } from "./document-rules.js";

export interface SqliteCatalogStoreOptions {
  /** The data folder, made when absent (mode 0700). */
  readonly directory: string;
  readonly log?: Log | undefined;
}

/** Version of the table layout; a file of a newer one is refused. */
const LAYOUT = 1;

/** Opens `catalog.db`. Throws {@link CatalogStoreError} `unreachable` when the file cannot be opened, is damaged or is of a newer layout. */
export function createSqliteCatalogStore(options: SqliteCatalogStoreOptions): CatalogStore {
  const file = join(options.directory, "catalog.db");
  const database = open(options.directory, file);
  const listeners = createChangeListeners(options.log);

  const select = database.prepare<[string], CatalogDocument>("SELECT path, value, revision FROM documents WHERE path = ?");
  const selectBelow = database.prepare<[string, string], CatalogDocument>(
    "SELECT path, value, revision FROM documents WHERE path > ? AND path < ? ORDER BY path",
  );
  const insert = database.prepare<[string, string]>("INSERT INTO documents (path, value) VALUES (?, ?)");
  const remove = database.prepare<[string]>("DELETE FROM documents WHERE path = ?");
  const ping = database.prepare("SELECT 1");

  const replace = database.transaction((path: string, value: string, expected: number) => {
    const current = select.get(path);
    if ((current?.revision ?? 0) !== expected) return { kind: "conflict", current } as const;
    if (current !== undefined) remove.run(path);
    return { kind: "stored", revision: Number(insert.run(path, value).lastInsertRowid) } as const;
  });

  /** Runs `task` on the open file; what SQLite throws becomes `unreachable`. */
  function use<T>(task: () => T): T {
    if (!database.open) throw new CatalogStoreError("closed", "The catalog store is closed.");
    try {
      return task();
    } catch (error) {
      throw new CatalogStoreError(
        "unreachable",
        `The catalog's file ${file} cannot be used: ${reason(error)}. Check disk and permissions.`,
        {
          cause: error,
        },
      );
    }
  }

  return {
    peek: (path) => use(() => select.get(path)),
    peekAll(prefix) {
      checkPrefix(prefix);
      // "0" is the character after "/".
      return use(() => selectBelow.all(prefix, `${prefix.slice(0, -1)}0`));
    },
    async read(path) {
      checkPath(path);
      return use(() => select.get(path));
    },
    async put(path, value, expected) {
      checkPath(path);
      checkValue(path, value);
      const outcome = use(() => replace.immediate(path, value, expected));
      if (outcome.kind === "stored") listeners.tell(path, { path, value, revision: outcome.revision });
      return outcome;
    },
    async delete(path) {
      checkPath(path);
      if (use(() => remove.run(path)).changes > 0) listeners.tell(path, undefined);
    },
    watch: (listener) => listeners.add(listener),
    async check() {
      use(() => ping.get());
    },
    async close() {
      listeners.clear();
      if (database.open) database.close();
    },
  };
}

function open(directory: string, file: string): Database.Database {
  let database: Database.Database | undefined;
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    database = openSqlite(file, { timeout: 2_000 });
    database.pragma("journal_mode = WAL");
    database.pragma("synchronous = FULL");
    const layout = Number(database.pragma("user_version", { simple: true }));
    if (layout > LAYOUT) throw new Error(`it was written by a newer version (layout ${layout}, this one knows ${LAYOUT})`);
    database.exec(
      "CREATE TABLE IF NOT EXISTS documents (revision INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, value TEXT NOT NULL) STRICT",
    );
    database.pragma(`user_version = ${LAYOUT}`);
    return database;
  } catch (error) {
    database?.close();
    throw new CatalogStoreError(
      "unreachable",
      `The catalog's file ${file} cannot be opened: ${reason(error)}. Check the data folder, or start with another one.`,
      { cause: error },
    );
  }
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
