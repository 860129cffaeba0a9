/** JSON that is written once, however it is sent and however often it is repeated. */
import { reasonOf, ToolRunnerError } from "./errors.js";
import type { Json } from "./types.js";

/** A value of a request's body as its JSON text. What writes the body as JSON without knowing of it writes the same. */
export class JsonText {
  constructor(readonly text: string) {}

  toJSON(): Json {
    return JSON.parse(this.text) as Json;
  }
}

/**
 * The arguments of a call as they are now: what the caller changes while attempts are repeated must not make another request of
 * them. Throws `ToolRunnerError` `options_invalid` for what is not JSON.
 */
export function jsonArguments(value: unknown): JsonText {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw new ToolRunnerError("options_invalid", `The arguments cannot be written as JSON: ${reasonOf(cause)}.`, { cause });
  }
  if (text === undefined) throw new ToolRunnerError("options_invalid", "The arguments cannot be written as JSON: give a JSON value.");
  return new JsonText(text);
}

/** The JSON text of one field's value; `undefined` when JSON has none. */
export function fieldText(value: unknown): string | undefined {
  return value instanceof JsonText ? value.text : JSON.stringify(value);
}

/** The JSON text of a request's body. */
export function bodyText(body: Readonly<Record<string, unknown>>): string {
  let text = "";
  for (const name of Object.keys(body)) {
    const value = fieldText(body[name]);
    if (value !== undefined) text += `${text === "" ? "{" : ","}${JSON.stringify(name)}:${value}`;
  }
  return text === "" ? "{}" : `${text}}`;
}
