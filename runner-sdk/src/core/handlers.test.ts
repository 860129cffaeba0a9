import { describe, expect, it } from "vitest";
import { defineTool, type Tool } from "../define-tool.js";
import { RunnerConfigError } from "./errors.js";
import { createHandlerTable, declarationOf } from "./handlers.js";

const tool = (more: Record<string, unknown> = {}) =>
  ({ ...defineTool({ name: "refund", description: "Refund an order.", run: () => null }), ...more }) as Tool;

function refused(tools: unknown): RunnerConfigError {
  try {
    createHandlerTable(tools as Tool[]);
  } catch (error) {
    if (error instanceof RunnerConfigError) return error;
    throw error;
  }
  throw new Error("it was taken");
}

describe("the handler table (R6)", () => {
  it("fills in the defaults: version 1, write, not idempotent, not cancellable, 300 s", () => {
    const made = defineTool({ name: "a", description: "", run: () => null });
    expect(made).toMatchObject({ version: "1", behaviour: "write", idempotent: false, cancellable: false, timeoutSeconds: 300 });
    const [handler] = createHandlerTable([made]).all;
    expect(handler && declarationOf(handler)).toEqual({
      tool: "a",
      version: "1",
      idempotent: false,
      cancellable: false,
      readOnly: false,
      reconciles: false,
    });
    expect(handler?.repeatable).toBe(false);
  });

  it("counts a read-only or an idempotent handler as safe to repeat", () => {
    const repeatable = (more: object) => createHandlerTable([tool(more as Record<string, unknown>)]).all[0]?.repeatable;
    expect(repeatable({ behaviour: "read_only" })).toBe(true);
    expect(repeatable({ idempotent: true })).toBe(true);
  });

  it("lets one name stand with two versions, and refuses a pair that is given twice by its name", () => {
    const table = createHandlerTable([tool(), tool({ version: "2" })]);
    expect(table.versions("refund")).toEqual(["1", "2"]);
    expect(table.find("refund", "2")?.tool.version).toBe("2");
    expect(refused([tool(), tool()])).toMatchObject({ code: "tool_duplicate", tool: "refund" });
  });

  it.each<[string, unknown, string]>([
    ["a version that is a number", tool({ version: 1 }), "tool_version_invalid"],
    ["an empty version", tool({ version: "" }), "tool_version_invalid"],
    ["a run that is no function", tool({ run: "later" }), "tool_invalid"],
    ["no run at all", { name: "refund", description: "" }, "tool_invalid"],
    ["a description that is no string", tool({ description: 5 }), "tool_invalid"],
    ["an unknown behaviour", tool({ behaviour: "readonly" }), "tool_invalid"],
    ["idempotent as text", tool({ idempotent: "yes" }), "tool_invalid"],
    ["a time-out of 4 s", tool({ timeoutSeconds: 4 }), "tool_invalid"],
    ["a time-out of a day and a second", tool({ timeoutSeconds: 86_401 }), "tool_invalid"],
    ["a budget under 1 KiB", tool({ maxResultContextBytes: 1_023 }), "tool_invalid"],
    ["33 scopes", tool({ scopes: Array.from({ length: 33 }, (_, index) => `s${index}`) }), "tool_invalid"],
    ["a reconcile that is no function", tool({ reconcile: {} }), "tool_invalid"],
    ["a schema that does not compile", tool({ input: { type: "strnig" } }), "schema_invalid"],
    ["a schema with a BigInt", tool({ input: { minimum: 1n } }), "schema_invalid"],
    ["an output schema that does not compile", tool({ output: { pattern: "(" } }), "schema_invalid"],
  ])("refuses %s and names the tool", (_name, given, code) => {
    const error = refused([given]);
    expect(error).toMatchObject({ code, tool: "refund" });
    expect(error.message).toContain('"refund"');
  });

  it.each(["1st", "", "a b", "ä", "x".repeat(65), 7, null])("refuses the name %s", (name) => {
    expect(refused([tool({ name })]).code).toBe("tool_name_invalid");
  });

  it.each([undefined, null, {}, [], [null], ["refund"]])("refuses %s as a list of tools", (tools) => {
    expect(refused(tools).code).toMatch(/options_invalid|tool_invalid/);
  });

  it("takes a tool written as plain options", () => {
    const table = createHandlerTable([{ name: "plain", description: "", run: () => 1 } as unknown as Tool]);
    expect(table.find("plain", "1")?.inputSchemaText).toBe('{"type":"object"}');
  });

  it("keeps the schema's keywords in their order", () => {
    const input = { type: "object", properties: { z: {}, a: {} }, "x-kept": [1, 2] };
    expect(createHandlerTable([tool({ input })]).all[0]?.inputSchemaText).toBe(JSON.stringify(input));
  });
});

describe("Standard Schema (R6)", () => {
  const standard = (more: object) => ({ "~standard": { version: 1, vendor: "test", validate: () => ({ value: 1 }), ...more } });

  it("asks a Standard JSON Schema for draft 2020-12, input and output each for itself", () => {
    const asked: string[] = [];
    const converter = {
      input: ({ target }: { target: string }) => {
        asked.push(`input ${target}`);
        return { type: "object" };
      },
      output: ({ target }: { target: string }) => {
        asked.push(`output ${target}`);
        return { type: "string" };
      },
    };
    const schema = standard({ jsonSchema: converter });
    const [handler] = createHandlerTable([tool({ input: schema, output: schema })]).all;
    expect(handler).toMatchObject({ inputSchemaText: '{"type":"object"}', outputSchemaText: '{"type":"string"}' });
    expect(asked).toEqual(["input draft-2020-12", "output draft-2020-12"]);
  });

  it("takes a schema that is a function", () => {
    const schema = Object.assign(() => {}, standard({ jsonSchema: { input: () => ({ type: "object" }) } }));
    expect(createHandlerTable([tool({ input: schema })]).all[0]?.inputSchemaText).toBe('{"type":"object"}');
  });

  it("wants inputJsonSchema beside a Standard Schema that cannot write itself, and uses it", () => {
    expect(refused([tool({ input: standard({}) })])).toMatchObject({ code: "schema_without_json_schema", tool: "refund" });
    const beside = createHandlerTable([tool({ input: standard({}), inputJsonSchema: { type: "object", title: "kept" } })]);
    expect(beside.all[0]?.inputSchemaText).toBe('{"type":"object","title":"kept"}');
  });

  it("names the tool when the conversion throws", () => {
    const input = standard({
      jsonSchema: {
        input: () => {
          throw new Error("transforms cannot be written");
        },
      },
    });
    expect(refused([tool({ input })]).message).toContain("transforms cannot be written");
  });
});

describe("the types of arguments", () => {
  it("are read off the schema", () => {
    const made = defineTool({
      name: "typed",
      description: "",
      input: {
        type: "object",
        properties: { order: { type: "string" }, count: { type: "integer" }, kind: { enum: ["a", "b"] } },
        required: ["order"],
      },
      run: (args) => {
        const order: string = args.order;
        const count: number | undefined = args.count;
        const kind: "a" | "b" | undefined = args.kind;
        return { order, count: count ?? null, kind: kind ?? null };
      },
    });
    expect(made.run({ order: "A1" }, {} as never)).toEqual({ order: "A1", count: null, kind: null });
  });

  it("leave a handler written as a method its `this`", () => {
    const options = {
      name: "method",
      description: "",
      prefix: "p",
      run(this: { prefix: string }) {
        return this.prefix;
      },
    };
    expect(defineTool(options).run({}, {} as never)).toBe("p");
  });
});
