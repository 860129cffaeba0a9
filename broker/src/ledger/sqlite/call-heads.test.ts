import type Database from "better-sqlite3";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { openSqlite } from "../../sqlite/open-sqlite.js";
import { forAll } from "../../testing/arbitrary-call.js";
import { CallHeads, HEADS_SCHEMA, NONE, OPENS, SETTLES } from "./call-heads.js";

function emptyDatabase(): Database.Database {
  const database = openSqlite(":memory:");
  database.exec(
    `CREATE TABLE entries (version INTEGER PRIMARY KEY AUTOINCREMENT, call_id TEXT NOT NULL, mark INTEGER NOT NULL); ${HEADS_SCHEMA}`,
  );
  return database;
}

/** Stores one entry as the ledger does: its row, the head, and a slice of the index. */
function appendTo(database: Database.Database, heads: CallHeads, callId: string, mark: number): number {
  const version = Number(database.prepare("INSERT INTO entries (call_id, mark) VALUES (?, ?)").run(callId, mark).lastInsertRowid);
  heads.moved(callId, version, mark);
  heads.fold(1, version);
  return version;
}

/** Removes all entries of a call as the ledger does. */
function removeFrom(database: Database.Database, heads: CallHeads, callId: string): void {
  database.prepare("DELETE FROM entries WHERE call_id = ?").run(callId);
  heads.removed(callId, 0);
}

function allOpen(heads: CallHeads): string[] {
  const all: string[] = [];
  let after = "";
  for (;;) {
    const { callIds, more } = heads.openAfter(after);
    all.push(...callIds);
    after = callIds.at(-1) ?? after;
    if (!more) return all;
  }
}

describe("CallHeads", () => {
  it("knows each call's last version and the open calls, after any moves, removals, slices and restarts (L2, L4, L6)", () => {
    const step = fc.record({ call: fc.nat({ max: 30 }), restart: fc.nat({ max: 9 }), remove: fc.boolean() });
    forAll(
      fc.property(fc.array(step, { maxLength: 200 }), fc.integer({ min: 1, max: 20 }), (steps, gathered) => {
        const database = emptyDatabase();
        let heads = new CallHeads(database, gathered);
        const model = new Map<string, { last: number; moves: number }>();
        for (const { call, restart, remove } of steps) {
          const callId = `call_${call}`;
          const known = model.get(callId) ?? { last: 0, moves: 0 };
          // Opened, moved, settled, and then evidence.
          const mark = [OPENS, NONE, SETTLES, NONE][Math.min(3, known.moves)] ?? NONE;
          if (remove && known.moves >= 3) {
            removeFrom(database, heads, callId);
            model.delete(callId);
          } else {
            model.set(callId, { last: appendTo(database, heads, callId, mark), moves: known.moves + 1 });
          }
          if (restart === 0) heads = new CallHeads(database, gathered);
          if (restart === 1) expect(allOpen(heads)).toEqual(openIn(model));
        }
        for (let call = 0; call <= 30; call += 1) expect(heads.last(`call_${call}`)).toBe(model.get(`call_${call}`)?.last ?? 0);
        expect(heads.last("call_unknown")).toBe(0);
        expect(allOpen(heads)).toEqual(openIn(model));
        database.close();
      }),
      200,
    );
  });

  it("keeps few calls in memory, and starts with few, however many are stored", () => {
    const database = emptyDatabase();
    const heads = new CallHeads(database, 100);
    let most = 0;
    for (let call = 0; call < 5_000; call += 1) {
      appendTo(database, heads, `call_${(call * 7_919) % 5_000}`, OPENS);
      most = Math.max(most, heads.inMemory);
    }
    expect(most).toBeLessThanOrEqual(200);
    const after = new CallHeads(database, 100);
    expect(after.inMemory).toBeLessThanOrEqual(200);
    expect(allOpen(after)).toHaveLength(5_000);
    expect(allOpen(after)).toEqual(allOpen(heads));
    database.close();
  });
});

function openIn(model: ReadonlyMap<string, { readonly moves: number }>): string[] {
  return [...model]
    .filter(([, { moves }]) => moves < 3)
    .map(([callId]) => callId)
    .sort();
}
