import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { canonicalJson } from "./canonical-json.js";

/** The same keys in the opposite order, at every depth. */
function turned(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(turned);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const entries = Object.entries(value).reverse();
  return Object.fromEntries(entries.map(([key, member]) => [key, turned(member)]));
}

describe("canonical JSON", () => {
  it("has the value itself in it, and does not depend on the order of keys", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = canonicalJson(value);
        // -0 is 0 in JSON.
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(turned(value))).toBe(text);
      }),
    );
  });

  it("sorts keys by their UTF-16 units, leaves out what is undefined, and keeps __proto__ a plain key", () => {
    const odd = JSON.parse('{"__proto__":{"b":1,"a":[{"d":1,"c":2}]},"B":1,"é":2,"10":3,"9":4}') as Record<string, unknown>;
    expect(canonicalJson({ ...odd, z: undefined })).toBe('{"10":3,"9":4,"B":1,"__proto__":{"a":[{"c":2,"d":1}],"b":1},"é":2}');
    expect(canonicalJson([undefined, null])).toBe("[null,null]");
    expect(canonicalJson(undefined)).toBe("null");
  });
});
