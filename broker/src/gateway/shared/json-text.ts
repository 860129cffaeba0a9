/**
 * Reads JSON that came from outside, for HTTP bodies and for the JSON texts inside gRPC messages alike.
 *
 * What it lets through is safe to walk recursively, to copy by assignment and to write again without loss of form:
 * it is nested at most {@link JSON_DEPTH_MAX} deep, has no member called `__proto__`, and every number is finite.
 * A member that is repeated counts once, with its last value, as `JSON.parse` has it.
 */

import { BrokerError } from "../../domain/broker-error.js";
import type { FaultDetail } from "../../domain/fault.js";
import type { Json } from "../../domain/ports/catalog.js";

/** Deeper values are refused: they would overflow the stack of whoever walks them. */
export const JSON_DEPTH_MAX = 256;

/** Texts that may hold a forbidden member or a number beyond the doubles; anything else needs no walk. */
const SUSPICIOUS = /__proto__|\\u00|[eE]\+?\d{3}|\d{200}/;

/**
 * Parses `text`; `what` names it in the message ("The body"), `path` is the JSON Pointer under which its faults are reported.
 * Throws `BrokerError` `body_invalid`.
 */
export function parseJsonText(text: string, what: string, path = ""): Json {
  if (text.length > JSON_DEPTH_MAX && nesting(text) > JSON_DEPTH_MAX) {
    throw invalid(what, [{ path, expected: `JSON of at most ${JSON_DEPTH_MAX} levels`, actual: "deeper nesting" }]);
  }
  let value: Json;
  try {
    value = JSON.parse(text) as Json;
  } catch {
    const actual = text.trim() === "" ? "nothing" : `text that is not JSON (${text.length} characters)`;
    throw invalid(what, [{ path, expected: "JSON", actual }]);
  }
  if (SUSPICIOUS.test(text)) {
    const faults: FaultDetail[] = [];
    inspect(value, path, faults);
    if (faults.length > 0) throw invalid(what, faults);
  }
  return value;
}

function invalid(what: string, details: readonly FaultDetail[]): BrokerError {
  const first = details[0];
  const at = first?.path ? ` at ${first.path}` : "";
  return new BrokerError("body_invalid", `${what} is not acceptable JSON${at}: expected ${first?.expected}, got ${first?.actual}.`, {
    details,
  });
}

/** Deepest nesting of brackets outside strings. Stops counting past the limit. */
function nesting(text: string): number {
  let depth = 0;
  let deepest = 0;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === 0x22) {
      index = endOfString(text, index);
    } else if (code === 0x5b || code === 0x7b) {
      depth += 1;
      if (depth > deepest) deepest = depth;
      if (deepest > JSON_DEPTH_MAX) return deepest;
    } else if (code === 0x5d || code === 0x7d) {
      depth -= 1;
    }
  }
  return deepest;
}

/** Index of the quote that closes the string opened at `start`, or the text's end. */
function endOfString(text: string, start: number): number {
  let index = start + 1;
  while (index < text.length) {
    const code = text.charCodeAt(index);
    if (code === 0x22) return index;
    index += code === 0x5c ? 2 : 1;
  }
  return text.length;
}

const FAULTS_MAX = 20;

function inspect(value: Json, path: string, faults: FaultDetail[]): void {
  if (faults.length >= FAULTS_MAX) return;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) faults.push({ path, expected: "a number that a double can hold", actual: "a larger one" });
  } else if (typeof value === "object" && value !== null) {
    for (const [key, member] of Object.entries(value)) {
      const at = `${path}/${pointerToken(key)}`;
      if (key === "__proto__") faults.push({ path: at, expected: "no member of this name", actual: "__proto__" });
      else inspect(member as Json, at, faults);
    }
  }
}

/** One segment of a JSON Pointer, escaped. */
export function pointerToken(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}
