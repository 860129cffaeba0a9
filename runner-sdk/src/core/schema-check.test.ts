import { describe, expect, it } from "vitest";
import { SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, schemaFaults } from "./schema-check.js";

const faults = (schema: unknown) => schemaFaults(schema, JSON.stringify(schema));

describe("checking that a schema compiles, without compiling it (R1, R6)", () => {
  it.each<[string, unknown]>([
    ["a boolean", true],
    ["an empty one", {}],
    [
      "properties of every kind",
      { type: "object", properties: { a: { type: ["string", "null"], pattern: "^a+$" }, b: { enum: [1, "x"] } }, required: ["a"] },
    ],
    ["a property named like a keyword", { properties: { required: { type: "string" }, $ref: { type: "string" } } }],
    ["a local reference", { $defs: { order: { type: "string" } }, properties: { order: { $ref: "#/$defs/order" } } }],
    ["a reference to itself", { properties: { next: { $ref: "#" } } }],
    ["an anchor", { $defs: { x: { $anchor: "here" } }, $ref: "#here" }],
    ["an embedded document", { $id: "https://example.com/root", $defs: { x: { $id: "item", type: "string" } }, items: { $ref: "item" } }],
    ["an escaped pointer", { $defs: { "a/b~c": {} }, $ref: "#/$defs/a~1b~0c" }],
    ["a percent-encoded pointer", { $defs: { "a b": {} }, $ref: "#/$defs/a%20b" }],
    [
      "draft-07",
      {
        $schema: "http://json-schema.org/draft-07/schema#",
        definitions: { a: {} },
        items: [{ $ref: "#/definitions/a" }],
        dependencies: { a: ["b"], c: {} },
      },
    ],
    ["the meta-schema", { $ref: "https://json-schema.org/draft/2020-12/schema" }],
    ["unknown keywords and formats", { format: "no-such", "x-order": 1, units: "ms" }],
  ])("takes %s", (_name, schema) => {
    expect(faults(schema)).toEqual([]);
  });

  it.each<[string, unknown, string]>([
    ["an array", [], ""],
    ["null", null, ""],
    ["a misspelt type", { type: "strnig" }, "/type"],
    ["a type named twice", { type: ["string", "string"] }, "/type"],
    ["required as a boolean", { properties: { a: { required: true } } }, "/properties/a/required"],
    ["a name required twice", { required: ["a", "a"] }, "/required"],
    ["a regular expression that does not compile", { properties: { a: { pattern: "(" } } }, "/properties/a/pattern"],
    ["a property pattern that does not compile", { patternProperties: { "[": {} } }, "/patternProperties/["],
    ["a subschema that is a string", { properties: { a: "string" } }, "/properties/a"],
    ["properties as an array", { properties: [] }, "/properties"],
    ["an empty anyOf", { anyOf: [] }, "/anyOf"],
    ["a negative length", { minLength: -1 }, "/minLength"],
    ["a multiple of zero", { multipleOf: 0 }, "/multipleOf"],
    ["a reference to nothing", { items: { $ref: "#/$defs/gone" } }, "/items/$ref"],
    ["a reference to something that is no schema", { required: ["a"], $ref: "#/required" }, "/$ref"],
    ["a reference over the network", { $ref: "https://example.com/schema.json" }, "/$ref"],
    ["a reference that is a number", { $ref: 7 }, "/$ref"],
    ["an anchor that is not there", { $ref: "#here" }, "/$ref"],
    ["a pointer through the prototype", { $ref: "#/constructor" }, "/$ref"],
    ["another dialect", { $schema: "http://json-schema.org/draft-04/schema#" }, "/$schema"],
  ])("refuses %s and names the place", (_name, schema, path) => {
    expect(faults(schema)[0]?.path).toBe(path);
  });

  it("bounds size and depth, each at its edge", () => {
    const deep = (levels: number) => {
      let schema: object = {};
      for (let level = 0; level < levels; level++) schema = { not: schema };
      return schema;
    };
    expect(faults(deep(SCHEMA_DEPTH_MAX))).toEqual([]);
    expect(faults(deep(SCHEMA_DEPTH_MAX + 1))[0]?.message).toContain("deeper");
    const sized = (bytes: number) => ({ title: "x".repeat(bytes - '{"title":""}'.length) });
    expect(faults(sized(SCHEMA_BYTES_MAX))).toEqual([]);
    expect(faults(sized(SCHEMA_BYTES_MAX + 1))[0]?.message).toContain(`${SCHEMA_BYTES_MAX + 1} bytes`);
  });
});
