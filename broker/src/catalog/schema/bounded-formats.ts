/** The formats that are checked (all others are annotations), made safe for long text. */
import type { Format } from "ajv";
import { fullFormats } from "ajv-formats/dist/formats.js";
import { compilePattern } from "../pattern/compile-pattern.js";

/** Up to this length a backtracking engine cannot take long, whatever it makes of the text. */
const BACKTRACKING_CHARACTERS_MAX = 256;

/** The formats of ajv-formats; those that are a regular expression are matched in linear time on long text. */
export function boundedFormats(): Record<string, Format> {
  return Object.fromEntries(
    Object.entries(fullFormats).map(([name, format]) => [name, format instanceof RegExp ? bounded(format) : format]),
  );
}

function bounded(expression: RegExp): (text: string) => boolean {
  let linear: { test(text: string): boolean } | undefined;
  return (text) => {
    if (text.length <= BACKTRACKING_CHARACTERS_MAX) return expression.test(text);
    linear ??= compilePattern(expression.source, { ignoreCase: expression.ignoreCase });
    return linear.test(text);
  };
}
