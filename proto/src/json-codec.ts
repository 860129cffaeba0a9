/**
 * Canonical proto3 JSON for the messages of `message-schema.ts`.
 *
 * Owns the mapping between generated message objects and JSON values, by table and without generated code per message:
 * - written: lowerCamelCase names, int64 as decimal strings, enums by full name, zero values left out;
 * - read: both name styles, numbers as numbers or strings, enums by name or number, `null` as absent;
 * - unknown fields and unknown enum names are ignored, as unknown fields are in binary;
 * - everything else that is wrong is a {@link JsonFormatError} that names the path; nothing is coerced.
 */
import type { FieldSchema, MessageSchemas } from "./message-schema.js";

/** A JSON value that is not of the form that the message needs. `path` is a JSON Pointer. */
export class JsonFormatError extends Error {
  override readonly name = "JsonFormatError";
  constructor(
    readonly path: string,
    readonly expected: string,
  ) {
    super(`${path === "" ? "the frame" : path} must be ${expected}`);
  }
}

type JsonObject = { [key: string]: unknown };
type Message = { [property: string]: unknown };
interface OneofValue {
  readonly $case: string;
  readonly value: unknown;
}

const UINT32_MAX = 0xffff_ffff;
const INT32_MIN = -0x8000_0000;
const INT32_MAX = 0x7fff_ffff;
const NUMBER_TEXT = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
/** With the `u` flag this matches lone surrogates only. */
const LONE_SURROGATE = /[\ud800-\udfff]/u;
const LONE_SURROGATES = /[\ud800-\udfff]/gu;

/** Compiled once for each set of tables. */
export interface JsonCodec {
  /** `type` is the message's name. The message must have the generated type of that name. */
  toJson(type: string, message: object): JsonObject;
  /** A message with every property of its generated type. Throws {@link JsonFormatError}. */
  fromJson(type: string, json: unknown): object;
}

/** Makes the codec for all messages of `schemas`. */
export function createJsonCodec(schemas: MessageSchemas): JsonCodec {
  const byName = new Map(
    Object.entries(schemas).map(([type, fields]) => {
      const names = new Map<string, FieldSchema>();
      for (const field of fields) names.set(field.json, field).set(field.proto, field);
      return [type, { fields, names }] as const;
    }),
  );
  const tableOf = (type: string) => {
    const table = byName.get(type);
    if (table === undefined) throw new TypeError(`no schema for message ${type}`);
    return table;
  };

  function toJson(type: string, message: object): JsonObject {
    const source = message as Message;
    const json: JsonObject = {};
    for (const field of tableOf(type).fields) {
      const value = field.oneof === undefined ? source[field.name] : memberOf(source[field.oneof], field.name);
      const written = value === undefined ? undefined : writeField(field, value);
      if (written !== undefined) json[field.json] = written;
    }
    return json;
  }

  function writeField(field: FieldSchema, value: unknown): unknown {
    if (field.repeated) {
      const list = value as readonly unknown[];
      return list.length === 0 ? undefined : list.map((item) => writeValue(field, item));
    }
    if (field.kind === "string_map") {
      const entries = Object.entries(value as Readonly<Record<string, string>>);
      return entries.length === 0 ? undefined : Object.fromEntries(entries.map(([key, item]) => [wellFormed(key), wellFormed(item)]));
    }
    const mayBeLeftOut = field.oneof === undefined && field.optional !== true && field.kind !== "message";
    return mayBeLeftOut && value === zeroOf(field) ? undefined : writeValue(field, value);
  }

  function writeValue(field: FieldSchema, value: unknown): unknown {
    switch (field.kind) {
      case "message":
        return toJson(field.type ?? "", value as object);
      case "string":
        return wellFormed(value as string);
      case "int64":
        return String(value);
      case "double":
        return Number.isFinite(value) ? value : String(value);
      case "enum":
        return nameOf(field, value as number) ?? value;
      default:
        return value;
    }
  }

  function fromJson(type: string, json: unknown, path = ""): object {
    if (!isObject(json)) throw new JsonFormatError(path, "an object");
    const { fields, names } = tableOf(type);
    const message = emptyMessage(fields);
    const seen = new Set<FieldSchema>();
    for (const [key, value] of Object.entries(json)) {
      const field = names.get(key);
      if (field === undefined) continue;
      const at = `${path}/${key}`;
      if (seen.has(field)) throw new JsonFormatError(at, `given once, not as ${field.json} and ${field.proto}`);
      seen.add(field);
      if (value === null) continue;
      readInto(message, field, value, at);
    }
    return message;
  }

  function readInto(message: Message, field: FieldSchema, value: unknown, path: string): void {
    if (field.repeated) {
      if (!Array.isArray(value)) throw new JsonFormatError(path, "an array");
      message[field.name] = value.map((item, index) => readValue(field, item, `${path}/${index}`)).filter((item) => item !== undefined);
      return;
    }
    const read = readValue(field, value, path);
    if (read === undefined) return;
    if (field.oneof === undefined) {
      message[field.name] = read;
    } else {
      if (message[field.oneof] !== undefined) throw new JsonFormatError(path, `the only one of ${field.oneof}`);
      message[field.oneof] = { $case: field.name, value: read };
    }
  }

  /** `undefined`: an enum name that this side does not know. */
  function readValue(field: FieldSchema, value: unknown, path: string): unknown {
    switch (field.kind) {
      case "message":
        return fromJson(field.type ?? "", value, path);
      case "string":
        return readString(value, path);
      case "bool":
        if (typeof value !== "boolean") throw new JsonFormatError(path, "true or false");
        return value;
      case "uint32":
        return readInteger(value, path, 0, UINT32_MAX);
      case "int64":
        return readInteger(value, path, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
      case "double":
        return readDouble(value, path);
      case "enum":
        if (typeof value === "number") return readInteger(value, path, INT32_MIN, INT32_MAX);
        if (typeof value !== "string") throw new JsonFormatError(path, "the name or number of a value");
        return field.names !== undefined && Object.hasOwn(field.names, value) ? field.names[value] : undefined;
      case "string_map":
        return readStringMap(value, path);
    }
  }

  return { toJson, fromJson: (type, json) => fromJson(type, json) };
}

function emptyMessage(fields: readonly FieldSchema[]): Message {
  const message: Message = {};
  for (const field of fields) {
    if (field.oneof !== undefined) message[field.oneof] = undefined;
    else if (field.repeated) message[field.name] = [];
    else if (field.kind === "string_map") message[field.name] = {};
    else message[field.name] = field.optional ? undefined : zeroOf(field);
  }
  return message;
}

function zeroOf(field: FieldSchema): unknown {
  if (field.kind === "string") return "";
  if (field.kind === "bool") return false;
  return field.kind === "message" ? undefined : 0;
}

function memberOf(oneof: unknown, name: string): unknown {
  const member = oneof as OneofValue | undefined;
  return member?.$case === name ? member.value : undefined;
}

function nameOf(field: FieldSchema, number: number): string | undefined {
  return Object.entries(field.names ?? {}).find(([, value]) => value === number)?.[0];
}

/** As the binary encoder does: what UTF-8 cannot hold becomes U+FFFD. */
function wellFormed(text: string): string {
  return LONE_SURROGATE.test(text) ? text.replace(LONE_SURROGATES, "\ufffd") : text;
}

function readString(value: unknown, path: string): string {
  if (typeof value !== "string") throw new JsonFormatError(path, "a string");
  if (LONE_SURROGATE.test(value)) throw new JsonFormatError(path, "text without lone surrogates");
  return value;
}

function readInteger(value: unknown, path: string, min: number, max: number): number {
  const number = typeof value === "string" && NUMBER_TEXT.test(value) ? Number(value) : value;
  if (typeof number !== "number" || !Number.isInteger(number) || number < min || number > max) {
    throw new JsonFormatError(path, `an integer from ${min} to ${max}`);
  }
  // "-0" is the integer 0
  return number === 0 ? 0 : number;
}

function readDouble(value: unknown, path: string): number {
  if (value === "NaN" || value === "Infinity" || value === "-Infinity") return Number(value);
  const number = typeof value === "string" && NUMBER_TEXT.test(value) ? Number(value) : value;
  if (typeof number !== "number" || !Number.isFinite(number)) throw new JsonFormatError(path, "a number");
  return number;
}

function readStringMap(value: unknown, path: string): Record<string, string> {
  if (!isObject(value)) throw new JsonFormatError(path, "an object");
  const map: Record<string, string> = {};
  for (const [key, item] of Object.entries(value)) {
    // An assignment to this name would set the prototype; the binary decoder loses the entry as well.
    if (key === "__proto__") continue;
    map[readString(key, `${path}/${key}`)] = readString(item, `${path}/${key}`);
  }
  return map;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
