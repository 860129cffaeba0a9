/** Bindings, toolsets and their versions; what a runner's own checks refuse. */
import { createRunner, defineTool } from "@toolrunner/runner-sdk";
import { memoryTransport } from "@toolrunner/runner-sdk/testing";
import { expect } from "vitest";
import { oncePerLedger, onlyOnce, scenario } from "../scenario.js";
import { faultPaths, publish } from "./support.js";

const tool = (binding: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: "echo",
  description: "A tool.",
  input_schema: { type: "object" },
  binding,
  ...more,
});

export const CATALOG_SCENARIOS = [
  scenario(
    ["C1"],
    "a binding is registered without anything being connected, and keeps its kind",
    async (cell) => {
      const id = cell.name("bound");
      expect(await cell.http("PUT", `/v1/bindings/${id}`, { name: "Shop tab", kind: "browser" })).toMatchObject({
        status: 201,
        body: { id, name: "Shop tab", kind: "browser" },
      });
      expect(await cell.http("PUT", `/v1/bindings/${id}`, { name: "Shop", kind: "browser" })).toMatchObject({
        status: 200,
        body: { name: "Shop" },
      });
      expect(await cell.http("PUT", `/v1/bindings/${id}`, { name: "Shop", kind: "backend" })).toMatchObject({
        status: 409,
        body: { error: { code: "binding_kind_conflict" } },
      });
      expect(await cell.http("GET", `/v1/bindings/${id}`)).toMatchObject({ status: 200, body: { kind: "browser" } });
      expect((await cell.http("GET", "/v1/bindings/never_made")).status).toBe(404);
    },
    oncePerLedger,
  ),

  scenario(
    ["C4", "C5"],
    "saves make immutable versions; the same content makes none, and a save from an old version changes nothing",
    async (cell) => {
      const id = cell.name("saves");
      await publish(cell, id, "backend", [{ name: "echo" }]);
      const first = await cell.http("GET", `/v1/toolsets/${id}`);
      expect(first.body.version).toBe(1);
      const same = await cell.http("PUT", `/v1/toolsets/${id}`, { base_version: 1, tools: [tool(id)] });
      expect(same).toMatchObject({ status: 200, body: { version: 1, content_hash: first.body.content_hash } });
      const second = await cell.http("PUT", `/v1/toolsets/${id}`, { base_version: 1, tools: [tool(id, { description: "Better." })] });
      expect(second).toMatchObject({ status: 200, body: { version: 2 } });
      const late = await cell.http("PUT", `/v1/toolsets/${id}`, { base_version: 1, tools: [tool(id, { description: "Late." })] });
      expect(late).toMatchObject({ status: 409, body: { error: { code: "version_conflict", current_version: 2 } } });
      expect((await cell.http("GET", `/v1/toolsets/${id}/versions/1`)).body.tools).toEqual(first.body.tools);
      expect(((await cell.http("GET", `/v1/toolsets/${id}`)).body.tools as { description: string }[])[0]?.description).toBe("Better.");
      const versions = await cell.http("GET", `/v1/toolsets/${id}/versions`);
      expect((versions.body.data as { version: number }[]).map(({ version }) => version)).toEqual([2, 1]);
    },
    oncePerLedger,
  ),

  scenario(
    ["C5"],
    "of twenty editors that save from the same version one wins",
    async (cell) => {
      const id = cell.name("editors");
      await publish(cell, id, "backend", [{ name: "echo" }]);
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, index) =>
          cell.http("PUT", `/v1/toolsets/${id}`, { base_version: 1, tools: [tool(id, { description: `Editor ${index}.` })] }),
        ),
      );
      expect(answers.map((answer) => answer.status).sort()).toEqual([200, ...Array.from({ length: 19 }, () => 409)]);
      expect((await cell.http("GET", `/v1/toolsets/${id}`)).body.version).toBe(2);
    },
    oncePerLedger,
  ),

  scenario(
    ["C2", "C3"],
    "tools have their defaults, and every fault is named with its path",
    async (cell) => {
      const id = cell.name("fields");
      await publish(cell, id, "backend", [{ name: "echo" }]);
      const saved = (await cell.http("GET", `/v1/toolsets/${id}`)).body.tools as Record<string, unknown>[];
      expect(saved[0]).toMatchObject({
        version: "1",
        behaviour: "write",
        confirmation: "never",
        result_semantics: "completion",
        max_result_context_bytes: 16_384,
        timeout_seconds: 300,
        idempotent: false,
        cancellable: false,
        scopes: [],
      });
      const faulty = await cell.http("PUT", `/v1/toolsets/${id}`, {
        base_version: 1,
        tools: [
          tool(id, { name: "1bad" }),
          tool(id, { timeout_seconds: 4 }),
          tool(id, { name: "twice" }),
          tool(id, { name: "twice", colour: "red" }),
          tool(id, { name: "far", binding: "never_made" }),
        ],
      });
      expect(faulty.status).toBe(400);
      const paths = faultPaths(faulty.body);
      for (const path of ["/tools/0/name", "/tools/1/timeout_seconds", "/tools/3/name", "/tools/3/colour"]) {
        expect(paths).toContain(path);
      }
      const many = await cell.http("PUT", `/v1/toolsets/${id}`, {
        base_version: 1,
        tools: Array.from({ length: 65 }, (_, index) => tool(id, { name: `t${index}` })),
      });
      expect(many.status).toBe(400);
      expect((await cell.http("GET", `/v1/toolsets/${id}`)).body.version).toBe(1);
    },
    oncePerLedger,
  ),

  scenario(
    ["C9"],
    "schemas are checked when they are saved: faults have paths, references are local, and no pattern can run away",
    async (cell) => {
      const id = cell.name("schemas");
      await publish(cell, id, "backend", [{ name: "echo" }]);
      const save = (input_schema: unknown, base_version = 1) =>
        cell.http("PUT", `/v1/toolsets/${id}`, { base_version, tools: [tool(id, { input_schema })] });
      for (const [schema, path] of [
        [{ type: "object", properties: { x: { type: "strin" } } }, "/tools/0/input_schema/properties/x/type"],
        [{ type: "object", properties: { x: { $ref: "https://example.com/x.json" } } }, "/tools/0/input_schema/properties/x/$ref"],
        [{ type: "object", properties: { x: { type: "string", pattern: "^(a)\\1$" } } }, "/tools/0/input_schema/properties/x/pattern"],
      ] as const) {
        const refused = await save(schema);
        expect(refused.status, JSON.stringify(refused.body)).toBe(400);
        expect(faultPaths(refused.body)).toContain(path);
      }
      // Exponential for an engine that backtracks: it is followed in all its ways at once instead.
      expect((await save({ type: "object", properties: { x: { type: "string", pattern: "^(a+)+$" } } })).status).toBe(200);
      const before = performance.now();
      const hostile = await cell.http("POST", "/v1/calls", { toolset: id, tool: "echo", arguments: { x: `${"a".repeat(5_000)}!` } });
      expect(hostile).toMatchObject({ status: 400, body: { error: { code: "arguments_invalid" } } });
      expect(performance.now() - before).toBeLessThan(5_000);
      const kept = await save(
        {
          $schema: "http://json-schema.org/draft-07/schema#",
          type: "object",
          definitions: { n: { type: "integer" } },
          properties: { b: { $ref: "#/definitions/n" }, a: { type: "string", "x-unknown": 1 } },
        },
        2,
      );
      expect(kept.status).toBe(200);
      const text = JSON.stringify((await cell.http("GET", `/v1/toolsets/${id}`)).body.tools);
      expect(text.indexOf('"b"')).toBeLessThan(text.indexOf('"a"'));
      expect(text).toContain('"x-unknown":1');
    },
    oncePerLedger,
  ),

  scenario(
    ["R6"],
    "a faulty tool is refused by createRunner, which names it",
    async (cell) => {
      const transport = memoryTransport((channel) => cell.broker.serveRunner(channel));
      const named = (name: string, more: object = {}) =>
        defineTool({ name, description: "A tool.", input: { type: "object" }, run: async () => null, ...more });
      expect(() => createRunner({ transport, binding: "b", tools: [named("twice"), named("twice")] })).toThrow(/twice/);
      expect(() => createRunner({ transport, binding: "b", tools: [named("faulty", { input: { type: "strin" } })] })).toThrow(/faulty/);
      expect(() => createRunner({ transport, binding: "b", tools: [named("numbered", { version: 1 as unknown as string })] })).toThrow(
        /numbered/,
      );
    },
    onlyOnce,
  ),
];
