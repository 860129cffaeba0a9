import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BrokerError } from "../../domain/broker-error.js";
import { JSON_DEPTH_MAX, parseJsonText } from "./json-text.js";

function faultOf(text: string, path = ""): BrokerError {
  try {
    parseJsonText(text, "The text", path);
  } catch (error) {
    if (error instanceof BrokerError) return error;
    throw error;
  }
  throw new Error(`accepted: ${text.slice(0, 80)}`);
}

function nested(depth: number, open = "[", close = "]"): string {
  return open.repeat(depth) + close.repeat(depth);
}

describe("JSON from outside", () => {
  it("is read as JSON.parse reads it, unless it is unsafe to walk", () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 8 }), (text) => {
        fc.pre(!text.includes("__proto__"));
        expect(parseJsonText(text, "The text")).toEqual(JSON.parse(text));
      }),
    );
  });

  it("may be nested to its limit and no deeper, brackets in strings aside", () => {
    expect(() => parseJsonText(nested(JSON_DEPTH_MAX), "The text")).not.toThrow();
    expect(faultOf(nested(JSON_DEPTH_MAX + 1))).toMatchObject({ code: "body_invalid", details: [{ actual: "deeper nesting" }] });
    expect(faultOf(nested(2_000_000)).code).toBe("body_invalid");
    expect(faultOf('{"a":'.repeat(JSON_DEPTH_MAX + 1)).code).toBe("body_invalid");
    for (const text of [nested(1_000), '\\"'.repeat(5) + nested(1_000), "\\\\"]) {
      expect(parseJsonText(JSON.stringify({ text }), "The text")).toEqual({ text });
    }
    expect(parseJsonText(JSON.stringify(Array.from({ length: 2_000 }, () => [])), "The text")).toHaveLength(2_000);
  });

  it("has no member called __proto__, however it is written, and every one is told", () => {
    const error = faultOf('{"a/b":[{"__proto__":1}],"\\u005f_proto__":{"x":1},"ok":"__proto__"}', "/arguments");
    expect(error.details.map(({ path }) => path)).toEqual(["/arguments/a~1b/0/__proto__", "/arguments/__proto__"]);
    expect(parseJsonText('{"proto":"__proto__","constructor":{"prototype":1}}', "The text")).toEqual({
      proto: "__proto__",
      constructor: { prototype: 1 },
    });
  });

  it("has no number beyond the doubles, which would silently become null", () => {
    for (const text of ["1e309", "-1e309", "1E+400", "9".repeat(310), `${"9".repeat(210)}e100`, "0.1e999", "1e00000400"]) {
      expect([text.slice(0, 20), faultOf(`{"n":[${text}]}`).details.map(({ path }) => path)]).toEqual([text.slice(0, 20), ["/n/0"]]);
    }
    for (const text of ["1e308", "1e-999", "0e999", "1.7976931348623157e308"])
      expect(Number.isFinite(parseJsonText(text, "The text"))).toBe(true);
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 400 }), fc.integer({ min: -400, max: 400 }), (digits, exponent) => {
        const text = `1${"0".repeat(digits)}e${exponent}`;
        if (Number.isFinite(JSON.parse(text))) expect(parseJsonText(text, "The text")).toBe(JSON.parse(text));
        else expect(faultOf(text).code).toBe("body_invalid");
      }),
    );
  });

  it("is refused with a short message when it is none", () => {
    for (const text of ["", " ", "{", "nul", "{'a':1}", "[1,]", "01", "\ufeff{}", "x".repeat(1_000_000), '"\n"', "NaN"]) {
      const error = faultOf(text);
      expect([text.slice(0, 10), error.code, error.message.length < 200]).toEqual([text.slice(0, 10), "body_invalid", true]);
    }
  });
});
