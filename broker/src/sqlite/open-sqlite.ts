/**
 * Opens SQLite files for the parts of the broker that keep one.
 *
 * Invariant: what the add-on made is never garbage. On Node 24.19 and newer the destructors of better-sqlite3 12 end the process when
 * the garbage collector runs them (`RemoveEnvironmentCleanupHook`, assertion `(env) != nullptr`; reported to WiseLibs as 1515),
 * and version 13 does not run on Node 20. So databases and their statements stay reachable for as long as the process lives. A
 * database costs some kilobytes when it is closed; statements must be prepared once, not for each use, and nothing may `iterate`: its
 * iterators would be garbage.
 */
import Database from "better-sqlite3";

/** The one list of the process: it is the process that must not lose them, whichever broker opened them. */
const kept: unknown[] = [];

interface AddOn {
  prepare(...args: readonly unknown[]): unknown;
}

/**
 * Opens a database; the options are those of better-sqlite3, whose errors it throws.
 *
 * @returns a database of which every statement that is prepared lives as long as the process: `pragma` and `transaction` prepare too.
 */
export function openSqlite(file: string, options?: Database.Options): Database.Database {
  const database = new Database(file, options);
  kept.push(database);
  // The wrapper keeps the add-on's own object under a symbol, and prepares everything through it.
  for (const key of Object.getOwnPropertySymbols(database)) {
    const inner = Reflect.get(database, key) as Partial<AddOn> | undefined;
    const prepare = inner?.prepare;
    if (inner !== undefined && typeof prepare === "function") {
      kept.push(inner);
      inner.prepare = (...args) => {
        const statement = prepare.apply(inner, [...args]);
        kept.push(statement);
        return statement;
      };
    }
  }
  return database;
}

/** Databases and statements that are kept: grows with what is opened and prepared, not with what is read or written. */
export function keptSqliteObjects(): number {
  return kept.length;
}
