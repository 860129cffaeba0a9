import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { forAll } from "../testing/arbitrary-call.js";
import { type CallRow, FILTER_COLUMNS, type FilterColumn, NO_PLACE, openCallRows, type RowQuery } from "./call-rows.js";

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

describe("CallRows", () => {
  it("finds page by page exactly the rows that match, newest first, however few it may look at a time", () => {
    forAll(
      fc.property(
        fc.array(anyRow, { maxLength: 40 }),
        anyFilter,
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 7 }),
        (made, wanted, limit, lookAtMax) => {
          const all = made.map((row, index): CallRow => ({ ...row, opened: 3 * index + 1, callId: `call_${index}` }));
          const { rows } = openCallRows(":memory:");
          try {
            rows.write(all, { version: 1_000, anchor: null });
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
                FILTER_COLUMNS.every((column) => filter[column] === null || filter[column] === row[column]),
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

  it("keeps rows and place together, changes a state in its place, and forgets all at once", () => {
    const { rows } = openCallRows(":memory:");
    const row: CallRow = {
      opened: 5,
      callId: "call_a",
      application: "default",
      state: "queued",
      tool: "t",
      toolset: "s",
      binding: "b",
      agent: null,
      subject: null,
      session: null,
    };
    expect(rows.place()).toEqual(NO_PLACE);
    const place = { version: 9, anchor: { callId: "call_a", version: 8, entryId: "entry_8" } };
    rows.write([row], place);
    rows.write([{ ...row, state: "succeeded" }], place);
    expect(rows.place()).toEqual(place);
    expect([rows.stateOf("call_a"), rows.stateOf("call_b")]).toEqual(["succeeded", undefined]);
    rows.clear();
    expect([rows.place(), rows.stateOf("call_a")]).toEqual([NO_PLACE, undefined]);
    rows.close();
  });

  it("writes all of a batch or none of it", () => {
    const { rows } = openCallRows(":memory:");
    const row: CallRow = {
      opened: 1,
      callId: "call_a",
      application: "default",
      state: "queued",
      tool: "t",
      toolset: "s",
      binding: "b",
      agent: null,
      subject: null,
      session: null,
    };
    expect(() => rows.write([row, { ...row, opened: 2 }], { version: 2, anchor: null })).toThrow(/UNIQUE/);
    expect([rows.place(), rows.stateOf("call_a")]).toEqual([NO_PLACE, undefined]);
    rows.close();
  });
});
