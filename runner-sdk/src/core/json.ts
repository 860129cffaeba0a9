/**
 * Turns what a handler returned into JSON text, or says exactly where it cannot (R7).
 *
 * Owns no state. Invariants: a text that comes out parses back to what was put in; nothing is dropped or changed in silence
 * (`JSON.stringify` drops functions and undefined, turns NaN into null, a Map into {}); hostile values (throwing getters,
 * cycles, depth, proxies) end in a {@link NotJsonError}, never in another error.
 */
import { messageOf, NotJsonError } from "./errors.js";

/** Levels of objects and arrays that a value may have. */
export const JSON_DEPTH_MAX = 512;

/**
 * Compact JSON text of `value`. `undefined` at the root is `null`; anywhere else it is a fault. `toJSON` is honoured (Date).
 * @throws NotJsonError naming the path.
 */
export function toJsonText(value: unknown): string {
  if (value === undefined) return "null";
  try {
    return write(value, { pointer: "", parent: null }, "", [], 0);
  } catch (error) {
    if (error instanceof NotJsonError) throw error;
    throw new NotJsonError("", `a value that cannot be read (${messageOf(error)})`, { cause: error });
  }
}

/** The way down to a value; turned into a pointer only when there is a fault. */
interface Trail {
  readonly pointer: string;
  readonly parent: Trail | null;
}

function pathOf(trail: Trail): string {
  const segments: string[] = [];
  for (let at: Trail | null = trail; at !== null && at.parent !== null; at = at.parent) segments.push(at.pointer);
  return segments
    .reverse()
    .map((segment) => `/${segment.replaceAll("~", "~0").replaceAll("/", "~1")}`)
    .join("");
}

function write(value: unknown, trail: Trail, key: string, ancestors: object[], depth: number): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value);
    case "boolean":
      return value ? "true" : "false";
    case "number":
      if (!Number.isFinite(value)) throw new NotJsonError(pathOf(trail), String(value));
      return JSON.stringify(value);
    case "undefined":
      throw new NotJsonError(pathOf(trail), "undefined");
    case "bigint":
      throw new NotJsonError(pathOf(trail), "a BigInt");
    case "function":
      throw new NotJsonError(pathOf(trail), "a function");
    case "symbol":
      throw new NotJsonError(pathOf(trail), "a symbol");
    case "object":
      return value === null ? "null" : writeObject(value, trail, key, ancestors, depth);
  }
}

function writeObject(value: object, trail: Trail, key: string, ancestors: object[], depth: number): string {
  if (depth >= JSON_DEPTH_MAX) throw new NotJsonError(pathOf(trail), `a value deeper than ${JSON_DEPTH_MAX} levels`);
  if (ancestors.includes(value)) throw new NotJsonError(pathOf(trail), "a cycle");
  ancestors.push(value);
  try {
    const toJson: unknown = read(value, "toJSON", trail);
    if (typeof toJson === "function") {
      let replaced: unknown;
      try {
        replaced = toJson.call(value, key);
      } catch (error) {
        throw new NotJsonError(pathOf(trail), `a value whose toJSON throws (${messageOf(error)})`, { cause: error });
      }
      // A toJSON that answers itself is judged as a plain object, as JSON.stringify does.
      if (replaced !== value) return write(replaced, trail, key, ancestors, depth + 1);
    }
    if (Array.isArray(value)) return writeArray(value, trail, ancestors, depth);
    const tag = tagOf(value);
    const boxed = unbox(value, tag);
    if (typeof boxed !== "object" && boxed !== undefined) return write(boxed, trail, key, ancestors, depth + 1);
    const kind = unwritableKind(value, tag);
    if (kind !== null) throw new NotJsonError(pathOf(trail), kind);
    return writeRecord(value, trail, ancestors, depth);
  } finally {
    ancestors.pop();
  }
}

function writeArray(value: readonly unknown[], trail: Trail, ancestors: object[], depth: number): string {
  const parts: string[] = [];
  for (let index = 0; index < value.length; index++) {
    const pointer = String(index);
    const below = { pointer, parent: trail };
    if (!Object.hasOwn(value, index)) throw new NotJsonError(pathOf(below), "a hole in an array");
    parts.push(write(read(value, pointer, below), below, pointer, ancestors, depth + 1));
  }
  return `[${parts.join(",")}]`;
}

function writeRecord(value: object, trail: Trail, ancestors: object[], depth: number): string {
  const parts: string[] = [];
  for (const name of Object.keys(value)) {
    const below = { pointer: name, parent: trail };
    parts.push(`${JSON.stringify(name)}:${write(read(value, name, below), below, name, ancestors, depth + 1)}`);
  }
  const symbol = Object.getOwnPropertySymbols(value).find((candidate) => Object.getOwnPropertyDescriptor(value, candidate)?.enumerable);
  if (symbol !== undefined) throw new NotJsonError(pathOf(trail), `a property named by a symbol (${String(symbol)})`);
  return `{${parts.join(",")}}`;
}

function read(value: object, name: string, trail: Trail): unknown {
  try {
    return Reflect.get(value, name);
  } catch (error) {
    throw new NotJsonError(pathOf(trail), `a property that throws when read (${messageOf(error)})`, { cause: error });
  }
}

/** What kind of object it is, also for one of another realm (a frame, a `vm` context), where `instanceof` fails. */
const tagOf = (value: object) => Object.prototype.toString.call(value).slice("[object ".length, -1);

/** `new String("x")` and its kind count as the value inside, as in JSON.stringify. */
function unbox(value: object, tag: string): unknown {
  return tag === "String" || tag === "Number" || tag === "Boolean" ? value.valueOf() : undefined;
}

/** Objects whose content JSON would lose without a word, by their tag. */
const LOST: ReadonlyMap<string, string> = new Map<string, string>([
  ...[
    "Map",
    "Set",
    "WeakMap",
    "WeakSet",
    "WeakRef",
    "RegExp",
    "BigInt",
    "DataView",
    "Headers",
    "FormData",
    "URLSearchParams",
    "Blob",
    "File",
  ].map((tag) => [tag, `a ${tag}`] as const),
  ...["Request", "Response", "ReadableStream", "WritableStream", "Generator"].map((tag) => [tag, `a ${tag}`] as const),
  ...["Error", "ArrayBuffer", "AsyncGenerator", "Arguments"].map((tag) => [tag, `an ${tag}`] as const),
  ["Promise", "a Promise that was not awaited"],
]);

function unwritableKind(value: object, tag: string): string | null {
  if (ArrayBuffer.isView(value)) return `a ${tag}`;
  return LOST.get(tag) ?? (tag.endsWith(" Iterator") ? "an iterator" : null);
}

/** UTF-8 bytes of a text, counted without encoding it. A lone surrogate counts as the replacement character. */
export function utf8Bytes(text: string): number {
  let bytes = 0;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) bytes += 1;
    else if (unit < 0x800) bytes += 2;
    else if (unit >= 0xd800 && unit < 0xdc00 && isLowSurrogate(text.charCodeAt(index + 1))) {
      bytes += 4;
      index++;
    } else bytes += 3;
  }
  return bytes;
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit < 0xe000;
}

/** The head of a text that has at most `maxBytes` bytes of UTF-8, never half a character; says that it was cut. */
export function clipText(text: string, maxBytes: number): string {
  if (text.length <= maxBytes / 3 || utf8Bytes(text) <= maxBytes) return text;
  const notice = " [cut]";
  let bytes = 0;
  let end = 0;
  for (const character of text) {
    bytes += utf8Bytes(character);
    if (bytes > maxBytes - notice.length) break;
    end += character.length;
  }
  return text.slice(0, end) + notice;
}
