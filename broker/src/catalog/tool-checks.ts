/** The compiled schemas of tools, one for each content, for as long as it is in use. */
import { BrokerError } from "../domain/broker-error.js";
import type { FaultDetail } from "../domain/fault.js";
import type { Json, ToolView } from "../domain/ports/catalog.js";
import { createLruCache } from "./lru-cache.js";
import type { CompiledSchema, SchemaCompiler } from "./schema/compile-schema.js";

export interface ToolCheck {
  checkArguments(value: unknown): readonly FaultDetail[];
  checkResult(value: unknown): readonly FaultDetail[];
}

export interface ToolChecks {
  /** `content`: the hash of the tool's text. */
  of(content: string, tool: ToolView): ToolCheck;
}

/** Contents whose compiled schemas are kept. */
const COMPILED_TOOLS_MAX = 1_024;

export function createToolChecks(compiler: SchemaCompiler): ToolChecks {
  const checks = createLruCache<ToolCheck>(COMPILED_TOOLS_MAX);

  function compile(tool: ToolView, schema: Json, role: "input" | "output"): CompiledSchema {
    const outcome = compiler.compile(schema, role);
    if (outcome.kind === "compiled") return outcome.compiled;
    const fault = outcome.kind === "faulty" ? outcome.faults[0] : outcome.fault;
    throw new BrokerError(
      "internal",
      `The stored ${role} schema of tool ${tool.name} no longer compiles at ${fault?.path}: expected ${fault?.expected}.`,
    );
  }

  return {
    of(content, tool) {
      const known = checks.get(content);
      if (known !== undefined) return known;
      const input = compile(tool, tool.input_schema, "input");
      const output = tool.output_schema === null ? undefined : compile(tool, tool.output_schema, "output");
      const check: ToolCheck = {
        checkArguments: (value) => input.check(value),
        checkResult: (value) => output?.check(value) ?? [],
      };
      checks.set(content, check);
      return check;
    },
  };
}
