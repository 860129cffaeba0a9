import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyText, forAll } from "../../testing/arbitrary-call.js";
import { MODEL_RESULT_BYTES_MAX, MODEL_RESULT_BYTES_MIN } from "../limits.js";
import { characterBorder, project } from "./projection.js";

const REF = "/v1/calls/call_0123456789abcdefghijklmnop/result";
const NOTICE = /\n\[… (\d+) bytes cut[^\n]* …\]\n/;

const anyBudget = fc.integer({ min: MODEL_RESULT_BYTES_MIN, max: 4_096 });
/** Long texts of parts that are awkward to cut, as the JSON of a string. */
const anyLongJson = fc
  .array(
    fc.oneof(
      anyText,
      fc.constantFrom("👩‍👩‍👧‍👦", "🇩🇪🇫🇷🇯🇵", "e\u0301\u0323", "한국어", "नमस्ते", '"\\"\\', "\u0000\u001f", "\r\n", "👍🏽", "z".repeat(40)),
    ),
    { minLength: 20, maxLength: 60 },
  )
  .chain((parts) => fc.nat({ max: 30 }).map((times) => JSON.stringify(parts.join("").repeat(times + 1))));

/** Head, number of bytes cut and tail of a cut text. */
function partsOf(text: string): { readonly head: string; readonly cut: number; readonly tail: string } {
  const found = NOTICE.exec(text);
  if (found === null) {
    throw new Error(`no notice in ${text.slice(0, 100)}`);
  }
  return { head: text.slice(0, found.index), cut: Number(found[1]), tail: text.slice(found.index + found[0].length) };
}

describe("project (J1)", () => {
  it("never gives more bytes than the budget, and says how many it gave", () => {
    forAll(
      fc.property(anyLongJson, anyBudget, (json, budget) => {
        const shown = project(json, budget, REF);
        expect(shown.bytesAfter).toBeLessThanOrEqual(budget);
        expect(shown.bytesAfter).toBe(Buffer.byteLength(shown.text));
        expect(shown.bytesBefore).toBe(Buffer.byteLength(json));
        expect(shown.truncated).toBe(shown.bytesBefore > budget);
      }),
      500,
    );
  });

  it("keeps head and tail of the whole, and says how much is cut between them and where the whole is", () => {
    forAll(
      fc.property(anyLongJson, anyBudget, (json, budget) => {
        const shown = project(json, budget, REF);
        if (!shown.truncated) {
          expect(shown.text).toBe(json);
          return;
        }
        const { head, cut, tail } = partsOf(shown.text);
        expect(json.startsWith(head)).toBe(true);
        expect(json.endsWith(tail)).toBe(true);
        expect(head.length).toBeGreaterThan(budget * 0.15);
        expect(tail.length).toBeGreaterThan(budget * 0.05);
        expect(cut).toBe(shown.bytesBefore - Buffer.byteLength(head) - Buffer.byteLength(tail));
        expect(shown.text).toContain(REF);
      }),
      300,
    );
  });

  it("splits no UTF-8 sequence: its text survives encoding", () => {
    forAll(
      fc.property(anyLongJson, anyBudget, (json, budget) => {
        const { text } = project(json, budget, REF);
        // A replacement character may only come from the value itself.
        expect(text.includes("\ufffd") && !json.includes("\ufffd")).toBe(false);
        expect(Buffer.from(text).toString("utf8")).toBe(text);
      }),
      300,
    );
  });

  it("splits no joined character", () => {
    forAll(
      fc.property(anyLongJson, anyBudget, (json, budget) => {
        const shown = project(json, budget, REF);
        if (shown.truncated) {
          const { head, tail } = partsOf(shown.text);
          const clusters = new Intl.Segmenter("en", { granularity: "grapheme" }).segment(json);
          expect(clusters.containing(head.length)?.index).toBe(head.length);
          expect(clusters.containing(json.length - tail.length)?.index).toBe(json.length - tail.length);
        }
      }),
      60,
    );
  });

  it("splits no JSON escape: closing its quotes makes head and tail JSON again", () => {
    forAll(
      fc.property(anyLongJson, anyBudget, (json, budget) => {
        const shown = project(json, budget, REF);
        if (shown.truncated) {
          const { head, tail } = partsOf(shown.text);
          expect(`${JSON.parse(`${head}"`)}`.length).toBeGreaterThan(0);
          const whole: unknown = JSON.parse(json);
          const end: unknown = JSON.parse(`"${tail}`);
          expect(typeof whole === "string" && typeof end === "string" && whole.endsWith(end)).toBe(true);
        }
      }),
      300,
    );
  });

  it.each([
    ["backslashes", "\\"],
    ["quotes", '"'],
    ["control characters", "\u0001"],
    ["a family of four", "👩‍👩‍👧‍👦"],
    ["flags", "🇩🇪"],
    ["letters with marks", "e\u0301"],
    ["lone surrogates, which JSON escapes", "\ud800"],
  ])("cuts 1 MiB of %s at every offset without splitting one", (_what, unit) => {
    const inner = unit.repeat(Math.ceil(1_048_576 / Buffer.byteLength(JSON.stringify(unit).slice(1, -1))));
    const escaped = JSON.stringify(unit).slice(1, -1);
    for (let shift = 0; shift < 13; shift += 1) {
      const json = JSON.stringify(`${"x".repeat(shift)}${inner}`);
      const { head, tail } = partsOf(project(json, MODEL_RESULT_BYTES_MIN, REF).text);
      const repeated = head.slice(1 + shift);
      expect(repeated).toBe(escaped.repeat(repeated.length / escaped.length));
      expect(tail.slice(0, -1)).toBe(escaped.repeat((tail.length - 1) / escaped.length));
    }
  });

  it("keeps a pair of escapes for one character together, as other languages write them", () => {
    const escaped = "\\ud83d\\ude00";
    for (let shift = 0; shift < 12; shift += 1) {
      const { head, tail } = partsOf(project(`"${"x".repeat(shift)}${escaped.repeat(1_000)}"`, MODEL_RESULT_BYTES_MIN, REF).text);
      expect((head.length - 1 - shift) % escaped.length).toBe(0);
      expect((tail.length - 1) % escaped.length).toBe(0);
    }
  });

  it("cuts a single letter with a megabyte of marks, which is no character anybody reads", () => {
    const json = JSON.stringify(`a${"\u0301".repeat(500_000)}`);
    const shown = project(json, MODEL_RESULT_BYTES_MIN, REF);
    expect(shown.bytesAfter).toBeGreaterThan(MODEL_RESULT_BYTES_MIN * 0.9);
    expect(shown.text).not.toContain("\ufffd");
  });

  it("is whole when it fits to the byte, and cut when it is one byte over", () => {
    for (const budget of [MODEL_RESULT_BYTES_MIN, MODEL_RESULT_BYTES_MAX]) {
      for (const json of [JSON.stringify("a".repeat(budget - 2)), JSON.stringify("é".repeat((budget - 2) / 2))]) {
        expect(project(json, budget, REF)).toEqual({ text: json, bytesBefore: budget, bytesAfter: budget, truncated: false });
        expect(project(json, budget - 1, REF)).toMatchObject({ truncated: true, bytesBefore: budget });
      }
    }
  });

  it("uses the room that it has: what is left of the budget is less than two characters and the digits of the number", () => {
    const { bytesAfter } = project(JSON.stringify("a".repeat(100_000)), MODEL_RESULT_BYTES_MIN, REF);
    expect(bytesAfter).toBeGreaterThan(MODEL_RESULT_BYTES_MIN - 8);
  });

  it("gives the same for the same", () => {
    forAll(
      fc.property(anyLongJson, anyBudget, (json, budget) => {
        expect(project(json, budget, REF)).toEqual(project(json, budget, REF));
      }),
      50,
    );
  });

  it("holds the budget whatever the address is, and leaves it out when it would eat the room", () => {
    const json = JSON.stringify("a".repeat(10_000));
    for (const length of [0, 100, 460, 480, 520, 1_000, 100_000]) {
      const shown = project(json, MODEL_RESULT_BYTES_MIN, "é".repeat(length / 2));
      expect(shown.bytesAfter).toBeLessThanOrEqual(MODEL_RESULT_BYTES_MIN);
      const { head, tail } = partsOf(shown.text);
      expect(head.length + tail.length).toBeGreaterThan(MODEL_RESULT_BYTES_MIN / 3);
    }
  });

  it("holds every budget, also ones that no tool can have", () => {
    const json = JSON.stringify("👩‍👩‍👧‍👦".repeat(100));
    for (let budget = 0; budget <= 200; budget += 1) {
      expect(project(json, budget, REF).bytesAfter).toBeLessThanOrEqual(budget);
    }
  });

  it("takes text that is no JSON: a lone surrogate counts as the three bytes that it is sent as", () => {
    const text = "\ud800".repeat(1_000);
    const shown = project(text, MODEL_RESULT_BYTES_MIN, REF);
    expect(shown).toMatchObject({ bytesBefore: 3_000, truncated: true });
    expect(shown.bytesAfter).toBeLessThanOrEqual(MODEL_RESULT_BYTES_MIN);
  });

  it("is quick for the largest result", () => {
    const json = JSON.stringify("😀\\".repeat(160_000));
    const begun = performance.now();
    project(json, MODEL_RESULT_BYTES_MAX, REF);
    expect(performance.now() - begun).toBeLessThan(500);
  });
});

describe("characterBorder", () => {
  it("is the nearest beginning of a character on the side that was asked for, within the bytes", () => {
    forAll(
      fc.property(fc.string({ unit: "grapheme" }), fc.integer({ min: -5, max: 200 }), (text, offset) => {
        const bytes = Buffer.from(text);
        const borders = [0, ...Array.from(text, (_, index) => Buffer.byteLength([...text].slice(0, index + 1).join("")))];
        const inside = Math.min(Math.max(0, offset), bytes.length);
        expect(characterBorder(bytes, offset, "down")).toBe(borders.findLast((border) => border <= inside));
        expect(characterBorder(bytes, offset, "up")).toBe(borders.find((border) => border >= inside));
      }),
      300,
    );
  });
});
