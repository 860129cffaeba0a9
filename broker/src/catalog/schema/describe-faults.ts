/**
 * Turns what Ajv reports into faults in people's words.
 *
 * Invariants:
 * 1. `path` names the place itself: a missing or a surplus property is named, not the object around it.
 * 2. No fault carries a long value of the caller's.
 * 3. A summary ("fits none of the forms") stays only where nothing more exact is known about its place.
 */
import type { ErrorObject } from "ajv";
import type { FaultDetail } from "../../domain/fault.js";
import { child } from "./json-pointer.js";
import { renderActual } from "./render-actual.js";

/** More faults than these are counted, not listed. */
export const FAULTS_MAX = 256;
const EXPECTED_CHARACTERS_MAX = 300;

interface Draft extends FaultDetail {
  readonly kind: "type" | "summary" | "exact";
}

/** All faults, in the order of their discovery, without repeats; over {@link FAULTS_MAX} a last one says how many more there are. */
export function describeFaults(errors: readonly ErrorObject[]): FaultDetail[] {
  const drafts = new Map<string, Draft>();
  const types = new Map<string, Set<string>>();
  const exactPaths = new Set<string>();
  for (const error of errors) {
    const draft = describe(error);
    if (draft.kind === "type") {
      const expected = types.get(draft.path) ?? new Set();
      types.set(draft.path, expected.add(draft.expected));
      exactPaths.add(draft.path);
      drafts.set(`type ${draft.path}`, { ...draft, expected: [...expected].join(" or ") });
      continue;
    }
    if (draft.kind === "exact") exactPaths.add(draft.path);
    drafts.set(`${draft.kind} ${draft.path} ${draft.expected}`, draft);
  }
  const faults = [...drafts.values()]
    .filter((draft) => draft.kind !== "summary" || !hasAtOrBelow(exactPaths, draft.path))
    .map(({ path, expected, actual }): FaultDetail => ({ path, expected, actual }));
  return limitFaults(faults);
}

/** Keeps the first {@link FAULTS_MAX} and says how many there were. */
export function limitFaults(faults: readonly FaultDetail[]): FaultDetail[] {
  if (faults.length <= FAULTS_MAX) return [...faults];
  return [
    ...faults.slice(0, FAULTS_MAX),
    { path: "", expected: "a value without further faults", actual: `${faults.length - FAULTS_MAX} further faults` },
  ];
}

function hasAtOrBelow(paths: ReadonlySet<string>, path: string): boolean {
  if (paths.has(path)) return true;
  const below = `${path}/`;
  for (const other of paths) {
    if (other.startsWith(below)) return true;
  }
  return false;
}

function describe(error: ErrorObject): Draft {
  const params = error.params as Readonly<Record<string, unknown>>;
  if (error.propertyName !== undefined) {
    const expected = shorten(`a property name that is ${expectation(error.keyword, params, error.schema)}`);
    return { kind: "exact", path: child(error.instancePath, error.propertyName), expected, actual: renderActual(error.propertyName) };
  }
  const surplus = params.additionalProperty ?? params.unevaluatedProperty;
  if (typeof surplus === "string") {
    return {
      kind: "exact",
      path: child(error.instancePath, surplus),
      expected: "no property of this name",
      actual: renderActual(own(error.data, surplus)),
    };
  }
  if (typeof params.missingProperty === "string") {
    const because =
      typeof params.property === "string" && error.keyword !== "required" ? `${quote(params.property)} is given` : "it is required";
    return {
      kind: "exact",
      path: child(error.instancePath, params.missingProperty),
      expected: shorten(`a value, because ${because}`),
      actual: "nothing",
    };
  }
  return {
    kind: error.keyword === "type" ? "type" : SUMMARIES.has(error.keyword) ? "summary" : "exact",
    path: error.instancePath,
    expected: shorten(expectation(error.keyword, params, error.schema)),
    actual: renderActual(error.data),
  };
}

const SUMMARIES: ReadonlySet<string> = new Set(["anyOf", "if", "propertyNames", "$ref", "$dynamicRef"]);

const TYPE_NAMES: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  integer: "an integer",
  boolean: "a boolean",
  array: "an array",
  object: "an object",
  null: "null",
};

function expectation(keyword: string, params: Readonly<Record<string, unknown>>, schema: unknown): string {
  const limit = Number(params.limit);
  switch (keyword) {
    case "type":
      return [params.type]
        .flat()
        .map((type) => TYPE_NAMES[String(type)] ?? String(type))
        .join(" or ");
    case "enum":
      return Array.isArray(schema) ? `one of ${schema.map((value) => shortJson(value)).join(", ")}` : "one of the listed values";
    case "const":
      return shortJson(params.allowedValue);
    case "minimum":
    case "maximum":
    case "exclusiveMinimum":
    case "exclusiveMaximum":
      return `a number ${String(params.comparison)} ${limit}`;
    case "multipleOf":
      return `a multiple of ${String(params.multipleOf)}`;
    case "minLength":
      return `at least ${amount(limit, "character")}`;
    case "maxLength":
      return `at most ${amount(limit, "character")}`;
    case "minItems":
      return `at least ${amount(limit, "item")}`;
    case "maxItems":
    case "items":
    case "additionalItems":
    case "unevaluatedItems":
      return `at most ${amount(Number(params.limit ?? params.len), "item")}`;
    case "minProperties":
      return `at least ${amount(limit, "property", "properties")}`;
    case "maxProperties":
      return `at most ${amount(limit, "property", "properties")}`;
    case "uniqueItems":
      return "items that all differ";
    case "contains":
      return params.maxContains === undefined
        ? `at least ${amount(Number(params.minContains), "item")} of the kind that must be contained`
        : `${Number(params.minContains)} to ${Number(params.maxContains)} items of the kind that must be contained`;
    case "pattern":
      return `a string that matches ${String(params.pattern)}`;
    case "format":
      return `a string in the format ${quote(String(params.format))}`;
    case "anyOf":
      return "a value that fits one of the allowed forms";
    case "oneOf":
      return "a value that fits exactly one of the allowed forms";
    case "not":
      return "a value that does not fit the excluded form";
    case "if":
      return "a value that fits the form for its case";
    case "false schema":
      return "nothing here";
    default:
      return `a value that satisfies ${keyword}`;
  }
}

function own(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null && Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined;
}

function amount(count: number, singular: string, plural = `${singular}s`): string {
  return `${count} ${count === 1 ? singular : plural}`;
}

function quote(text: string): string {
  return JSON.stringify(text);
}

function shortJson(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length <= 60 ? text : renderActual(value);
}

function shorten(text: string): string {
  return text.length <= EXPECTED_CHARACTERS_MAX ? text : `${text.slice(0, EXPECTED_CHARACTERS_MAX - 1)}…`;
}
