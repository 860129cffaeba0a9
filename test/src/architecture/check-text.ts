/** The rules about the text of files: size, names, suppressed rules, leftovers. */
import { at, isTest, type Violation } from "./check-layers.js";
import { LINES_MAX } from "./layer-table.js";
import type { SourceFile, SourceTree } from "./source-tree.js";

const isGenerated = ({ path }: SourceFile): boolean => path.startsWith("proto/src/gen/");

/** Files that want a second one. */
export function checkSize(tree: SourceTree): readonly Violation[] {
  return tree.files
    .filter((file) => !isGenerated(file))
    .flatMap((file) => {
      const lines = file.text.replace(/\n$/, "").split("\n").length;
      return lines > LINES_MAX ? [at(file, LINES_MAX, "size", `has ${lines} lines, over the limit of ${LINES_MAX}: split it`)] : [];
    });
}

/** Lint rules that hold the layers; nothing may turn them off. */
export const LAYER_LINT_RULES = ["noRestrictedImports", "noImportCycles", "noPrivateImports"] as const;

const SUPPRESSED = /biome-ignore(?:-all|-start|-end)?\s+lint((?:\/\w+)*)/g;
const WHOLE_FILE = /biome-ignore-(?:all|start)/;
const COMPILER = /@ts-(?:ignore|nocheck|expect-error)/;

/** Comments that turn the compiler, a layer rule or a whole file's lint off. */
export function checkSuppressions(tree: SourceTree): readonly Violation[] {
  return tree.files
    .filter((file) => !isGenerated(file))
    .flatMap((file) =>
      file.comments.flatMap(({ text, line }) => {
        if ([...text.matchAll(SUPPRESSED)].some(([, rule = ""]) => holdsLayers(rule)))
          return [at(file, line, "suppression", "turns a layer rule off")];
        if (WHOLE_FILE.test(text)) return [at(file, line, "suppression", "turns lint off for more than a line")];
        // A test of types says what must not compile, and that fails when it does.
        if (COMPILER.test(text) && !(isTest(file.path) && /@ts-expect-error\s+\S/.test(text)))
          return [at(file, line, "suppression", "turns the compiler off")];
        return [];
      }),
    );
}

/** Whether ignoring `/group/rule` (or a whole group, or all) ignores a layer rule. */
function holdsLayers(rule: string): boolean {
  const [, , name] = rule.split("/");
  return name === undefined || LAYER_LINT_RULES.some((each) => each === name);
}

const FILE_NAME = /^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.(?:test|test\.kit|config|d))?\.(?:ts|tsx|mts|cts|js|mjs|cjs)$/;
const VAGUE_NAME = /^(?:utils?|helpers?|misc|common|stuff)\./;

/** File names that are not kebab-case, or say nothing. */
export function checkNames(tree: SourceTree): readonly Violation[] {
  return tree.files.flatMap((file) => {
    const name = file.path.slice(file.path.lastIndexOf("/") + 1);
    if (!FILE_NAME.test(name) && !isGenerated(file)) return [at(file, 1, "name", `${name} is not kebab-case`)];
    return VAGUE_NAME.test(name) ? [at(file, 1, "name", `${name} says nothing of what is in it`)] : [];
  });
}

/** Words are written in halves, so that this file does not find itself. */
const half = (...parts: readonly string[]): string => parts.join("");
const LEFTOVER = new RegExp(`\\b(?:${[half("TO", "DO"), half("FIX", "ME"), half("XX", "X"), half("HA", "CK")].join("|")})\\b`);
const MACHINE_PATH = new RegExp(`(?<![\\w./-])/(?:${[half("wo", "rk"), half("ro", "ot"), half("Us", "ers")].join("|")})/[\\w.-]`);
const TICKET = /(?:\b(?:issue|ticket|milestone|sprint)\s*#?\d+|(?<![\w&;"'#])#\d{2,}\b(?![\w-]))/i;

/** What a finished text does not hold: notes to oneself, paths of one machine, numbers of tickets. Works for any text file. */
export function leftoversIn(path: string, text: string): readonly Violation[] {
  return text.split("\n").flatMap((content, index) => {
    const line = index + 1;
    if (LEFTOVER.test(content)) return [{ rule: "leftover", file: path, line, message: "holds a note to oneself" }];
    if (MACHINE_PATH.test(content)) return [{ rule: "leftover", file: path, line, message: "holds a path of one machine" }];
    return [];
  });
}

/** Ticket and milestone numbers in comments. */
export function checkTickets(tree: SourceTree): readonly Violation[] {
  return tree.files
    .filter((file) => !isGenerated(file))
    .flatMap((file) =>
      file.comments.filter(({ text }) => TICKET.test(text)).map(({ line }) => at(file, line, "leftover", "names a ticket or milestone")),
    );
}

const ESCAPES: readonly (readonly [RegExp, string])[] = [
  [/\bas\s+any\b/, "casts to any"],
  [/(?<![\w$.])(?:it|test|describe|suite)\.only\b/, "runs one test only"],
  [/(?<![\w$.])(?:it|test|describe|suite)\.todo\b/, "leaves a test to be written"],
  [/(?<![\w$.])(?:it|test|describe|suite)\.skip\s*\(/, "skips a test without a condition"],
];
/** A title that ends in the reason, in brackets, as the report of a run wants it. */
const SKIP_WITH_REASON = /^\w+\.skip\s*\(\s*(["'`])(?:(?!\1).)*\[(?:(?!\1).)+\]\1/;
const DEFAULT_EXPORT = /(?:^|\n)\s*export\s+default\b/;

/** Casts to any, tests that are switched off, default exports outside configuration. */
export function checkEscapes(tree: SourceTree): readonly Violation[] {
  return tree.files
    .filter((file) => !isGenerated(file))
    .flatMap((file) => {
      const found: Violation[] = [];
      const lineOf = (index: number): number => file.masked.slice(0, index).split("\n").length;
      for (const [pattern, message] of ESCAPES) {
        const match = pattern.exec(file.masked);
        const explained = match !== null && SKIP_WITH_REASON.test(file.text.slice(match.index));
        if (match !== null && !explained) found.push(at(file, lineOf(match.index), "escape", message));
      }
      const exported = DEFAULT_EXPORT.exec(file.masked);
      if (exported !== null && !MAY_EXPORT_DEFAULT.test(file.path))
        found.push(at(file, lineOf(exported.index + 1), "escape", "has a default export"));
      return found;
    });
}

/** Configuration, vitest's reporter, and modules written for `toolrunner run`. */
const MAY_EXPORT_DEFAULT =
  /\.config\.ts$|^scripts\/report\.mjs$|^runners\/\w+\/src\/serve\.ts$|^deploy\/shop\/|\/(?:fixtures|tool-modules|examples)\//;
