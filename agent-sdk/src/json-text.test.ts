import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { bodyText, jsonArguments } from "./json-text.js";

describe("JSON that is written once", () => {
  it("makes the body that JSON.stringify makes, with what is undefined left out", () => {
    const field = fc.oneof(fc.jsonValue(), fc.constant(undefined));
    fc.assert(
      fc.property(fc.dictionary(fc.string(), field), fc.jsonValue(), (fields, value) => {
        const body = { ...fields, arguments: jsonArguments(value) };
        const text = bodyText(body);
        expect(text).toBe(JSON.stringify({ ...fields, arguments: value }));
        expect(JSON.stringify(body)).toBe(text);
      }),
    );
    expect(bodyText({})).toBe("{}");
    expect(bodyText({ left: undefined, out: () => 1 })).toBe("{}");
  });

  it("keeps arguments as they were when they were given", () => {
    const mutable = { order: "first" };
    const kept = jsonArguments(mutable);
    mutable.order = "second";
    expect(bodyText({ arguments: kept })).toBe('{"arguments":{"order":"first"}}');
  });
});
