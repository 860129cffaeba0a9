import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Ledger, LedgerError } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { openSqlite } from "../../sqlite/open-sqlite.js";
import { describeLedger } from "../testing/describe-ledger.js";
import { collect, entry, freshId, tailUntil, versionOf } from "../testing/ledger-harness.js";
import { openSqliteLedger } from "./sqlite-ledger.js";

const silent: Log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

/** A failure of the store must fail the test, not end its process. */
const unexpected = (error: Error): void => {
  throw error;
};

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-sqlite-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

describeLedger("sqlite", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "toolrunner-sqlite-"));
  return {
    shared: false,
    open: () => openSqliteLedger({ dataDir, log: silent, onFatal: unexpected }),
    corruptBlob: async (name) => {
      const database = openSqlite(join(dataDir, "ledger.db"));
      const { changes } = database.prepare("UPDATE blobs SET text = text || '!' WHERE name = ?").run(name);
      database.close();
      if (changes !== 1) throw new Error(`no blob ${name} to corrupt`);
    },
    dispose: () => rm(dataDir, { recursive: true, force: true }),
  };
});

describe("the SQLite ledger", () => {
  const opened = async (dataDir: string, onFatal = unexpected): Promise<Ledger> => {
    const ledger = await openSqliteLedger({ dataDir, log: silent, onFatal, busyTimeoutMs: 50 });
    onTestFinished(() => ledger.close());
    return ledger;
  };

  it("refuses a data folder that another ledger holds, names it, and can open it once that one is closed (L8)", async () => {
    const dataDir = join(await freshFolder(), "made", "on demand");
    const first = await openSqliteLedger({ dataDir, log: silent, onFatal: unexpected });
    await expect(opened(dataDir)).rejects.toSatisfy(
      (error) =>
        error instanceof LedgerError && error.code === "in_use" && error.message.includes(dataDir) && error.message.includes("stop"),
    );
    await first.append(freshId("call"), 0, entry("the holder is not disturbed"));
    await first.close();
    await (await opened(dataDir)).check();
  });

  it("uses the room of removed calls and values again: its file does not grow for ever (L6)", async () => {
    const dataDir = await freshFolder();
    const sizes: number[] = [];
    for (let round = 0; round < 4; round += 1) {
      const ledger = await openSqliteLedger({ dataDir, log: silent, onFatal: unexpected });
      for (let number = 0; number < 12; number += 1) {
        const callId = freshId("call");
        const first = versionOf(await ledger.append(callId, 0, entry("a".repeat(200_000), "opens")));
        const name = `${callId}/blob_1`;
        await ledger.blobs.put(name, "b".repeat(400_000));
        const last = versionOf(await ledger.append(callId, first, entry("c", "settles")));
        await ledger.blobs.remove({ name, place: (await ledger.blobs.placeOf(name)) ?? 0 });
        await ledger.remove(callId, [first, last]);
      }
      await ledger.close();
      sizes.push((await stat(join(dataDir, "ledger.db"))).size);
    }
    // One call at a time, of 600 kB each; 48 of them were stored.
    expect(Math.max(...sizes)).toBeLessThan(2_000_000);
  });

  it("refuses a folder that cannot be used with the reason", async () => {
    await expect(opened("/dev/null/data")).rejects.toSatisfy(
      (error) => error instanceof LedgerError && error.code === "misconfigured" && error.message.includes("/dev/null/data"),
    );
  });

  it("refuses a database of a newer schema and leaves it as it is", async () => {
    const dataDir = await freshFolder();
    const database = openSqlite(join(dataDir, "ledger.db"));
    database.pragma("user_version = 99");
    database.close();
    await expect(opened(dataDir)).rejects.toSatisfy((error) => error instanceof LedgerError && error.code === "misconfigured");
    await expect(opened(dataDir)).rejects.toSatisfy((error) => error instanceof LedgerError && error.code === "misconfigured");
  });

  it("takes over a database of schema 1 with its calls, open and settled, and goes on with it", async () => {
    const dataDir = await freshFolder();
    const database = openSqlite(join(dataDir, "ledger.db"));
    database.exec(`
      CREATE TABLE entries (version INTEGER PRIMARY KEY AUTOINCREMENT, call_id TEXT NOT NULL, previous INTEGER NOT NULL, entry_id TEXT NOT NULL, data TEXT NOT NULL) STRICT;
      CREATE INDEX entries_of_call ON entries (call_id);
      CREATE TABLE open_calls (call_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
      CREATE TABLE blobs (name TEXT PRIMARY KEY, digest TEXT NOT NULL, text TEXT NOT NULL) STRICT;
      INSERT INTO entries VALUES (1, 'call_a', 0, 'entry_1', 'a1'), (2, 'call_b', 0, 'entry_2', 'b1'), (3, 'call_a', 1, 'entry_3', 'a2');
      INSERT INTO open_calls VALUES ('call_b');
      PRAGMA user_version = 1;
    `);
    database.close();
    for (const last of [2, 4]) {
      const ledger = await openSqliteLedger({ dataDir, log: silent, onFatal: unexpected });
      expect((await collect(ledger.read("call_a"))).map(({ version, data }) => [version, data])).toEqual([
        [1, "a1"],
        [3, "a2"],
      ]);
      expect((await collect(ledger.openCalls())).map(({ callId }) => callId)).toEqual(["call_b"]);
      expect(await ledger.append("call_a", 1, entry("late"))).toEqual({ kind: "conflict", current: 3 });
      expect(await ledger.append("call_b", last, { ...entry("b"), note: "running" })).toEqual({
        kind: "appended",
        version: last + (last === 2 ? 2 : 1),
      });
      await ledger.close();
    }
    const after = await opened(dataDir);
    const tailed = await tailUntil(after, 1, (seen) => seen.length === 5);
    expect(tailed.map(({ version, note, data }) => [version, note, data])).toEqual([
      [1, undefined, "a1"],
      [2, undefined, "b1"],
      [3, undefined, "a2"],
      [4, "running", undefined],
      [5, "running", undefined],
    ]);
  });

  it("takes a call anew whose entries were all deleted by hand", async () => {
    const dataDir = await freshFolder();
    const callId = freshId("call");
    const ledger = await opened(dataDir);
    versionOf(await ledger.append(callId, 0, entry("old", "opens")));
    const database = openSqlite(join(dataDir, "ledger.db"));
    database.exec("DELETE FROM entries");
    database.close();
    expect(await collect(ledger.read(callId))).toEqual([]);
    const anew = versionOf(await ledger.append(callId, 0, entry("new", "opens")));
    expect((await collect(ledger.read(callId))).map(({ version, data }) => [version, data])).toEqual([[anew, "new"]]);
  });

  it("never gives out the version of a deleted entry again, also after a restart (L3)", async () => {
    const dataDir = await freshFolder();
    const before = await openSqliteLedger({ dataDir, log: silent, onFatal: unexpected });
    const highest = versionOf(await before.append(freshId("call"), 0, entry("x")));
    await before.close();
    const database = openSqlite(join(dataDir, "ledger.db"));
    database.exec("DELETE FROM entries");
    database.close();
    const after = await opened(dataDir);
    expect(versionOf(await after.append(freshId("call"), 0, entry("y")))).toBeGreaterThan(highest);
    const abort = new AbortController();
    for await (const stored of after.tail(1, abort.signal)) {
      expect(stored.version).toBeGreaterThan(highest);
      abort.abort();
    }
  });

  it("keeps its database in write-ahead mode, so that it can be read while the broker runs", async () => {
    const dataDir = await freshFolder();
    await (await opened(dataDir)).append(freshId("call"), 0, entry("x"));
    const database = openSqlite(join(dataDir, "ledger.db"), { readonly: true });
    expect(database.pragma("journal_mode", { simple: true })).toBe("wal");
    database.close();
  });

  it("answers nothing and says so once when a transaction fails (L8)", async () => {
    const dataDir = await freshFolder();
    const failures: Error[] = [];
    let failed: () => void = () => undefined;
    const fatal = new Promise<void>((resolve) => {
      failed = resolve;
    });
    const ledger = await opened(dataDir, (error) => {
      failures.push(error);
      failed();
    });
    versionOf(await ledger.append(freshId("call"), 0, entry("before")));
    const intruder = openSqlite(join(dataDir, "ledger.db"));
    onTestFinished(() => void intruder.close());
    intruder.exec("BEGIN IMMEDIATE");
    let answered = 0;
    const appends = Array.from({ length: 10 }, () => ledger.append(freshId("call"), 0, entry("unknown")));
    for (const append of appends) void append.finally(() => (answered += 1));
    await fatal;
    intruder.exec("ROLLBACK");
    await expect(ledger.check()).rejects.toSatisfy((error) => error instanceof LedgerError && error.code === "unreachable");
    void ledger.append(freshId("call"), 0, entry("after")).finally(() => (answered += 1));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect([failures.length, answered]).toEqual([1, 0]);
  });

  it("stores what was asked for before close", async () => {
    const dataDir = await freshFolder();
    const ledger = await openSqliteLedger({ dataDir, log: silent, onFatal: unexpected });
    const callIds = Array.from({ length: 50 }, () => freshId("call"));
    const appends = callIds.map((callId) => ledger.append(callId, 0, entry("x", "opens")));
    await ledger.close();
    expect((await Promise.all(appends)).map(({ kind }) => kind)).toEqual(callIds.map(() => "appended"));
    const after = await opened(dataDir);
    expect((await collect(after.openCalls())).map(({ callId }) => callId).sort()).toEqual([...callIds].sort());
  });
});
