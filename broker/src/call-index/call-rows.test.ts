import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { forAll } from "../testing/arbitrary-call.js";
import { FILTER_COLUMNS, type FilterColumn, NO_PLACE, type RowChange, type RowQuery } from "./call-rows.js";
import { openCallRows } from "./index-file.js";

const NO_FILTER: RowQuery["filter"] = { session: null, subject: null, agent: null, tool: null, toolset: null, binding: null, state: null };

const anyName = fc.constantFrom("a", "b");
const anyRow = fc.record({
  application: fc.constantFrom("default", "other"),
  state: fc.constantFrom("queued" as const, "succeeded" as const),
  tool: anyName,
  toolset: anyName,
  binding: anyName,
  agent: fc.option(anyName),
  subject: fc.option(anyName),
  session: fc.option(anyName),
});
const anyFilter: fc.Arbitrary<Partial<Record<FilterColumn, string>>> = fc.record(
  {
    session: anyName,
    subject: anyName,
    agent: anyName,
    tool: anyName,
    toolset: anyName,
    binding: anyName,
    state: fc.constantFrom("queued", "succeeded"),
  },
  { requiredKeys: [] },
);

/** Some calls share a stretch of the index, some have one of their own. */
const GAP = 130;

describe("CallRows", () => {
  it("finds page by page exactly the rows that match, newest first, however few it may look at a time", () => {
    forAll(
      fc.property(
        fc.array(anyRow, { maxLength: 40 }),
        anyFilter,
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 7 }),
        (made, wanted, limit, lookAtMax) => {
          const all = made.map(({ application, state, ...names }, index): RowChange => {
            const opened = GAP * index + 1;
            return { opened, last: opened, callId: `call_${index}`, application, state, names: { application, ...names } };
          });
          const { rows } = openCallRows(":memory:");
          try {
            rows.write(all, { version: GAP * 40, anchor: null });
            const filter = { ...NO_FILTER, ...wanted };
            const found: string[] = [];
            let before: number | null = null;
            let pages = 0;
            do {
              const page: ReturnType<typeof rows.find> = rows.find({ application: "default", filter, before, limit, lookAtMax });
              expect(page.calls.length).toBeLessThanOrEqual(limit);
              found.push(...page.calls.map(({ callId }) => callId));
              expect(page.next === null || before === null || page.next < before).toBe(true);
              before = page.next;
              pages += 1;
            } while (before !== null);
            const matches = all.filter(
              (row) =>
                row.application === "default" &&
                FILTER_COLUMNS.every(
                  (column) => filter[column] === null || filter[column] === (column === "state" ? row.state : row.names?.[column]),
                ),
            );
            expect(found).toEqual(matches.reverse().map(({ callId }) => callId));
            expect(pages).toBeLessThanOrEqual(Math.max(1, matches.length + Math.ceil(all.length / lookAtMax)));
          } finally {
            rows.close();
          }
        },
      ),
      300,
    );
  });

  const CHANGE: RowChange = {
    opened: 5,
    last: 5,
    callId: "call_a",
    application: "default",
    state: "queued",
    names: { application: "default", tool: "t", toolset: "s", binding: "b", agent: null, subject: null, session: null },
  };

  it("keeps rows and place together, changes a state in its place, and forgets all at once", () => {
    const { rows } = openCallRows(":memory:");
    expect(rows.place()).toEqual(NO_PLACE);
    const place = { version: 9, anchor: { callId: "call_a", version: 8, entryId: "entry_8" } };
    rows.write([CHANGE], place);
    expect(rows.openRow("call_a")).toEqual({ opened: 5, last: 5, application: "default", state: "queued" });
    rows.write([{ ...CHANGE, last: 8, state: "running", names: undefined }], place);
    expect(rows.openRow("call_a")).toEqual({ opened: 5, last: 8, application: "default", state: "running" });
    rows.write([{ ...CHANGE, last: 9, state: "succeeded", names: undefined }], place);
    expect(rows.place()).toEqual(place);
    expect([rows.openRow("call_a"), rows.openRow("call_b")]).toEqual([undefined, undefined]);
    const succeeded = { application: "default", filter: { ...NO_FILTER, state: "succeeded" }, before: null, limit: 10, lookAtMax: 10 };
    expect(rows.find(succeeded).calls).toEqual([{ opened: 5, callId: "call_a" }]);
    rows.clear();
    expect([rows.place(), rows.find(succeeded).calls]).toEqual([NO_PLACE, []]);
    rows.close();
  });

  it("writes all of a batch or none of it, and writes it whole when it is repeated", () => {
    const { rows } = openCallRows(":memory:");
    const other = { ...CHANGE, opened: 6, callId: "call_b" };
    expect(() => rows.write([CHANGE, other, CHANGE], { version: 6, anchor: null })).toThrow(/UNIQUE/);
    expect([rows.place(), rows.openRow("call_a")]).toEqual([NO_PLACE, undefined]);
    rows.write([CHANGE, other], { version: 6, anchor: null });
    const byTool = { application: "default", filter: { ...NO_FILTER, tool: "t" }, before: null, limit: 10, lookAtMax: 10 };
    expect(rows.find(byTool).calls.map(({ callId }) => callId)).toEqual(["call_b", "call_a"]);
    rows.close();
  });

  it("finds rare values among many calls without looking at the stretches between", () => {
    const { rows } = openCallRows(":memory:");
    const calls = 200_000;
    const names = CHANGE.names ?? { application: "", tool: "", toolset: "", binding: "", agent: null, subject: null, session: null };
    const rare = (call: number): boolean => call % 40_000 === 7;
    rows.write(
      Array.from(
        { length: calls },
        (_, call): RowChange => ({
          ...CHANGE,
          opened: 2 * call + 1,
          callId: `call_${call}`,
          state: call % 50_000 === 9 ? "failed" : "succeeded",
          names: rare(call) ? { ...names, tool: "rare", binding: "far" } : names,
        }),
      ),
      { version: 2 * calls, anchor: null },
    );
    const found = (filter: Partial<Record<FilterColumn, string>>): (number | null)[] => {
      const { calls: all, next } = rows.find({
        application: "default",
        filter: { ...NO_FILTER, ...filter },
        before: null,
        limit: 100,
        lookAtMax: 10_000,
      });
      return [...all.map(({ callId }) => Number(callId.slice("call_".length))), next];
    };
    const begun = performance.now();
    expect(found({ tool: "rare" })).toEqual([160_007, 120_007, 80_007, 40_007, 7, null]);
    expect(found({ tool: "rare", binding: "far", state: "succeeded" })).toEqual([160_007, 120_007, 80_007, 40_007, 7, null]);
    expect(found({ state: "failed" })).toEqual([150_009, 100_009, 50_009, 9, null]);
    expect(found({ tool: "rare", state: "failed" })).toEqual([null]);
    expect(found({ binding: "nowhere" })).toEqual([null]);
    expect(performance.now() - begun).toBeLessThan(500);
    rows.close();
  });
});
