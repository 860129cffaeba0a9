import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { keptSqliteObjects, openSqlite } from "./open-sqlite.js";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

function useAndLose(): void {
  const database = openSqlite(":memory:");
  database.pragma("cache_size = -100");
  database.exec("CREATE TABLE numbers (n INTEGER)");
  database.transaction(() => database.prepare("INSERT INTO numbers VALUES (?)").run(1))();
  expect(database.prepare("SELECT n FROM numbers").pluck().all()).toEqual([1]);
  database.close();
}

describe("openSqlite", () => {
  it("keeps databases and statements, however they were made: no garbage collection ends the process", () => {
    for (let round = 0; round < 50; round += 1) {
      useAndLose();
    }
    collectGarbage();
    collectGarbage();
    const before = keptSqliteObjects();
    useAndLose();
    // The wrapper, the add-on's object, the pragma, the insert, the select; and what a transaction begins and ends with.
    expect(keptSqliteObjects() - before).toBeGreaterThanOrEqual(7);
  });

  it("keeps nothing more for what is read and written", () => {
    const database = openSqlite(":memory:");
    database.exec("CREATE TABLE numbers (n INTEGER)");
    const insert = database.prepare("INSERT INTO numbers VALUES (?)");
    const all = database.prepare("SELECT n FROM numbers").raw();
    const before = keptSqliteObjects();
    for (let n = 0; n < 100; n += 1) {
      insert.run(n);
    }
    expect(all.all()).toHaveLength(100);
    expect(keptSqliteObjects()).toBe(before);
    database.close();
  });
});
