import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { FaultDetail } from "../../domain/fault.js";
import { type CompiledSchema, createSchemaCompiler } from "./compile-schema.js";

const compiler = createSchemaCompiler();

function compile(schema: unknown): CompiledSchema {
  const outcome = compiler.compile(schema, "output");
  if (outcome.kind !== "compiled") throw new Error(`not compiled: ${JSON.stringify(outcome)}`);
  return outcome.compiled;
}

function faultsOf(schema: unknown, role: "input" | "output" = "output"): readonly FaultDetail[] {
  const outcome = compiler.compile(schema, role);
  return outcome.kind === "faulty" ? outcome.faults : outcome.kind === "too_large" ? [outcome.fault] : [];
}

const lines = (faults: readonly FaultDetail[]) => faults.map(({ path, expected, actual }) => `${path}: ${expected}; ${actual}`);

describe("faults of a value (X1)", () => {
  it.each([
    [{ type: "string" }, 1, ": a string; number 1"],
    [{ type: ["string", "null"] }, [], ": a string or null; array of 0 items"],
    [{ required: ["a/b~c"] }, {}, "/a~1b~0c: a value, because it is required; nothing"],
    [{ properties: { a: { required: ["b"] } } }, { a: { c: 1 } }, "/a/b: a value, because it is required; nothing"],
    [{ additionalProperties: false }, { extra: "x" }, '/extra: no property of this name; string "x"'],
    [{ unevaluatedProperties: false }, { extra: null }, "/extra: no property of this name; null"],
    [{ enum: ["a", 1, null] }, "b", ': one of "a", 1, null; string "b"'],
    [{ const: { a: 1 } }, true, ': {"a":1}; boolean true'],
    [{ minimum: 3 }, 2, ": a number >= 3; number 2"],
    [{ exclusiveMaximum: 3 }, 3, ": a number < 3; number 3"],
    [{ multipleOf: 5 }, 7, ": a multiple of 5; number 7"],
    [{ minLength: 3 }, "😀", ': at least 3 characters; string "😀"'],
    [{ maxLength: 1 }, "ab", ': at most 1 character; string "ab"'],
    [{ pattern: "^a+$" }, "b", ': a string that matches ^a+$; string "b"'],
    [{ format: "email" }, "b", ': a string in the format "email"; string "b"'],
    [{ minItems: 2 }, [1], ": at least 2 items; array of 1 item"],
    [{ maxItems: 1 }, [1, 2], ": at most 1 item; array of 2 items"],
    [{ prefixItems: [{}], items: false }, [1, 2], ": at most 1 item; array of 2 items"],
    [
      { uniqueItems: true },
      [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ],
      ": items that all differ; array of 2 items",
    ],
    [{ contains: { const: 1 } }, [2], ": at least 1 item of the kind that must be contained; array of 1 item"],
    [{ minProperties: 1 }, {}, ": at least 1 property; object with 0 properties"],
    [{ propertyNames: { maxLength: 2 } }, { abc: 1 }, '/abc: a property name that is at most 2 characters; string "abc"'],
    [{ dependentRequired: { a: ["b"] } }, { a: 1 }, '/b: a value, because "a" is given; nothing'],
    [{ not: {} }, 1, ": a value that does not fit the excluded form; number 1"],
    [{ properties: { a: false } }, { a: 1 }, "/a: nothing here; number 1"],
    [{ anyOf: [{ type: "string" }, { type: "integer" }] }, true, ": a string or an integer; boolean true"],
    [{ oneOf: [{ minimum: 1 }, { minimum: 2 }] }, 3, ": a value that fits exactly one of the allowed forms; number 3"],
  ])("are told in people's words: %j on %j", (schema, value, line) => {
    expect(lines(compile(schema).check(value))).toContain(line);
  });

  it("are all told, not just the first", () => {
    const schema = {
      type: "object",
      properties: { a: { type: "string" }, b: { items: { type: "integer" } } },
      required: ["c"],
      additionalProperties: false,
    };
    const found = compile(schema).check({ a: 1, b: [1, "x", 2.5], d: 1 });
    expect(found.map(({ path }) => path).sort()).toEqual(["/a", "/b/1", "/b/2", "/c", "/d"]);
  });

  it("never carry a long value", () => {
    const secret = "s3cret".repeat(1_000);
    const schema = { additionalProperties: { type: "integer" }, propertyNames: { maxLength: 100 }, enum: ["x".repeat(5_000)] };
    for (const { expected, actual } of compile(schema).check({ a: secret, b: [secret], c: { d: secret } })) {
      expect(actual.length).toBeLessThanOrEqual(80);
      expect(expected.length).toBeLessThanOrEqual(300);
      expect(actual).not.toContain("s3crets3cret");
    }
  });

  it("stay few and quick for a value with very many", () => {
    const startedAt = performance.now();
    const found = compile({ items: { type: "string" } }).check(Array.from({ length: 80_000 }, () => 1));
    expect(found).toHaveLength(257);
    expect(found.at(-1)?.actual).toBe("79744 further faults");
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  it("are the same again on the next check, and gone for a valid value", () => {
    const compiled = compile({ type: "string" });
    const first = compiled.check(1);
    expect(compiled.check("x")).toEqual([]);
    expect(compiled.check(1)).toEqual(first);
  });
});

describe("values that mean harm", () => {
  it("inherited properties count for nothing, and __proto__ is a name like any other", () => {
    const strict = compile({ type: "object", required: ["toString", "constructor"], properties: { a: {} }, additionalProperties: false });
    expect(strict.check({}).map(({ path }) => path)).toEqual(["/toString", "/constructor"]);
    const hostile: unknown = JSON.parse('{"__proto__":{"a":1},"constructor":{"prototype":{"polluted":true}}}');
    expect(
      compile({ additionalProperties: false })
        .check(hostile)
        .map(({ path }) => path),
    ).toEqual(["/__proto__", "/constructor"]);
    expect(compile({ properties: { a: { type: "string" } } }).check(hostile)).toEqual([]);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  it("are never changed by their check", () => {
    const value = { a: "1", b: [{}] };
    compile({
      properties: { a: { type: "integer", default: 5 }, c: { default: 1 }, b: { items: { properties: { d: { default: 1 } } } } },
    }).check(value);
    expect(value).toEqual({ a: "1", b: [{}] });
  });

  it("nesting beyond the stack is a fault, not a crash", () => {
    let deep: unknown = 1;
    for (let level = 0; level < 100_000; level += 1) deep = { a: deep };
    expect(compile({ properties: { a: { $ref: "#" } } }).check(deep)[0]?.expected).toMatch(/bounded time/);
    let list: unknown = [];
    for (let level = 0; level < 100_000; level += 1) list = [list];
    expect(compile({ uniqueItems: true }).check([list, list])[0]?.expected).toMatch(/bounded time/);
  });

  it("a recursive union does not take exponential time", () => {
    const schema = {
      anyOf: [
        { required: ["x"], properties: { a: { $ref: "#" } } },
        { required: ["y"], properties: { a: { $ref: "#" } } },
      ],
    };
    let value: unknown = {};
    for (let level = 0; level < 60; level += 1) value = { a: value };
    const startedAt = performance.now();
    expect(compile(schema).check(value)).toHaveLength(1);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  it.each([
    [{ uniqueItems: true }, Array.from({ length: 50_000 }, (_, index) => ({ index }))],
    [{ pattern: "^(a+)+$" }, `${"a".repeat(250_000)}!`],
    [{ patternProperties: { "(x+x+)+y": {} } }, { ["x".repeat(100_000)]: 1 }],
  ])("are checked in bounded time against %j", (schema, value) => {
    const startedAt = performance.now();
    compile(schema).check(value);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  it.each([
    "date",
    "time",
    "date-time",
    "duration",
    "uri",
    "uri-reference",
    "uri-template",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "regex",
    "uuid",
    "json-pointer",
    "relative-json-pointer",
    "iso-time",
    "url",
    "byte",
    "binary",
    "password",
  ])("long text is checked in bounded time against the format %s", (format) => {
    const compiled = compile({ format });
    const units = ["a", "1", "-", ".", ":", "a.", "1:", "%41", "{a}", "a@", "/", "P1D", "[", "(a", "::", "=", " ", "http://a", "a-"];
    for (const unit of units) {
      const text = unit.repeat(Math.ceil(20_000 / unit.length));
      for (const sample of [text, `${text}!`, `http://${text}`, `a@${text}!`]) {
        const startedAt = performance.now();
        compiled.check(sample);
        expect([unit, performance.now() - startedAt < 1_500]).toEqual([unit, true]);
      }
    }
  });
});

describe("schemas (C9)", () => {
  it.each([
    ["https://json-schema.org/draft/2020-12/schema", { prefixItems: [{ type: "integer" }] }, ["x"], false],
    ["https://json-schema.org/draft/2019-09/schema", { items: [{ type: "integer" }] }, ["x"], false],
    ["http://json-schema.org/draft-07/schema#", { if: { type: "string" }, else: false }, 1, false],
    ["http://json-schema.org/draft-06/schema#", { exclusiveMinimum: 1 }, 1, false],
    ["http://json-schema.org/draft-07/schema", { definitions: { a: { type: "string" } }, $ref: "#/definitions/a" }, 1, false],
    [undefined, { $defs: { a: { type: "string" } }, $ref: "#/$defs/a" }, 1, false],
    [undefined, { $defs: { a: { $anchor: "here", type: "string" } }, $ref: "#here" }, 1, false],
    [undefined, { format: "made-up", "x-unknown": { type: 5 }, contentEncoding: "base64" }, "!", true],
    [undefined, { type: "string", nullable: true }, null, false],
    [undefined, { $async: true, type: "string" }, 1, false],
    [undefined, { id: "old", type: "string" }, 1, false],
    [undefined, { $id: "https://example.com/a", $defs: { b: { type: "string" } }, $ref: "#/$defs/b" }, 1, false],
    [undefined, { multipleOf: 0.01 }, 19.99, true],
  ])("of dialect %s: %j checks %j", (dialect, schema, value, valid) => {
    const whole = dialect === undefined ? schema : { $schema: dialect, ...schema };
    expect(compile(whole).check(value).length === 0).toBe(valid);
  });

  it.each([
    [{ $schema: "http://json-schema.org/draft-04/schema#" }, "/$schema"],
    [{ $schema: 5 }, "/$schema"],
    [{ type: "strin" }, "/type"],
    [{ properties: { a: { minLength: -1 } } }, "/properties/a/minLength"],
    [{ properties: { "a/b": { required: "x" } } }, "/properties/a~1b/required"],
    [{ $ref: "https://example.com/schema.json" }, "/$ref"],
    [{ $ref: "other.json#/a" }, "/$ref"],
    [{ $ref: "https://json-schema.org/draft/2020-12/schema" }, "/$ref"],
    [{ allOf: [{ $ref: "#/$defs/missing" }] }, "/allOf/0/$ref"],
    [{ "x-hidden": { a: { $ref: "http://x" } }, $ref: "#/x-hidden/a" }, "/x-hidden/a/$ref"],
    [{ $ref: "#nowhere" }, ""],
    [{ $ref: "#" }, ""],
    [{ $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } }, $ref: "#/$defs/a" }, ""],
    [{ properties: { a: { pattern: "(" } } }, "/properties/a/pattern"],
    [{ properties: { a: { pattern: "(.)\\1" } } }, "/properties/a/pattern"],
    [{ patternProperties: { "[": {} } }, "/patternProperties/["],
    [{ "x-hidden": { a: { pattern: "(" } }, $ref: "#/x-hidden/a" }, "/x-hidden/a/pattern"],
    [{ const: 1, default: Number.NaN }, "/default"],
  ])("are refused with the path of the fault: %j at %s", (schema, path) => {
    expect(faultsOf(schema).map((fault) => fault.path)).toContain(path);
  });

  it("data that looks like a schema is left alone", () => {
    const data = { $ref: "http://elsewhere", pattern: "(" };
    expect(
      compile({ const: data, default: data, examples: [data], "x-own": data, properties: { $ref: { type: "string" } } }).check(data),
    ).toEqual([]);
  });

  it("the input of a tool must allow an object, as far as can be told", () => {
    for (const schema of [
      true,
      {},
      { type: "object" },
      { $ref: "#/$defs/a", $defs: { a: {} } },
      { anyOf: [{ type: "string" }, { type: "object" }] },
      { enum: [1, {}] },
    ]) {
      expect([schema, faultsOf(schema, "input")]).toEqual([schema, []]);
    }
    for (const schema of [
      false,
      { type: "array" },
      { type: ["string"] },
      { const: 1 },
      { enum: [1, []] },
      { allOf: [{ type: "object" }, { type: "string" }] },
      { anyOf: [{ type: "string" }] },
      { $ref: "#/$defs/a", $defs: { a: { type: "number" } } },
    ]) {
      expect([schema, faultsOf(schema, "input").length]).toEqual([schema, 1]);
    }
  });

  it("that unfold exponentially are refused, quickly", () => {
    const $defs: Record<string, unknown> = { a40: { type: "object" } };
    for (let index = 0; index < 40; index += 1) {
      const next = { $ref: `#/$defs/a${index + 1}` };
      $defs[`a${index}`] = { allOf: [next, next] };
    }
    const startedAt = performance.now();
    expect(faultsOf({ $defs, $ref: "#/$defs/a0" }, "input")[0]?.expected).toBe("a schema that ends for every value");
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  it("whose patterns together unfold too far are refused", () => {
    const properties = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`p${index}`, { pattern: `(ab|c){${300 + index}}` }]));
    expect(faultsOf({ properties })[0]?.expected).toMatch(/patterns that together/);
  });

  it("may use the same $id in many tools, and twice the same schema", () => {
    const schema = { $id: "https://example.com/same", type: "string" };
    expect(compile(schema).check(1)).toHaveLength(1);
    expect(compile({ ...schema, type: "number" }).check(1)).toEqual([]);
  });

  it("are never changed by compiling them", () => {
    const schema = { $async: true, nullable: true, type: "string" };
    compile(schema);
    expect(schema).toEqual({ $async: true, nullable: true, type: "string" });
  });

  it("of any JSON at all are compiled or refused, never thrown at, and so are values", () => {
    const keyword = fc.constantFrom(
      "type",
      "properties",
      "items",
      "$ref",
      "anyOf",
      "not",
      "pattern",
      "enum",
      "$id",
      "$schema",
      "required",
      "if",
      "$defs",
      "$dynamicRef",
      "__proto__",
      "dependencies",
      "format",
      "$anchor",
    );
    const json = fc.letrec((tie) => ({
      value: fc.oneof(
        { depthSize: "small" },
        fc.constantFrom<unknown>(null, true, 0, -1.5, "", "string", "#", "#/properties", "object", "http://x", "("),
        fc.array(tie("value"), { maxLength: 3 }),
        fc
          .array(fc.tuple(keyword, tie("value")), { maxLength: 4 })
          .map(
            (entries) =>
              JSON.parse(`{${entries.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`).join(",")}}`) as unknown,
          ),
      ),
    })).value;
    fc.assert(
      fc.property(json, json, (schema, value) => {
        const outcome = compiler.compile(schema, "output");
        if (outcome.kind === "compiled") outcome.compiled.check(value);
      }),
      { numRuns: 2_000 },
    );
  });
});
