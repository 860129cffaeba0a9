/** How the built-in search decides whether a line matches. */
import { WorkspaceFault } from "../workspace-fault.js";
import type { GrepQuery } from "./grep-engine.js";

/** True when the line, given without its line break, matches. */
export type LineMatcher = (line: string) => boolean;

/**
 * Makes the matcher of a query. Patterns are JavaScript regular expressions; a leading `(?i)` is understood.
 * @throws {WorkspaceFault} `pattern_invalid`
 */
export function lineMatcher(query: Pick<GrepQuery, "pattern" | "ignoreCase" | "literal">): LineMatcher {
  const isLoose = !query.literal && query.pattern.startsWith("(?i)");
  const source = query.literal ? query.pattern.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&") : isLoose ? query.pattern.slice(4) : query.pattern;
  if (!query.literal && /(?:^|[^\\])(?:\\\\)*\\n/.test(source)) {
    throw new WorkspaceFault("pattern_invalid", "The pattern holds a line break, but lines are searched one by one.");
  }
  const flags = query.ignoreCase || isLoose ? "i" : "";
  const expression = compile(source, flags);
  return (line) => expression.test(line);
}

/** Unicode mode first; the older mode takes escapes of plain characters, as ripgrep does. */
function compile(source: string, flags: string): RegExp {
  try {
    return new RegExp(source, `${flags}u`);
  } catch {
    try {
      return new RegExp(source, flags);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new WorkspaceFault("pattern_invalid", `The pattern is not a valid regular expression: ${reason}.`, { cause: error });
    }
  }
}
