/**
 * Rules of one `.gitignore` file, as git reads them: later rules beat earlier ones, those of a deeper folder beat those of
 * its parents, `!` takes back, a trailing slash means folders only, a slash elsewhere ties the rule to the file's folder.
 */
import { matchesSegments, segmentsOf } from "./glob-pattern.js";

/** Bytes of a `.gitignore` that are read; a larger one is not taken for one. */
export const IGNORE_FILE_BYTES = 1_048_576;

interface Rule {
  readonly segments: ReturnType<typeof segmentsOf>;
  readonly negated: boolean;
  readonly foldersOnly: boolean;
}

/** The rules of one file. */
export type IgnoreRules = readonly Rule[];

/** Reads the text of a `.gitignore`. Lines that mean nothing are passed over, as git does. */
export function parseIgnoreRules(text: string): IgnoreRules {
  const rules: Rule[] = [];
  for (const line of text.replace(/^\ufeff/, "").split(/\r?\n/)) {
    const rule = parseRule(line);
    if (rule !== undefined) rules.push(rule);
  }
  return rules;
}

function parseRule(line: string): Rule | undefined {
  if (line.startsWith("#")) return undefined;
  let pattern = withoutTrailingSpaces(line);
  const negated = pattern.startsWith("!");
  if (negated) pattern = pattern.slice(1);
  const foldersOnly = pattern.endsWith("/");
  if (foldersOnly) pattern = pattern.slice(0, -1);
  if (pattern === "") return undefined;
  const isTied = pattern.includes("/");
  const segments = pattern.replace(/^\//, "").split("/");
  // `a/**` means what is inside a, not a itself.
  if (segments.length > 1 && segments.at(-1) === "**") segments.push("*");
  return { segments: segmentsOf(isTied ? segments : ["**", ...segments]), negated, foldersOnly };
}

/** Spaces at the end do not count, unless the last one is escaped. */
function withoutTrailingSpaces(line: string): string {
  let end = line.length;
  while (end > 0 && line[end - 1] === " " && line[end - 2] !== "\\") end -= 1;
  return line.slice(0, end);
}

/**
 * What the rules say about a path below their folder: true for ignored, false for taken back, undefined for nothing.
 * @param names the path's names, relative to the folder of the rules
 */
export function isIgnoredBy(rules: IgnoreRules, names: readonly string[], isFolder: boolean): boolean | undefined {
  for (let index = rules.length - 1; index >= 0; index -= 1) {
    const rule = rules[index];
    if (rule === undefined || (rule.foldersOnly && !isFolder)) continue;
    if (matchesSegments(rule.segments, names)) return !rule.negated;
  }
  return undefined;
}
