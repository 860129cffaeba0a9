/**
 * The table of handlers that a runner serves, made once from its tools (R6).
 *
 * Invariants: every tool in the table has a valid name, a string version, schemas that compile, and a handler; no two share
 * name and version. Nothing else in the SDK looks at a tool again.
 */
import { defineTool, type Tool, type ToolOptions } from "../define-tool.js";
import { messageOf, RunnerConfigError } from "./errors.js";
import { toJsonText } from "./json.js";
import { schemaFaults } from "./schema-check.js";

const TOOL_NAME = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;
const VERSION_CHARACTERS_MAX = 64;
const HANDLERS_MAX = 1_024;
const SCOPES_MAX = 32;
const JSON_SCHEMA_TARGET = "draft-2020-12";

/** One handler, checked. */
export interface Handler {
  readonly tool: Tool;
  readonly inputSchemaText: string;
  /** "" without one. */
  readonly outputSchemaText: string;
  /** It may run again after a run whose end is unknown. */
  readonly repeatable: boolean;
}

/** What a runner tells its broker, and `toolrunner run` its user, about a handler. */
export interface HandlerDeclaration {
  readonly tool: string;
  readonly version: string;
  readonly idempotent: boolean;
  readonly cancellable: boolean;
  readonly readOnly: boolean;
  /** It has a `reconcile` handler. */
  readonly reconciles: boolean;
}

/** The handlers of a runner. */
export interface HandlerTable {
  /** The handler of exactly this version. */
  find(tool: string, version: string): Handler | undefined;
  /** Versions of a tool that are served. */
  versions(tool: string): readonly string[];
  /** In the order in which they were given. */
  readonly all: readonly Handler[];
}

/** Checks all tools. @throws RunnerConfigError for the first fault, naming the tool. */
export function createHandlerTable(tools: readonly Tool[]): HandlerTable {
  if (!Array.isArray(tools) || tools.length === 0) {
    throw new RunnerConfigError("options_invalid", "`tools` must be an array with at least one tool: make tools with defineTool");
  }
  if (tools.length > HANDLERS_MAX) {
    throw new RunnerConfigError(
      "options_invalid",
      `${tools.length} tools are over the limit of ${HANDLERS_MAX} for one runner: split them`,
    );
  }
  const table = new Map<string, Handler>();
  for (const [index, given] of tools.entries()) {
    const handler = checkTool(given, index);
    const key = handlerKey(handler.tool.name, handler.tool.version);
    if (table.has(key)) {
      throw new RunnerConfigError(
        "tool_duplicate",
        `tool "${handler.tool.name}" version "${handler.tool.version}" is given twice: keep one, or give the other another version`,
        handler.tool.name,
      );
    }
    table.set(key, handler);
  }
  const all = [...table.values()];
  return {
    all,
    find: (tool, version) => table.get(handlerKey(tool, version)),
    versions: (tool) => all.filter((handler) => handler.tool.name === tool).map((handler) => handler.tool.version),
  };
}

/** Names hold no line break, so a key stands for one pair only. */
const handlerKey = (tool: string, version: string) => `${tool}\n${version}`;

/** The handler as the broker is told about it. */
export function declarationOf({ tool }: Handler): HandlerDeclaration {
  return {
    tool: tool.name,
    version: tool.version,
    idempotent: tool.idempotent,
    cancellable: tool.cancellable,
    readOnly: tool.behaviour === "read_only",
    reconciles: tool.reconcile !== undefined,
  };
}

function checkTool(given: unknown, index: number): Handler {
  if (typeof given !== "object" || given === null) {
    throw new RunnerConfigError("tool_invalid", `tools[${index}] is not a tool: make it with defineTool`);
  }
  // A tool written as plain options gets the defaults here; for one from defineTool this changes nothing.
  const tool = defineTool(given as ToolOptions);
  const { name } = tool;
  if (typeof name !== "string" || !TOOL_NAME.test(name)) {
    throw new RunnerConfigError(
      "tool_name_invalid",
      `tools[${index}] has the name ${quote(name)}: a name starts with a letter and holds letters, digits, "_", "." and "-", at most 64 characters`,
      typeof name === "string" ? name : null,
    );
  }
  const fail = (message: string) => new RunnerConfigError("tool_invalid", `tool "${name}": ${message}`, name);
  if (
    typeof tool.version !== "string" ||
    tool.version === "" ||
    tool.version.length > VERSION_CHARACTERS_MAX ||
    /[\r\n]/.test(tool.version)
  ) {
    throw new RunnerConfigError(
      "tool_version_invalid",
      `tool "${name}": version is ${quote(tool.version)}, and must be a string of 1 to ${VERSION_CHARACTERS_MAX} characters on one line, such as "1"`,
      name,
    );
  }
  if (typeof tool.description !== "string") throw fail("`description` must be a string: it is what the model reads");
  if (typeof tool.run !== "function") throw fail(`\`run\` is ${quote(tool.run)}, and must be a function (args, ctx) => result`);
  if (tool.reconcile !== undefined && typeof tool.reconcile !== "function") throw fail("`reconcile` must be a function");
  oneOf(tool.behaviour, ["read_only", "write"], "behaviour", fail);
  oneOf(tool.resultSemantics, ["completion", "submission"], "resultSemantics", fail);
  oneOf(tool.confirmation, ["never", "always"], "confirmation", fail);
  for (const field of ["idempotent", "cancellable"] as const) {
    if (typeof tool[field] !== "boolean") throw fail(`\`${field}\` is ${quote(tool[field])}, and must be true or false`);
  }
  within(tool.timeoutSeconds, 5, 86_400, "timeoutSeconds", fail);
  if (tool.submissionTimeoutSeconds !== undefined) {
    if (tool.resultSemantics !== "submission") throw fail('`submissionTimeoutSeconds` needs resultSemantics: "submission"');
    within(tool.submissionTimeoutSeconds, 5, 2_592_000, "submissionTimeoutSeconds", fail);
  }
  within(tool.maxResultContextBytes, 1_024, 32_768, "maxResultContextBytes", fail);
  if (
    !Array.isArray(tool.scopes) ||
    tool.scopes.length > SCOPES_MAX ||
    !tool.scopes.every((scope) => typeof scope === "string" && scope !== "")
  ) {
    throw fail(`\`scopes\` must be an array of at most ${SCOPES_MAX} names`);
  }
  return {
    tool,
    inputSchemaText: schemaText(name, "input", tool.input, tool.inputJsonSchema),
    outputSchemaText:
      tool.output === undefined && tool.outputJsonSchema === undefined
        ? ""
        : schemaText(name, "output", tool.output, tool.outputJsonSchema),
    repeatable: tool.idempotent || tool.behaviour === "read_only",
  };
}

function oneOf(value: unknown, allowed: readonly string[], field: string, fail: (message: string) => Error): void {
  if (typeof value !== "string" || !allowed.includes(value))
    throw fail(`\`${field}\` is ${quote(value)}, and must be ${allowed.map(quote).join(" or ")}`);
}

function within(value: unknown, min: number, max: number, field: string, fail: (message: string) => Error): void {
  if (!Number.isInteger(value) || Number(value) < min || Number(value) > max) {
    throw fail(`\`${field}\` is ${quote(value)}, and must be an integer from ${min} to ${max}`);
  }
}

function schemaText(tool: string, side: "input" | "output", schema: unknown, jsonSchema: unknown): string {
  const invalid = (message: string, cause?: unknown) =>
    new RunnerConfigError("schema_invalid", `tool "${tool}": ${message}`, tool, { cause });
  const field = jsonSchema === undefined ? side : `${side}JsonSchema`;
  const source = jsonSchema === undefined ? writtenAsJsonSchema(tool, side, schema) : jsonSchema;
  let text: string;
  try {
    text = toJsonText(source);
  } catch (error) {
    throw invalid(`\`${field}\` is not JSON: ${messageOf(error)}`, error);
  }
  const fault = schemaFaults(JSON.parse(text), text)[0];
  if (fault !== undefined)
    throw invalid(`\`${field}\` does not compile: ${fault.path === "" ? "the schema" : fault.path} ${fault.message}`);
  return text;
}

function writtenAsJsonSchema(tool: string, side: "input" | "output", schema: unknown): unknown {
  // Libraries such as arktype make schemas that are functions.
  if ((typeof schema !== "object" && typeof schema !== "function") || schema === null || !("~standard" in schema)) return schema;
  const standard = schema["~standard"];
  const converter = typeof standard === "object" && standard !== null && "jsonSchema" in standard ? standard.jsonSchema : undefined;
  const convert =
    typeof converter === "object" && converter !== null && side in converter ? (converter as Record<string, unknown>)[side] : undefined;
  if (typeof convert !== "function") {
    throw new RunnerConfigError(
      "schema_without_json_schema",
      `tool "${tool}": \`${side}\` is a Standard Schema that cannot write itself as JSON Schema: give \`${side}JsonSchema\` beside it`,
      tool,
    );
  }
  try {
    return convert.call(converter, { target: JSON_SCHEMA_TARGET });
  } catch (error) {
    throw new RunnerConfigError(
      "schema_without_json_schema",
      `tool "${tool}": \`${side}\` cannot be written as JSON Schema ${JSON_SCHEMA_TARGET} (${messageOf(error)}): give \`${side}JsonSchema\` beside it`,
      tool,
      { cause: error },
    );
  }
}

function quote(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
  return typeof value === "function" ? "a function" : String(value);
}
