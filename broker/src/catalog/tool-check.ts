/**
 * Checks tools as people write them (features.md C2, C3, C9) and fills in what they left out.
 * Every fault is named with its path; nothing is stored that did not pass here.
 */
import { BrokerError } from "../domain/broker-error.js";
import type { FaultDetail } from "../domain/fault.js";
import {
  ID_PATTERN,
  LIMIT_MAX,
  MODEL_RESULT_BYTES_DEFAULT,
  MODEL_RESULT_BYTES_MAX,
  MODEL_RESULT_BYTES_MIN,
  SCOPES_PER_TOOL_MAX,
  SUBMISSION_TIMEOUT_SECONDS_DEFAULT,
  SUBMISSION_TIMEOUT_SECONDS_MAX,
  SUBMISSION_TIMEOUT_SECONDS_MIN,
  TIMEOUT_SECONDS_DEFAULT,
  TIMEOUT_SECONDS_MAX,
  TIMEOUT_SECONDS_MIN,
  TOOL_NAME_PATTERN,
  TOOLS_PER_TOOLSET_MAX,
} from "../domain/limits.js";
import type { Json, ToolView } from "../domain/ports/catalog.js";
import { DOCUMENT_BYTES_MAX } from "../domain/ports/catalog-store.js";
import { sha256 } from "./document-codec.js";
import type { SchemaCompiler } from "./schema/compile-schema.js";
import { limitFaults } from "./schema/describe-faults.js";
import { child } from "./schema/json-pointer.js";
import { renderActual } from "./schema/render-actual.js";

/** A tool ready to be stored: its text is kept byte for byte from now on. */
export interface PreparedTool {
  readonly name: string;
  readonly binding: string;
  readonly text: string;
  /** SHA-256 of `text`: the name of its document. */
  readonly content: string;
}

/** Longest version of a handler and longest scope, in characters. */
export const VERSION_CHARACTERS_MAX = 64;
export const SCOPE_CHARACTERS_MAX = 128;

/** Compiling schemas takes milliseconds each; calls and pings go on in between. */
const PAUSE_AFTER_MS = 10;

const VISIBLE = /^[\x21-\x7e]+$/;

interface Findings {
  readonly faults: FaultDetail[];
  readonly oversized: FaultDetail[];
}

/**
 * The tools with defaults filled in. `binding` is what a tool without one gets (development only).
 * Throws `tool_invalid` with every fault, or `schema_too_large` when size or depth is all that is wrong.
 */
export async function checkTools(compiler: SchemaCompiler, tools: readonly unknown[], binding?: string): Promise<PreparedTool[]> {
  if (tools.length > TOOLS_PER_TOOLSET_MAX) {
    throw new BrokerError("tool_invalid", `A toolset has at most ${TOOLS_PER_TOOLSET_MAX} tools; this one has ${tools.length}.`, {
      details: [{ path: "/tools", expected: `at most ${TOOLS_PER_TOOLSET_MAX} tools`, actual: `${tools.length} tools` }],
    });
  }
  const findings: Findings = { faults: [], oversized: [] };
  const names = new Map<string, number>();
  const prepared: PreparedTool[] = [];
  let pausedAt = performance.now();
  for (const [index, tool] of tools.entries()) {
    const path = `/tools/${index}`;
    const checked = checkTool(compiler, tool, path, findings, binding);
    if (checked !== undefined) prepared.push(checked);
    const name = nameOf(tool);
    const first = name === undefined ? undefined : names.get(name);
    if (name !== undefined && first === undefined) names.set(name, index);
    if (first !== undefined) {
      findings.faults.push({ path: `${path}/name`, expected: `a name that /tools/${first} does not have`, actual: renderActual(name) });
    }
    if (performance.now() - pausedAt > PAUSE_AFTER_MS) {
      await new Promise((resolve) => setImmediate(resolve));
      pausedAt = performance.now();
    }
  }
  refuse(tools, findings);
  return prepared;
}

function refuse(tools: readonly unknown[], findings: Findings): void {
  const details = limitFaults([...findings.faults, ...findings.oversized]);
  const [first] = details;
  if (first === undefined) return;
  const index = Number(first.path.split("/")[2]);
  const which = `Tool ${renderName(nameOf(tools[index]), index)}`;
  const rest = details.length > 1 ? `; ${details.length - 1} more in details` : "";
  throw new BrokerError(
    findings.faults.length > 0 ? "tool_invalid" : "schema_too_large",
    `${which}: ${first.path} must be ${first.expected}, but is ${first.actual}${rest}.`,
    { details },
  );
}

function renderName(name: string | undefined, index: number): string {
  return name === undefined || name.length > 64 ? `number ${index}` : JSON.stringify(name);
}

function nameOf(tool: unknown): string | undefined {
  if (typeof tool !== "object" || tool === null || !Object.hasOwn(tool, "name")) return undefined;
  const { name } = tool as { name?: unknown };
  return typeof name === "string" ? name : undefined;
}

const FIELDS: ReadonlySet<string> = new Set([
  "name",
  "description",
  "input_schema",
  "output_schema",
  "binding",
  "behaviour",
  "confirmation",
  "result_semantics",
  "submission_timeout_seconds",
  "max_result_context_bytes",
  "version",
  "timeout_seconds",
  "idempotent",
  "cancellable",
  "scopes",
  "max_concurrency",
  "max_queue",
] satisfies (keyof ToolView)[]);

function checkTool(
  compiler: SchemaCompiler,
  tool: unknown,
  path: string,
  findings: Findings,
  defaultBinding: string | undefined,
): PreparedTool | undefined {
  if (typeof tool !== "object" || tool === null || Array.isArray(tool)) {
    findings.faults.push({ path, expected: "a tool, which is an object", actual: renderActual(tool) });
    return undefined;
  }
  const before = findings.faults.length + findings.oversized.length;
  const source = tool as Record<string, unknown>;
  for (const field of Object.keys(source)) {
    if (!FIELDS.has(field))
      findings.faults.push({ path: child(path, field), expected: "no field of this name", actual: renderActual(source[field]) });
  }

  /** The field's value when it passes, else undefined with a fault. An absent field passes as `fallback`. */
  function field<T>(name: keyof ToolView, expected: string, accept: (value: unknown) => value is T, fallback?: T): T | undefined {
    const value = Object.hasOwn(source, name) ? source[name] : undefined;
    if (value === undefined && fallback !== undefined) return fallback;
    if (accept(value)) return value;
    findings.faults.push({ path: child(path, name), expected, actual: renderActual(value) });
    return undefined;
  }

  const oneOf = <T extends string>(name: keyof ToolView, allowed: readonly T[], fallback: T): T | undefined =>
    field(
      name,
      `one of ${allowed.map((value) => JSON.stringify(value)).join(", ")}`,
      (value): value is T => (allowed as readonly unknown[]).includes(value),
      fallback,
    );
  const integer = (name: keyof ToolView, least: number, most: number, fallback?: number): number | undefined =>
    field(
      name,
      `an integer from ${least} to ${most}`,
      (value): value is number => Number.isInteger(value) && Number(value) >= least && Number(value) <= most,
      fallback,
    );

  const view = {
    name: field(
      "name",
      "a letter and up to 63 letters, digits, _, . or -",
      (value): value is string => typeof value === "string" && TOOL_NAME_PATTERN.test(value),
    ),
    description: field("description", "a string", (value): value is string => typeof value === "string"),
    input_schema: checkSchema("input_schema", "input"),
    output_schema: source.output_schema === undefined || source.output_schema === null ? null : checkSchema("output_schema", "output"),
    binding: field(
      "binding",
      "the id of a binding, of the form [a-z][a-z0-9_-]{0,63}",
      (value): value is string => typeof value === "string" && ID_PATTERN.test(value),
      defaultBinding,
    ),
    behaviour: oneOf("behaviour", ["read_only", "write"], "write"),
    confirmation: oneOf("confirmation", ["never", "always"], "never"),
    result_semantics: oneOf("result_semantics", ["completion", "submission"], "completion"),
    ...checkSubmissionTimeout(),
    max_result_context_bytes: integer(
      "max_result_context_bytes",
      MODEL_RESULT_BYTES_MIN,
      MODEL_RESULT_BYTES_MAX,
      MODEL_RESULT_BYTES_DEFAULT,
    ),
    version: field(
      "version",
      `a string of 1 to ${VERSION_CHARACTERS_MAX} visible ASCII characters`,
      (value): value is string => typeof value === "string" && value.length <= VERSION_CHARACTERS_MAX && VISIBLE.test(value),
      "1",
    ),
    timeout_seconds: integer("timeout_seconds", TIMEOUT_SECONDS_MIN, TIMEOUT_SECONDS_MAX, TIMEOUT_SECONDS_DEFAULT),
    idempotent: field("idempotent", "a boolean", isBoolean, false),
    cancellable: field("cancellable", "a boolean", isBoolean, false),
    scopes: checkScopes(),
    // Where they are absent the text stays as it was before there were limits.
    ...(source.max_concurrency === undefined ? {} : { max_concurrency: integer("max_concurrency", 1, LIMIT_MAX) }),
    ...(source.max_queue === undefined ? {} : { max_queue: integer("max_queue", 0, LIMIT_MAX) }),
  };

  /** Left out where it is not given: tools that were saved before there was such a field keep their content. */
  function checkSubmissionTimeout(): { readonly submission_timeout_seconds?: number | undefined } {
    const name = "submission_timeout_seconds";
    if (!Object.hasOwn(source, name) || source[name] === undefined) return {};
    if (source.result_semantics !== "submission") {
      findings.faults.push({
        path: child(path, name),
        expected: "no such field, since result_semantics is not submission",
        actual: renderActual(source[name]),
      });
      return {};
    }
    return { [name]: integer(name, SUBMISSION_TIMEOUT_SECONDS_MIN, SUBMISSION_TIMEOUT_SECONDS_MAX, SUBMISSION_TIMEOUT_SECONDS_DEFAULT) };
  }

  function checkSchema(name: "input_schema" | "output_schema", role: "input" | "output"): Json | undefined {
    const at = child(path, name);
    const schema = Object.hasOwn(source, name) ? source[name] : undefined;
    const outcome = compiler.compile(schema, role);
    switch (outcome.kind) {
      case "compiled":
        return schema as Json;
      case "too_large":
        findings.oversized.push({ ...outcome.fault, path: `${at}${outcome.fault.path}` });
        return undefined;
      case "faulty":
        findings.faults.push(...outcome.faults.map((fault) => ({ ...fault, path: `${at}${fault.path}` })));
        return undefined;
    }
  }

  function checkScopes(): readonly string[] | undefined {
    const list = field("scopes", `an array of at most ${SCOPES_PER_TOOL_MAX} scopes`, isScopeList, []);
    const seen = new Set<unknown>();
    list?.forEach((scope, index) => {
      const fits = typeof scope === "string" && scope.length <= SCOPE_CHARACTERS_MAX && VISIBLE.test(scope);
      if (!fits || seen.has(scope)) {
        const expected = fits ? "a scope that is not listed yet" : `a string of 1 to ${SCOPE_CHARACTERS_MAX} visible ASCII characters`;
        findings.faults.push({ path: child(child(path, "scopes"), index), expected, actual: renderActual(scope) });
      }
      seen.add(scope);
    });
    return list as readonly string[] | undefined;
  }

  if (findings.faults.length + findings.oversized.length > before) return undefined;
  const text = JSON.stringify(view);
  const bytes = Buffer.byteLength(text);
  if (bytes > DOCUMENT_BYTES_MAX) {
    findings.faults.push({ path, expected: `at most ${DOCUMENT_BYTES_MAX} bytes in all`, actual: `${bytes} bytes` });
    return undefined;
  }
  return { name: view.name ?? "", binding: view.binding ?? "", text, content: sha256(text) };
}

function isBoolean(value: unknown): value is boolean {
  return typeof value === "boolean";
}

function isScopeList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value) && value.length <= SCOPES_PER_TOOL_MAX;
}
