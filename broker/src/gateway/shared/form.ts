/**
 * The form of requests: one JSON Schema for each, checked by Ajv and shown in `/openapi.json`.
 *
 * A form says what JSON a request is made of and nothing about its meaning. Values are never changed: no defaults, no
 * conversions. Unknown fields are found before Ajv runs, so that a body full of them costs no more than a bounded answer.
 */

import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";
import { BrokerError } from "../../domain/broker-error.js";
import type { FaultDetail } from "../../domain/fault.js";
import { pointerToken } from "./json-text.js";

/** A JSON Schema as plain data. */
export type Schema = { readonly [keyword: string]: unknown };

/** The schema of a request's fields. */
export interface ObjectSchema extends Schema {
  readonly type: "object";
  readonly additionalProperties: false;
  readonly properties: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

/** What a request part must look like, and the check for it. */
export interface Form<T> {
  readonly schema: ObjectSchema;
  /** Returns `value` itself. Throws `BrokerError` `field_unknown` or `body_invalid` with every fault. */
  check(value: unknown): T;
}

/** More unknown fields than this are not listed. */
const UNKNOWN_FIELDS_LISTED = 32;

const ajv = new Ajv2020({ strict: true, allErrors: true, verbose: true, allowUnionTypes: true });
// What a pattern means, for people: patterns themselves are no answer to "what was expected?".
ajv.addKeyword({ keyword: "x-expected", schemaType: "string" });

/** Makes the form of `properties`. `part` names it in messages: "body" or "query". Compiled when first used. */
export function defineForm<T>(
  part: "body" | "query",
  properties: Readonly<Record<string, Schema>>,
  required: readonly (string & keyof T)[] = [],
): Form<T> {
  const schema: ObjectSchema = {
    type: "object",
    additionalProperties: false,
    properties,
    ...(required.length > 0 ? { required } : {}),
  };
  let validate: ValidateFunction<T> | undefined;
  return {
    schema,
    check(value) {
      if (typeof value !== "object" || value === null || Array.isArray(value)) {
        throw new BrokerError("body_invalid", `The ${part} must be a JSON object, not ${describe(value)}.`, {
          details: [{ path: "", expected: "object", actual: describe(value) }],
        });
      }
      const unknown = Object.keys(value).filter((key) => !Object.hasOwn(properties, key));
      validate ??= ajv.compile<T>({ type: "object", properties, required });
      if (validate(value) && unknown.length === 0) return value;
      throw refusal(part, properties, unknown, validate.errors ?? []);
    },
  };
}

function refusal(part: string, properties: object, unknown: readonly string[], errors: readonly ErrorObject[]): BrokerError {
  const known = Object.keys(properties);
  const expected = known.length === 0 ? `no ${part} fields` : `one of ${known.join(", ")}`;
  const details = unknown
    .slice(0, UNKNOWN_FIELDS_LISTED)
    .map((key): FaultDetail => ({ path: `/${pointerToken(shorten(key))}`, expected, actual: "an unknown field" }));
  // A value of the wrong type breaks the rules for its type as well: that says nothing more.
  const mistyped = new Set(errors.filter(({ keyword }) => keyword === "type").map(({ instancePath }) => instancePath));
  for (const error of errors) if (error.keyword === "type" || !mistyped.has(error.instancePath)) details.push(detailOf(error));
  const rest = details.length > 1 ? ` (and ${details.length - 1} more in details)` : "";
  if (unknown.length > 0) {
    const names = unknown.slice(0, 5).map((key) => JSON.stringify(shorten(key)));
    const more = unknown.length > names.length ? ` and ${unknown.length - names.length} more` : "";
    const noun = part === "query" ? "query parameter" : "body field";
    return new BrokerError(
      "field_unknown",
      `Unknown ${noun}${unknown.length > 1 ? "s" : ""} ${names.join(", ")}${more}: leave out what this call does not know.`,
      {
        details,
      },
    );
  }
  const first = details[0];
  return new BrokerError(
    "body_invalid",
    `The ${part} is not valid: ${first?.path || "it"} must be ${first?.expected}, not ${first?.actual}${rest}.`,
    {
      details,
    },
  );
}

function detailOf(error: ErrorObject): FaultDetail {
  if (error.keyword === "required") {
    return { path: `${error.instancePath}/${pointerToken(String(error.params.missingProperty))}`, expected: "present", actual: "missing" };
  }
  return { path: error.instancePath, expected: expectedBy(error), actual: actualFor(error) };
}

function expectedBy(error: ErrorObject): string {
  const { params } = error;
  switch (error.keyword) {
    case "type":
      return Array.isArray(params.type) ? params.type.join(" or ") : String(params.type);
    case "enum":
      return `one of ${(params.allowedValues as unknown[]).map((value) => JSON.stringify(value)).join(", ")}`;
    case "minimum":
      return `at least ${params.limit}`;
    case "maximum":
      return `at most ${params.limit}`;
    case "minLength":
      return `at least ${params.limit} characters`;
    case "maxLength":
      return `at most ${params.limit} characters`;
    case "minItems":
      return `at least ${params.limit} items`;
    case "maxItems":
      return `at most ${params.limit} items`;
    case "pattern":
      return String((error.parentSchema as Schema | undefined)?.["x-expected"] ?? `text that matches ${params.pattern}`);
    default:
      return error.message ?? error.keyword;
  }
}

function actualFor(error: ErrorObject): string {
  const { data } = error;
  if (error.keyword.endsWith("Length") && typeof data === "string") return `${[...data].length} characters`;
  if (error.keyword.endsWith("Items") && Array.isArray(data)) return `${data.length} items`;
  return describe(data);
}

const SHOWN_CHARACTERS = 64;

function shorten(text: string): string {
  return text.length > SHOWN_CHARACTERS ? `${[...text.slice(0, SHOWN_CHARACTERS)].join("")}…` : text;
}

/** A value in a few words, for people. */
export function describe(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  if (typeof value === "string") return JSON.stringify(shorten(value));
  return String(value);
}

/** A decimal number as it may stand in an address. */
const NUMBER = /^-?\d{1,16}(\.\d{1,32})?$/;

/**
 * Query parameters are text: those whose schema wants a number become one, when they are written as one. Anything else
 * stays as it is, and is refused by the form's check.
 */
export function readQuery(raw: Readonly<Record<string, unknown>>, schema: ObjectSchema): Record<string, unknown> {
  const query: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(raw)) {
    const type = Object.hasOwn(schema.properties, key) ? schema.properties[key]?.type : undefined;
    const wantsNumber = type === "integer" || type === "number";
    Object.defineProperty(query, key, {
      value: wantsNumber && typeof value === "string" && NUMBER.test(value) ? Number(value) : value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  return query;
}
