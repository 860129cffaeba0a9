import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { forAll } from "../testing/arbitrary-call.js";
import { JsonScan, type JsonScanResult } from "./json-scan.js";
import { RESULT_DEPTH_MAX } from "./limits.js";

/** What a scan says of `text`, cut at these places. */
function scan(text: string, cuts: readonly number[] = []): JsonScanResult {
  const reader = new JsonScan();
  const places = [...cuts.map((cut) => cut % (text.length + 1)), text.length].sort((a, b) => a - b);
  let from = 0;
  for (const place of places) {
    reader.push(text.slice(from, place));
    from = place;
  }
  return reader.end();
}

function parses(text: string): JsonScanResult {
  try {
    JSON.parse(text);
    return "json";
  } catch {
    return "not_json";
  }
}

const cuts = fc.array(fc.nat(), { maxLength: 6 });

describe("a scan of JSON in pieces", () => {
  it("takes what JSON.parse takes", () => {
    const spaced = fc
      .tuple(fc.jsonValue({ depthSize: "medium" }), fc.constantFrom(undefined, 1, "\t", "\r\n"))
      .map(([value, space]) => JSON.stringify(value, null, space));
    forAll(
      fc.property(spaced, cuts, (text, at) => {
        expect(scan(text, at)).toBe("json");
      }),
      500,
    );
  });

  it("refuses what JSON.parse refuses, whatever was done to JSON", () => {
    const broken = fc
      .tuple(fc.json(), fc.nat(), fc.nat({ max: 2 }), fc.constantFrom(...'{}[]",:\\0-+.eEtfnu \n\u0000/x'.split("")))
      .map(([text, at, remove, put]) => text.slice(0, at % (text.length + 1)) + put + text.slice((at % (text.length + 1)) + remove));
    forAll(
      fc.property(broken, cuts, (text, at) => {
        expect(scan(text, at), JSON.stringify(text)).toBe(parses(text));
      }),
      3_000,
    );
  });

  it("agrees with JSON.parse on texts of few signs", () => {
    const signs = fc.array(fc.constantFrom(...'{}[]",:-01.eE+ '.split(""), "true", "null", '"a"', "\\u00e9", "\\", "\\n"), {
      maxLength: 8,
    });
    forAll(
      fc.property(signs, cuts, (parts, at) => {
        const text = parts.join("");
        expect(scan(text, at), text).toBe(parses(text));
      }),
      5_000,
    );
  });

  it("knows the forms of numbers", () => {
    for (const text of ["0", "-0", "1.5e+3", "1E9", "0.0", "-12.30e-07"]) expect(scan(text), text).toBe("json");
    for (const text of ["", "01", "-", "1.", ".5", "1e", "1e+", "+1", "--1", "1.e3", "0x1", "NaN", "Infinity", "1 2"])
      expect(scan(text), text).toBe("not_json");
  });

  it("takes the deepest that is allowed, and nothing deeper, without a stack of its own", () => {
    const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);
    expect(scan(nested(RESULT_DEPTH_MAX))).toBe("json");
    expect(scan(nested(RESULT_DEPTH_MAX + 1))).toBe("too_deep");
    expect(scan(`{"a":`.repeat(1_000_000))).toBe("too_deep");
    expect(scan(`${"[".repeat(RESULT_DEPTH_MAX)}1`)).toBe("not_json");
  });

  it("reads 16 MiB in pieces without a long stop, of whatever kind they are", () => {
    const megabytes = 16;
    const kinds = {
      text: `"${"x".repeat(megabytes * 1_048_576)}"`,
      arrays: `[${"[],".repeat((megabytes * 1_048_576) / 3)}0]`,
      numbers: `[${"1,".repeat((megabytes * 1_048_576) / 2)}0]`,
      escapes: `"${"\\n".repeat((megabytes * 1_048_576) / 2)}"`,
    };
    const took: string[] = [];
    for (const [kind, text] of Object.entries(kinds)) {
      const reader = new JsonScan();
      let longest = 0;
      const begunAt = performance.now();
      for (let at = 0; at < text.length; at += 393_216) {
        const pieceAt = performance.now();
        reader.push(text.slice(at, at + 393_216));
        longest = Math.max(longest, performance.now() - pieceAt);
      }
      expect(reader.end()).toBe("json");
      took.push(`${kind} ${Math.round(performance.now() - begunAt)} ms, longest piece ${longest.toFixed(1)} ms`);
      expect(longest).toBeLessThan(250);
    }
    console.log(`a scan of ${megabytes} MiB: ${took.join("; ")}`);
  });
});
