import { describe, expect, it } from "vitest";
import { SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SCOPES_PER_TOOL_MAX } from "../domain/limits.js";
import { createSchemaCompiler } from "./schema/compile-schema.js";
import { refusal, tool } from "./testing/catalog-kit.js";
import { checkTools } from "./tool-check.js";

const compiler = createSchemaCompiler();
const check = (...tools: unknown[]) => checkTools(compiler, tools);
const paths = async (...tools: unknown[]) => (await refusal(() => check(...tools))).details.map(({ path }) => path);

describe("checkTools", () => {
  it.each([
    ["name", ["", "1a", "a b", "x".repeat(65), "_a", null, 1, undefined]],
    ["description", [null, 1, undefined]],
    ["input_schema", [undefined, null, [], "x", 1, false, { type: "string" }, { type: "nonsense" }]],
    ["output_schema", [[], "x", 1, { type: "nonsense" }]],
    ["binding", ["", "A", null, 1, undefined]],
    ["behaviour", ["", "read", null, true]],
    ["confirmation", ["ask", null]],
    ["result_semantics", ["handle", 1]],
    ["max_result_context_bytes", [1_023, 32_769, 2_000.5, "2000", null]],
    ["version", ["", 1, null, "a b", "x".repeat(65), "ü"]],
    ["timeout_seconds", [4, 86_401, 5.5, "60"]],
    ["idempotent", [null, 0, "true"]],
    ["cancellable", [null, 1]],
    ["scopes", ["x", Array(SCOPES_PER_TOOL_MAX + 1).fill("s"), {}]],
  ] as const)("C3: names a fault of %s by its path", async (field, values) => {
    for (const value of values) {
      const [path] = await paths(tool("good"), tool("a", { [field]: value }));
      expect([value, path?.startsWith(`/tools/1/${field}`)]).toEqual([value, true]);
    }
  });

  it.each([
    ["name", ["a", "A.b_c-9", `x${"y".repeat(63)}`]],
    ["description", ["", "ü".repeat(10_000)]],
    ["input_schema", [{}, true, { $schema: "http://json-schema.org/draft-07/schema#" }, { type: ["object", "null"] }]],
    ["output_schema", [null, undefined, false, { type: "string" }]],
    ["max_result_context_bytes", [1_024, 32_768]],
    ["version", ["1", "2.0.0-rc.1+build", "x".repeat(64)]],
    ["timeout_seconds", [5, 86_400]],
    ["scopes", [[], Array.from({ length: SCOPES_PER_TOOL_MAX }, (_, index) => `s:${index}`)]],
  ] as const)("C3: takes %s up to its limits", async (field, values) => {
    for (const value of values) expect(await check(tool("a", { [field]: value }))).toHaveLength(1);
  });

  it("C3: names all faults of all tools at once, unknown fields and repeated names included", async () => {
    const found = await paths(
      tool("a", { timeout: 5, "odd/~field": 1, scopes: ["x", "x", 1, "a b"] }),
      null,
      tool("a"),
      tool("b", { input_schema: { properties: { x: { type: "strin" } } } }),
      tool("__proto__"),
    );
    expect([...new Set(found)]).toEqual([
      "/tools/0/timeout",
      "/tools/0/odd~1~0field",
      "/tools/0/scopes/1",
      "/tools/0/scopes/2",
      "/tools/0/scopes/3",
      "/tools/1",
      "/tools/2/name",
      "/tools/3/input_schema/properties/x/type",
      "/tools/4/name",
    ]);
  });

  it("says in the message which tool, where, what was expected and what was there", async () => {
    const error = await refusal(() => check(tool("refund", { timeout_seconds: 3 })));
    expect(error.message).toBe('Tool "refund": /tools/0/timeout_seconds must be an integer from 5 to 86400, but is number 3.');
  });

  it("C9: refuses schemas over the limit of bytes or depth with schema_too_large, naming tool, bytes and limit", async () => {
    const filler = (bytes: number) => ({
      type: "object",
      $comment: "x".repeat(bytes - JSON.stringify({ type: "object", $comment: "" }).length),
    });
    expect(await check(tool("a", { input_schema: filler(SCHEMA_BYTES_MAX) }))).toHaveLength(1);
    const large = await refusal(() => check(tool("a", { input_schema: filler(SCHEMA_BYTES_MAX + 1) })));
    expect(large.code).toBe("schema_too_large");
    expect(large.message).toContain('"a"');
    expect(large.message).toContain(`${SCHEMA_BYTES_MAX + 1} bytes`);
    expect(large.message).toContain(`${SCHEMA_BYTES_MAX} bytes`);

    const nested = (levels: number) => {
      let value: unknown = {};
      for (let level = 1; level < levels; level += 1) value = { not: value };
      return value;
    };
    expect(await check(tool("a", { output_schema: nested(SCHEMA_DEPTH_MAX) }))).toHaveLength(1);
    expect((await refusal(() => check(tool("a", { output_schema: nested(SCHEMA_DEPTH_MAX + 1) })))).code).toBe("schema_too_large");
  });

  it("cuts an endless list of faults short and says how many more there are", async () => {
    const scopes = { ...Object.fromEntries(Array.from({ length: 1_000 }, (_, index) => [`field${index}`, 1])) };
    const { details } = await refusal(() => check(tool("a", scopes)));
    expect(details).toHaveLength(257);
    expect(details.at(-1)?.actual).toBe("744 further faults");
  });

  it("gives the same content the same hash, however its fields were ordered, and other content another", async () => {
    const [one] = await check(tool("a", { timeout_seconds: 300 }));
    const [two] = await check(Object.fromEntries(Object.entries(tool("a")).reverse()));
    const [three] = await check(tool("a", { timeout_seconds: 301 }));
    expect(one?.content).toBe(two?.content);
    expect(one?.content).not.toBe(three?.content);
  });
});
