/**
 * Checks that a JSON Schema compiles, by walking it: no eval, no code generation, so it runs under a strict CSP (R1, R6).
 * It judges the schema, never a value: arguments and results are checked by the broker.
 *
 * Invariants: every subschema is visited once; the walk is bounded by bytes and depth; a fault names the JSON Pointer of its place.
 */
import { utf8Bytes } from "./json.js";

/** Bytes of compact JSON that a schema may have. */
export const SCHEMA_BYTES_MAX = 65_536;
/** Levels that a schema may have. */
export const SCHEMA_DEPTH_MAX = 64;

/** What is wrong with a schema and where. */
export interface SchemaFault {
  /** JSON Pointer, "" for the schema itself. */
  readonly path: string;
  readonly message: string;
}

type Node = Readonly<Record<string, unknown>>;
type KeywordCheck = (value: unknown) => string | null;

const DIALECT = /^https?:\/\/json-schema\.org\/(draft\/2020-12\/schema|draft\/2019-09\/schema|draft-07\/schema|draft-06\/schema)#?$/;
const TYPES = new Set(["null", "boolean", "object", "array", "number", "string", "integer"]);

const SINGLE = [
  "additionalItems",
  "additionalProperties",
  "contains",
  "contentSchema",
  "else",
  "if",
  "not",
  "propertyNames",
  "then",
  "unevaluatedItems",
  "unevaluatedProperties",
];
const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const MAPS = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];

const isObject = (value: unknown): value is Node => typeof value === "object" && value !== null && !Array.isArray(value);
const text: KeywordCheck = (value) => (typeof value === "string" ? null : "must be a string");
const flag: KeywordCheck = (value) => (typeof value === "boolean" ? null : "must be true or false");
const number: KeywordCheck = (value) => (typeof value === "number" ? null : "must be a number");
const count: KeywordCheck = (value) => (Number.isInteger(value) && Number(value) >= 0 ? null : "must be an integer of 0 or more");
const names: KeywordCheck = (value) => {
  if (!Array.isArray(value) || !value.every((item) => typeof item === "string")) return "must be an array of strings";
  return new Set(value).size === value.length ? null : "must not name anything twice";
};
const pattern: KeywordCheck = (value) => {
  if (typeof value !== "string") return "must be a string";
  try {
    new RegExp(value, "u");
    return null;
  } catch (error) {
    return `is not a regular expression: ${error instanceof Error ? error.message : String(error)}`;
  }
};

const KEYWORDS: Readonly<Record<string, KeywordCheck>> = {
  $id: text,
  $anchor: text,
  $dynamicAnchor: text,
  $comment: text,
  title: text,
  description: text,
  format: text,
  contentEncoding: text,
  contentMediaType: text,
  $ref: text,
  $dynamicRef: text,
  $recursiveRef: (value) => (value === "#" ? null : 'must be "#"'),
  $recursiveAnchor: flag,
  deprecated: flag,
  readOnly: flag,
  writeOnly: flag,
  uniqueItems: flag,
  examples: (value) => (Array.isArray(value) ? null : "must be an array"),
  minimum: number,
  maximum: number,
  exclusiveMinimum: number,
  exclusiveMaximum: number,
  multipleOf: (value) => (typeof value === "number" && value > 0 ? null : "must be a number over 0"),
  minLength: count,
  maxLength: count,
  minItems: count,
  maxItems: count,
  minContains: count,
  maxContains: count,
  minProperties: count,
  maxProperties: count,
  required: names,
  pattern,
  enum: (value) => (Array.isArray(value) ? null : "must be an array"),
  type: (value) => {
    const listed = Array.isArray(value) ? value : [value];
    if (Array.isArray(value) && value.length === 0) return "must name at least one type";
    const wrong = listed.find((item) => typeof item !== "string" || !TYPES.has(item));
    if (wrong !== undefined) return `must be one of ${[...TYPES].join(", ")}, not ${JSON.stringify(wrong)}`;
    return new Set(listed).size === listed.length ? null : "must not name a type twice";
  },
  dependentRequired: (value) =>
    isObject(value) && Object.values(value).every((item) => names(item) === null) ? null : "must be an object of arrays of strings",
};

/**
 * The faults of a schema, in document order; none when it compiles.
 * @param schema Parsed JSON: no getters, no cycles.
 * @param schemaText Its compact JSON.
 */
export function schemaFaults(schema: unknown, schemaText: string): readonly SchemaFault[] {
  const bytes = utf8Bytes(schemaText);
  if (bytes > SCHEMA_BYTES_MAX) return [{ path: "", message: `is ${bytes} bytes, over the limit of ${SCHEMA_BYTES_MAX} bytes` }];
  const walk = new Walk(schema);
  return walk.run();
}

interface Place {
  readonly path: string;
  /** Address that `$ref`s are relative to. */
  readonly base: string;
  readonly depth: number;
}

const ROOT_ADDRESS = "schema://tool/";

class Walk {
  readonly #faults: SchemaFault[] = [];
  /** Embedded documents by address, and anchors by address#anchor. */
  readonly #documents = new Map<string, unknown>();
  readonly #anchors = new Set<string>();
  readonly #refs: { readonly ref: string; readonly place: Place }[] = [];

  constructor(private readonly root: unknown) {}

  run(): readonly SchemaFault[] {
    this.#documents.set(ROOT_ADDRESS, this.root);
    this.#visit(this.root, { path: "", base: ROOT_ADDRESS, depth: 0 });
    for (const { ref, place } of this.#refs) this.#checkRef(ref, place);
    return this.#faults;
  }

  #fault(path: string, message: string): void {
    this.#faults.push({ path, message });
  }

  #visit(schema: unknown, place: Place): void {
    if (typeof schema === "boolean") return;
    if (!isObject(schema)) return this.#fault(place.path, "must be an object or a boolean");
    if (place.depth > SCHEMA_DEPTH_MAX) return this.#fault(place.path, `is deeper than ${SCHEMA_DEPTH_MAX} levels`);
    if ("$schema" in schema && (typeof schema["$schema"] !== "string" || !DIALECT.test(schema["$schema"]))) {
      this.#fault(`${place.path}/$schema`, "must be the address of JSON Schema 2020-12, 2019-09, draft-07 or draft-06");
    }
    const here = this.#address(schema, place);
    for (const [keyword, value] of Object.entries(schema)) {
      const wrong = Object.hasOwn(KEYWORDS, keyword) ? KEYWORDS[keyword]?.(value) : null;
      if (wrong != null) this.#fault(`${place.path}/${escapePointer(keyword)}`, wrong);
    }
    for (const keyword of ["$ref", "$dynamicRef"]) {
      const ref = schema[keyword];
      if (typeof ref === "string") this.#refs.push({ ref, place: { ...here, path: `${here.path}/${keyword}` } });
    }
    this.#descend(schema, here);
  }

  /** Takes note of `$id` and anchors; the answer is the place with the base address that holds below. */
  #address(schema: Node, place: Place): Place {
    let base = place.base;
    const id = schema["$id"];
    if (typeof id === "string") {
      const address = resolveAddress(id, base);
      if (address === null) this.#fault(`${place.path}/$id`, "is not an address");
      else if (address.hash !== "") this.#anchors.add(`${address.document}#${address.hash}`);
      else {
        base = address.document;
        this.#documents.set(base, schema);
      }
    }
    for (const keyword of ["$anchor", "$dynamicAnchor"]) {
      const anchor = schema[keyword];
      if (typeof anchor === "string") this.#anchors.add(`${base}#${anchor}`);
    }
    return { ...place, base };
  }

  #descend(schema: Node, place: Place): void {
    const child = (value: unknown, ...segments: string[]) =>
      this.#visit(value, { path: `${place.path}/${segments.map(escapePointer).join("/")}`, base: place.base, depth: place.depth + 1 });
    for (const keyword of SINGLE) if (Object.hasOwn(schema, keyword)) child(schema[keyword], keyword);
    for (const keyword of LISTS) {
      if (!Object.hasOwn(schema, keyword)) continue;
      const list = schema[keyword];
      if (!Array.isArray(list) || list.length === 0) this.#fault(`${place.path}/${keyword}`, "must be an array with at least one schema");
      else for (const [index, item] of list.entries()) child(item, keyword, String(index));
    }
    for (const keyword of MAPS) {
      if (!Object.hasOwn(schema, keyword)) continue;
      const map = schema[keyword];
      if (!isObject(map)) {
        this.#fault(`${place.path}/${keyword}`, "must be an object of schemas");
        continue;
      }
      for (const [name, item] of Object.entries(map)) {
        const wrong = keyword === "patternProperties" ? pattern(name) : null;
        if (wrong !== null) this.#fault(`${place.path}/${keyword}/${escapePointer(name)}`, wrong);
        child(item, keyword, name);
      }
    }
    if (Object.hasOwn(schema, "items")) {
      const items = schema["items"];
      if (!Array.isArray(items)) child(items, "items");
      else for (const [index, item] of items.entries()) child(item, "items", String(index));
    }
    if (Object.hasOwn(schema, "dependencies")) {
      const map = schema["dependencies"];
      if (!isObject(map)) this.#fault(`${place.path}/dependencies`, "must be an object");
      else
        for (const [name, item] of Object.entries(map)) {
          if (!Array.isArray(item)) child(item, "dependencies", name);
          else if (names(item) !== null) this.#fault(`${place.path}/dependencies/${escapePointer(name)}`, "must be an array of strings");
        }
    }
  }

  #checkRef(ref: string, place: Place): void {
    const address = resolveAddress(ref, place.base);
    if (address === null) return this.#fault(place.path, `is not an address: ${JSON.stringify(ref)}`);
    if (DIALECT.test(address.document)) return;
    if (!this.#documents.has(address.document)) {
      return this.#fault(place.path, `${JSON.stringify(ref)} is outside this schema: only local references are followed`);
    }
    if (address.hash === "" || this.#anchors.has(`${address.document}#${address.hash}`)) return;
    if (!address.hash.startsWith("/") || !pointsAtSchema(this.#documents.get(address.document), address.hash)) {
      this.#fault(place.path, `${JSON.stringify(ref)} points at nothing`);
    }
  }
}

function escapePointer(segment: string): string {
  return segment.replaceAll("~", "~0").replaceAll("/", "~1");
}

function resolveAddress(reference: string, base: string): { document: string; hash: string } | null {
  const [front = "", ...rest] = reference.split("#");
  let hash = rest.join("#");
  try {
    hash = decodeURIComponent(hash);
  } catch {
    return null;
  }
  if (front === "") return { document: base, hash };
  try {
    return { document: new URL(front, base).href, hash };
  } catch {
    return null;
  }
}

/** Whether a JSON Pointer leads to something in the document that can stand as a schema. */
function pointsAtSchema(document: unknown, pointer: string): boolean {
  let at = document;
  for (const segment of pointer.slice(1).split("/")) {
    const name = segment.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(at)) at = /^(0|[1-9][0-9]*)$/.test(name) ? at[Number(name)] : undefined;
    else if (isObject(at) && Object.hasOwn(at, name)) at = at[name];
    else return false;
  }
  return typeof at === "boolean" || isObject(at);
}
