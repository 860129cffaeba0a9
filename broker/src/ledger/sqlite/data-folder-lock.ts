/**
 * One process at a time may write a data folder.
 *
 * The lock is an open exclusive transaction on a small database of its own. The operating system releases it with the process,
 * however that ends; nothing is written in it, so there is nothing to clean up after a crash.
 */
import { chmodSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import Database from "better-sqlite3";
import { LedgerError } from "../../domain/ports/ledger.js";
import { openSqlite } from "../../sqlite/open-sqlite.js";

/** Held until {@link DataFolderLock.release}, or the end of the process. */
export interface DataFolderLock {
  release(): void;
}

/**
 * Makes the folder (for its owner only) when it is absent, and locks it.
 * Throws {@link LedgerError} `in_use` when another process, or this one, holds it, and `misconfigured` when it cannot be made.
 */
export function lockDataFolder(dataDir: string): DataFolderLock {
  const path = join(dataDir, "ledger.lock");
  let database: Database.Database;
  try {
    if (mkdirSync(dataDir, { recursive: true, mode: 0o700 }) !== undefined) chmodSync(dataDir, 0o700);
    database = openSqlite(path, { timeout: 0 });
  } catch (cause) {
    throw new LedgerError("misconfigured", `the data folder ${dataDir} cannot be used: ${textOf(cause)}`, { cause });
  }
  try {
    // Memory journal: the lock never leaves a journal beside it that a later start would have to roll back.
    database.pragma("journal_mode = MEMORY");
    database.exec("BEGIN EXCLUSIVE");
  } catch (cause) {
    database.close();
    if (cause instanceof Database.SqliteError && cause.code.startsWith("SQLITE_BUSY")) {
      throw new LedgerError(
        "in_use",
        `the data folder ${dataDir} is in use by another broker: stop that one, or start this one with another data folder`,
        { cause },
      );
    }
    throw new LedgerError("misconfigured", `the data folder ${dataDir} cannot be locked: ${textOf(cause)}`, { cause });
  }
  return {
    release: () => {
      if (!database.open) return;
      database.exec("ROLLBACK");
      database.close();
    },
  };
}

function textOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
