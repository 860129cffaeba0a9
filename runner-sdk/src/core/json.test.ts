import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { NotJsonError } from "./errors.js";
import { clipText, JSON_DEPTH_MAX, toJsonText, utf8Bytes } from "./json.js";

function faultOf(value: unknown): NotJsonError {
  try {
    toJsonText(value);
  } catch (error) {
    if (error instanceof NotJsonError) return error;
    throw error;
  }
  throw new Error("it was written");
}

describe("results as JSON text (R7)", () => {
  it("writes every JSON value as JSON.stringify does", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(toJsonText(value)).toBe(JSON.stringify(value));
      }),
    );
  });

  it("turns undefined at the root into null and refuses it anywhere else", () => {
    expect(toJsonText(undefined)).toBe("null");
    expect(faultOf({ a: { b: undefined } })).toMatchObject({ path: "/a/b", found: "undefined" });
    expect(faultOf([1, undefined]).path).toBe("/1");
  });

  it.each<[string, unknown, string]>([
    ["a BigInt", { total: 1n }, "/total"],
    ["a function", { list: [() => 1] }, "/list/0"],
    ["a symbol", [Symbol("x")], "/0"],
    ["NaN", { n: Number.NaN }, "/n"],
    ["Infinity", { n: Number.POSITIVE_INFINITY }, "/n"],
    ["a Map", { m: new Map() }, "/m"],
    ["a Set", [new Set()], "/0"],
    ["a Promise that was not awaited", { p: Promise.resolve() }, "/p"],
    ["a RegExp", { r: /x/ }, "/r"],
    ["an Error", { e: new Error("x") }, "/e"],
    ["a Uint8Array", { bytes: new Uint8Array(2) }, "/bytes"],
    ["a hole in an array", { list: Array(2) }, "/list/0"],
    ["a BigInt", { boxed: Object(1n) }, "/boxed"],
    ["an iterator", { it: [1].values() }, "/it"],
    ["a Headers", { h: new Headers() }, "/h"],
    ["a Map", { m: runInNewContext("new Map()") }, "/m"],
  ])("names %s and where it is", (found, value, path) => {
    expect(faultOf(value)).toMatchObject({ found, path });
  });

  it("writes boxed values, class instances and objects of another realm by what they hold", () => {
    class Order {
      readonly id = "A1";
      get hidden() {
        return 1;
      }
    }
    expect(toJsonText([Object("x"), Object(1), Object(false), new Order()])).toBe('["x",1,false,{"id":"A1"}]');
    expect(toJsonText(runInNewContext("({ a: [1, { b: null }] })"))).toBe('{"a":[1,{"b":null}]}');
    const disguised = Object.defineProperty({ a: 1 }, Symbol.toStringTag, { value: "String" });
    expect(toJsonText(disguised)).toBe('{"a":1}');
  });

  it("names a cycle, and lets one object stand in two places", () => {
    const shared = { x: 1 };
    expect(toJsonText({ a: shared, b: shared })).toBe('{"a":{"x":1},"b":{"x":1}}');
    const loop: Record<string, unknown> = { inner: {} };
    (loop["inner"] as Record<string, unknown>)["back"] = loop;
    expect(faultOf(loop)).toMatchObject({ path: "/inner/back", found: "a cycle" });
  });

  it("escapes path segments as a JSON Pointer", () => {
    expect(faultOf({ "a/b": { "c~d": 1n } }).path).toBe("/a~1b/c~0d");
  });

  it("honours toJSON, and answers a throwing one and a throwing getter with the path", () => {
    expect(toJsonText({ at: new Date(0) })).toBe('{"at":"1970-01-01T00:00:00.000Z"}');
    const thrower = {
      toJSON() {
        throw new Error("no");
      },
    };
    expect(faultOf({ x: thrower })).toMatchObject({ path: "/x", found: "a value whose toJSON throws (no)" });
    const getter = Object.defineProperty({}, "g", {
      enumerable: true,
      get() {
        throw new Error("locked");
      },
    });
    expect(faultOf([getter])).toMatchObject({ path: "/0/g", found: "a property that throws when read (locked)" });
  });

  it("ends a toJSON that answers itself for ever, and a value that is too deep, with a fault instead of a stack overflow", () => {
    const endless = { toJSON: () => ({ ...endless }) };
    expect(faultOf(endless).found).toContain("deeper");
    let deep: unknown = 1;
    for (let level = 0; level < 100_000; level++) deep = [deep];
    expect(faultOf(deep).found).toBe(`a value deeper than ${JSON_DEPTH_MAX} levels`);
    let edge: unknown = 1;
    for (let level = 0; level < JSON_DEPTH_MAX; level++) edge = [edge];
    expect(JSON.parse(toJsonText(edge))).toEqual(edge);
    expect(faultOf([edge]).found).toContain("deeper");
  });

  it("keeps an own __proto__ key as data", () => {
    const value: unknown = JSON.parse('{"__proto__":{"polluted":true}}');
    expect(toJsonText(value)).toBe('{"__proto__":{"polluted":true}}');
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  it("keeps lone surrogates as escapes, so that the text is well-formed", () => {
    expect(toJsonText("\ud800")).toBe('"\\ud800"');
  });

  it("answers a hostile proxy with a fault", () => {
    const hostile = new Proxy(
      {},
      {
        ownKeys() {
          throw new Error("hidden");
        },
      },
    );
    expect(faultOf({ hostile }).found).toContain("hidden");
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    expect(faultOf(proxy).found).toContain("throws when read");
  });
});

describe("text sizes", () => {
  it("counts UTF-8 bytes as TextEncoder does", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        expect(utf8Bytes(text)).toBe(new TextEncoder().encode(text).length);
      }),
    );
    expect(utf8Bytes("a\ud800b")).toBe(new TextEncoder().encode("a\ud800b").length);
  });

  it("cuts text to its bytes without splitting a character", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), fc.integer({ min: 16, max: 64 }), (text, max) => {
        const cut = clipText(text, max);
        expect(utf8Bytes(cut)).toBeLessThanOrEqual(max);
        if (utf8Bytes(text) <= max) expect(cut).toBe(text);
        else expect(text.startsWith(cut.replace(/ \[cut\]$/, ""))).toBe(true);
      }),
    );
  });
});
