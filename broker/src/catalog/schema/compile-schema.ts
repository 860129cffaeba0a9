/**
 * Schemas of tools: checked when they are saved, compiled once for each content, never loaded from anywhere.
 *
 * Invariants:
 * 1. Only what the four dialects define acts on values: keywords of Ajv's own (`$async`, `nullable`) are annotations here.
 * 2. No schema and no value can make a check run away: patterns run in linear time, `uniqueItems` too, and every check has
 *    a budget of steps. What uses it up, or nests deeper than the stack, is a fault of the value.
 * 3. A value is never changed by its check, and its inherited properties do not count (`__proto__`, `toString`).
 */
import type { AnySchemaObject, ErrorObject, Options, ValidateFunction } from "ajv";
import { canonicalJson } from "../../domain/canonical-json.js";
import type { FaultDetail } from "../../domain/fault.js";
import { SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX } from "../../domain/limits.js";
import { createLruCache } from "../lru-cache.js";
import { compilePattern, PatternError, PatternStepsError } from "../pattern/compile-pattern.js";
import { boundedFormats } from "./bounded-formats.js";
import { describeFaults, limitFaults } from "./describe-faults.js";
import { createMetaSchemas, type Dialect, dialectNames, dialectOf, newAjv } from "./dialects.js";
import { child, resolvePointer } from "./json-pointer.js";
import { findShapeFault } from "./json-shape.js";
import { renderActual } from "./render-actual.js";
import { walkSchema } from "./walk-schema.js";

export interface CompiledSchema {
  /** All faults of `value`; empty when it is valid. */
  check(value: unknown): readonly FaultDetail[];
}

export type SchemaOutcome =
  | { readonly kind: "compiled"; readonly compiled: CompiledSchema }
  /** `paths` are relative to the schema. */
  | { readonly kind: "faulty"; readonly faults: readonly FaultDetail[] }
  /** Over the limit of bytes or depth. */
  | { readonly kind: "too_large"; readonly fault: FaultDetail };

export interface SchemaCompiler {
  /** Compiles a schema that a person wrote; names every fault. `input`: the schema must allow an object at its root. */
  compile(schema: unknown, role: "input" | "output"): SchemaOutcome;
}

/** Schemas that one value may pass through: far above what an honest schema needs for the largest arguments. */
const STEPS_MAX = 2_000_000;
/** Parts of all patterns of a schema, once unfolded. */
const PATTERN_PARTS_MAX = 64_000;
const STEP_KEYWORD = "$toolrunner_step";
const NONE: readonly FaultDetail[] = [];

class StepsExceededError extends Error {
  override readonly name = "StepsExceededError";
}

/** Compiled schemas that are kept. */
const COMPILED_MAX = 2_048;

/** Keeps what it compiled, by the schema's text: a runner that connects again, or a toolset that is saved again, costs no second compilation. */
export function createSchemaCompiler(): SchemaCompiler {
  const metaSchemas = createMetaSchemas();
  const compiled = createLruCache<SchemaOutcome>(COMPILED_MAX);

  return {
    compile(schema, role) {
      if (typeof schema === "boolean") {
        if (role === "output" || schema) return { kind: "compiled", compiled: compileSafe("2020-12", schema ? {} : { not: {} }) };
        return faulty("", "a schema that allows an object", "false");
      }
      if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return faulty("", "a JSON Schema", renderActual(schema));
      const root = schema as Record<string, unknown>;

      const shape = findShapeFault(root, SCHEMA_DEPTH_MAX);
      if (shape?.kind === "too_deep") {
        return tooLarge(shape.path, `at most ${SCHEMA_DEPTH_MAX} levels of nesting`, `more than ${SCHEMA_DEPTH_MAX} levels`);
      }
      if (shape !== undefined) return faulty(shape.path, "a value that JSON can hold", renderActual(resolvePointer(root, shape.path)));
      const text = JSON.stringify(root);
      const bytes = Buffer.byteLength(text);
      if (bytes > SCHEMA_BYTES_MAX) return tooLarge("", `at most ${SCHEMA_BYTES_MAX} bytes`, `${bytes} bytes`);

      const known = compiled.get(`${role} ${text}`);
      if (known !== undefined) return known;
      const dialect = dialectOf(Object.hasOwn(root, "$schema") ? root.$schema : undefined);
      if (dialect === undefined) return faulty("/$schema", `one of ${dialectNames()}`, renderActual(root.$schema));
      const meta = describeFaults(metaSchemas.check(dialect, root as AnySchemaObject));
      if (meta.length > 0) return { kind: "faulty", faults: meta };

      const copy = JSON.parse(text) as Record<string, unknown>;
      const faults = prepare(copy);
      if (role === "input" && !allowsObject(root, root, new Map())) {
        faults.push({ path: child("", "type"), expected: "a schema that allows an object", actual: describeType(root) });
      }
      if (faults.length > 0) return { kind: "faulty", faults: limitFaults(faults) };
      const outcome = compileCopy(dialect, copy);
      if (outcome.kind === "compiled") compiled.set(`${role} ${text}`, outcome);
      return outcome;
    },
  };
}

function compileCopy(dialect: Dialect, copy: Record<string, unknown>): SchemaOutcome {
  let compiled: CompiledSchema;
  try {
    compiled = compileSafe(dialect, copy);
  } catch (error) {
    const reason = error instanceof Error ? error.message : "unknown reason";
    return faulty("", "a schema that compiles", `an error: ${reason.slice(0, 200)}`);
  }
  // A schema that refers to itself without going into the value, or unfolds without end, fails on any value.
  const [runaway] = compiled.check({}).filter((fault) => fault.expected === RUNAWAY);
  if (runaway !== undefined) return faulty("", "a schema that ends for every value", "references that unfold without end");
  return { kind: "compiled", compiled };
}

/** Makes the copy safe to compile, and names what cannot be made safe. */
function prepare(copy: Record<string, unknown>): FaultDetail[] {
  const faults: FaultDetail[] = [];
  const nodes: Record<string, unknown>[] = [];
  let parts = 0;
  const checkPattern = (pattern: string, path: string): void => {
    // Small patterns can unfold far: all of a schema together have a limit too.
    if (parts > PATTERN_PARTS_MAX) return;
    try {
      parts += compilePattern(pattern).parts;
      if (parts > PATTERN_PARTS_MAX) {
        faults.push({ path, expected: `patterns that together unfold to at most ${PATTERN_PARTS_MAX} parts`, actual: "more" });
      }
    } catch (error) {
      if (!(error instanceof PatternError)) throw error;
      faults.push({ path, expected: error.expected, actual: renderActual(pattern) });
    }
  };
  walkSchema(copy, {
    node({ schema, path }) {
      nodes.push(schema);
      if (typeof schema.pattern === "string") checkPattern(schema.pattern, child(path, "pattern"));
      const { patternProperties } = schema;
      if (typeof patternProperties === "object" && patternProperties !== null) {
        for (const pattern of Object.keys(patternProperties)) checkPattern(pattern, child(child(path, "patternProperties"), pattern));
      }
    },
    badReference(path, reference, why) {
      faults.push({
        path,
        expected: why === "remote" ? "a reference inside this schema, beginning with #" : "a reference to a definition that exists",
        actual: renderActual(reference),
      });
    },
  });
  for (const schema of nodes) {
    for (const keyword of ["$async", "nullable", "id", "discriminator"]) delete schema[keyword];
    schema[STEP_KEYWORD] = true;
  }
  delete copy.$schema;
  return faults;
}

const RUNAWAY = "a value that the schema can check in bounded time";

function compileSafe(dialect: Dialect, schema: AnySchemaObject): CompiledSchema {
  let steps = 0;
  const ajv = newAjv(dialect, ajvOptions());
  ajv.addKeyword({
    keyword: STEP_KEYWORD,
    schema: false,
    errors: false,
    validate: () => {
      steps += 1;
      if (steps > STEPS_MAX) throw new StepsExceededError();
      return true;
    },
  });
  ajv.removeKeyword("uniqueItems");
  ajv.addKeyword({
    keyword: "uniqueItems",
    type: "array",
    schemaType: "boolean",
    validate: (wanted: boolean, items: readonly unknown[]) => !wanted || allDiffer(items),
  });
  const validate: ValidateFunction = ajv.compile(schema);

  return {
    check(value) {
      steps = 0;
      try {
        if (validate(value)) return NONE;
      } catch (error) {
        if (!(error instanceof StepsExceededError || error instanceof PatternStepsError || error instanceof RangeError)) throw error;
        return [{ path: "", expected: RUNAWAY, actual: renderActual(value) }];
      }
      const errors: readonly ErrorObject[] = validate.errors ?? [];
      // Errors hold the value; they are not kept until the next check.
      validate.errors = null;
      return describeFaults(errors);
    },
  };
}

function ajvOptions(): Options {
  const regExp = Object.assign((source: string) => compilePattern(source), { code: "compilePattern" });
  return {
    strict: false,
    allErrors: true,
    verbose: true,
    messages: false,
    logger: false,
    meta: false,
    validateSchema: false,
    ownProperties: true,
    multipleOfPrecision: 9,
    formats: boundedFormats(),
    code: { regExp },
  };
}

/** Linear where Ajv compares each with each. */
function allDiffer(items: readonly unknown[]): boolean {
  const seen = new Set<string>();
  for (const item of items) {
    const text = canonicalJson(item);
    if (seen.has(text)) return false;
    seen.add(text);
  }
  return true;
}

/** Whether an object can be valid, as far as the root's own keywords tell; in doubt yes. */
function allowsObject(schema: unknown, root: Record<string, unknown>, known: Map<unknown, boolean>): boolean {
  if (typeof schema === "boolean") return schema;
  if (typeof schema !== "object" || schema === null) return true;
  const before = known.get(schema);
  if (before !== undefined) return before;
  // Each schema is asked once, so that references cannot unfold; one that leads back to itself decides nothing.
  known.set(schema, true);
  const answer = allowsObjectHere(schema as Record<string, unknown>, (part) => allowsObject(part, root, known), root);
  known.set(schema, answer);
  return answer;
}

function allowsObjectHere(here: Record<string, unknown>, allows: (part: unknown) => boolean, root: Record<string, unknown>): boolean {
  const own = (keyword: string): unknown => (Object.hasOwn(here, keyword) ? here[keyword] : undefined);
  const { type, constant, list } = { type: own("type"), constant: own("const"), list: own("enum") };
  if (type !== undefined && ![type].flat().includes("object")) return false;
  if (Object.hasOwn(here, "const") && !isObject(constant)) return false;
  if (Array.isArray(list) && !list.some(isObject)) return false;
  const reference = own("$ref");
  if (typeof reference === "string" && /^#(?:\/|$)/.test(reference) && !allows(resolvePointer(root, reference.slice(1)))) return false;
  const allOf = own("allOf");
  if (Array.isArray(allOf) && !allOf.every(allows)) return false;
  for (const keyword of ["anyOf", "oneOf"]) {
    const forms = own(keyword);
    if (Array.isArray(forms) && !forms.some(allows)) return false;
  }
  return true;
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function describeType(root: Record<string, unknown>): string {
  return root.type === undefined ? "a schema that allows none" : `type ${JSON.stringify(root.type).slice(0, 60)}`;
}

function faulty(path: string, expected: string, actual: string): SchemaOutcome {
  return { kind: "faulty", faults: [{ path, expected, actual }] };
}

function tooLarge(path: string, expected: string, actual: string): SchemaOutcome {
  return { kind: "too_large", fault: { path, expected, actual } };
}
