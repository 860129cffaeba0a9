/**
 * Reads the import statements of a TypeScript file, and its text without comments and literals.
 *
 * Owns: a lexer that knows comments, strings, templates and regular expressions, which is all that is needed to tell an import
 * statement from a text that looks like one. Invariant: offsets and lines of the masked text are those of the source.
 */

/** One statement, expression or type that names another module. */
export interface ImportStatement {
  readonly specifier: string;
  /**
   * `static`: `import … from`, `export … from`, `import "x"`; `dynamic`: `import("x")`, also as a type; `require`: `require("x")`;
   * `url`: `new URL("./x.js", import.meta.url)`, as workers and loaders are named.
   */
  readonly kind: "static" | "dynamic" | "require" | "url";
  /** Imported names as the other module calls them; `*` for the whole module; none for side effects and types by expression. */
  readonly names: readonly string[];
  /** Counts from 1. */
  readonly line: number;
}

/** A file, scanned. */
export interface ScannedSource {
  readonly imports: readonly ImportStatement[];
  /** Comments and the insides of literals are spaces; line breaks are kept. */
  readonly masked: string;
  readonly comments: readonly { readonly text: string; readonly line: number }[];
}

interface Literal {
  readonly start: number;
  readonly value: string;
}

/** Scans a file. Never throws: a file that does not parse gives what could be read of it. */
export function scanSource(source: string): ScannedSource {
  const { masked, literals, comments } = mask(source);
  const lineAt = lineCounter(source);
  const imports: ImportStatement[] = [];
  for (const { start, value } of literals) {
    const before = masked.slice(Math.max(0, start - STATEMENT_CHARACTERS_MAX), start);
    const found = readStatement(before);
    if (found?.kind === "url" && !MODULE_FILE.test(value)) continue;
    if (found !== undefined) imports.push({ specifier: value, ...found, line: lineAt(start) });
  }
  return { imports, masked, comments: comments.map(({ start, value }) => ({ text: value, line: lineAt(start) })) };
}

/** A statement with more text than this before its specifier is not recognized; the longest in practice have 2,000. */
const STATEMENT_CHARACTERS_MAX = 20_000;

const STATIC = /(?:^|[;}\s])(?:import|export)\s+(?:type\s+)?((?:[\w$]+\s*,\s*)?(?:\*(?:\s+as\s+[\w$]+)?|\{[^{}]*\}|[\w$]+))\s+from\s*$/;
const SIDE_EFFECT = /(?:^|[;}\s])import\s*$/;
const DYNAMIC = /(?<![\w$.])import\s*\(\s*$/;
const REQUIRE = /(?<![\w$.])require(?:\.resolve)?\s*\(\s*$/;
const MODULE_FILE = /^\.{1,2}\/.*\.[cm]?[jt]s$/;
const MODULE_URL = /(?<![\w$.])new\s+URL\s*\(\s*$/;

function readStatement(before: string): Pick<ImportStatement, "kind" | "names"> | undefined {
  const clause = STATIC.exec(before)?.[1];
  if (clause !== undefined) return { kind: "static", names: namesOf(clause) };
  if (SIDE_EFFECT.test(before)) return { kind: "static", names: [] };
  if (DYNAMIC.test(before)) return { kind: "dynamic", names: ["*"] };
  if (REQUIRE.test(before)) return { kind: "require", names: ["*"] };
  if (MODULE_URL.test(before)) return { kind: "url", names: [] };
  return undefined;
}

function namesOf(clause: string): readonly string[] {
  const names: string[] = [];
  const inBraces = /\{([^{}]*)\}/.exec(clause)?.[1];
  const outside = clause.replace(/\{[^{}]*\}/, "");
  if (outside.includes("*")) names.push("*");
  else if (/[\w$]/.test(outside)) names.push("default");
  for (const part of inBraces?.split(",") ?? []) {
    const name = /^\s*(?:type\s+)?([\w$]+)/.exec(part)?.[1];
    if (name !== undefined) names.push(name);
  }
  return names;
}

function lineCounter(source: string): (offset: number) => number {
  const starts = [0];
  for (let at = source.indexOf("\n"); at !== -1; at = source.indexOf("\n", at + 1)) starts.push(at + 1);
  return (offset) => {
    let low = 0;
    let high = starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((starts[middle] ?? 0) <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  };
}

/** A slash after one of these begins a regular expression; after anything else it divides. */
const BEFORE_EXPRESSION =
  /(?:^|[-+*/%=<>!&|^~?:,;({[}]|(?<![\w$.])(?:return|typeof|case|in|of|do|else|void|delete|throw|new|await|yield|instanceof|default))\s*$/;

function mask(source: string): { masked: string; literals: readonly Literal[]; comments: readonly Literal[] } {
  const out: string[] = [];
  const literals: Literal[] = [];
  const comments: Literal[] = [];
  /** For each template that is open: how many braces its current expression has open. */
  const templates: number[] = [];
  let at = 0;
  const hide = (text: string): void => {
    out.push(text.replace(/[^\n]/g, " "));
  };
  /** Keeps the delimiters; the last one is missing when the literal is not closed on its line. */
  const hideInside = (text: string, delimiter: string): void => {
    const closed = text.length > 1 && text.endsWith(delimiter);
    out.push(delimiter);
    hide(text.slice(1, closed ? -1 : undefined));
    if (closed) out.push(delimiter);
  };
  const upTo = (end: number): string => {
    const text = source.slice(at, end);
    at = end;
    return text;
  };
  const readTemplate = (): void => {
    const from = at;
    while (at < source.length) {
      if (source[at] === "\\") at += 2;
      else if (source[at] === "`" || source.startsWith("${", at)) break;
      else at += 1;
    }
    hide(source.slice(from, Math.min(at, source.length)));
    if (source[at] === "`") {
      out.push(upTo(at + 1));
      templates.pop();
    } else if (at < source.length) out.push(upTo(at + 2));
  };

  while (at < source.length) {
    const character = source[at] ?? "";
    if (source.startsWith("//", at) || source.startsWith("/*", at)) {
      const start = at;
      const line = source[at + 1] === "/";
      const end = source.indexOf(line ? "\n" : "*/", at + 2);
      const text = upTo(end === -1 ? source.length : end + (line ? 0 : 2));
      comments.push({ start, value: text });
      hide(text);
    } else if (character === '"' || character === "'") {
      const start = at;
      const text = upTo(endOfString(source, at, character));
      literals.push({ start, value: text.slice(1, -1) });
      hideInside(text, character);
    } else if (character === "`") {
      const start = at;
      out.push(upTo(at + 1));
      templates.push(0);
      readTemplate();
      if (templates.length === 0 || source[at - 1] === "`") {
        const text = source.slice(start + 1, at - 1);
        if (!text.includes("${")) literals.push({ start, value: text });
      }
    } else if (character === "/" && BEFORE_EXPRESSION.test(tail(out))) {
      const text = upTo(endOfRegularExpression(source, at));
      hideInside(text, "/");
    } else {
      const depth = templates.at(-1);
      if (depth !== undefined && character === "{") templates[templates.length - 1] = depth + 1;
      if (depth !== undefined && character === "}") {
        if (depth === 0) {
          out.push(upTo(at + 1));
          readTemplate();
          continue;
        }
        templates[templates.length - 1] = depth - 1;
      }
      out.push(upTo(at + 1));
    }
  }
  return { masked: out.join(""), literals, comments };
}

/** The last characters written, enough to see the word before. */
function tail(out: readonly string[]): string {
  let text = "";
  for (let index = out.length - 1; index >= 0 && text.trim().length < 12 && text.length < 2_000; index -= 1) text = `${out[index]}${text}`;
  return text;
}

function endOfString(source: string, start: number, quote: string): number {
  let at = start + 1;
  while (at < source.length && source[at] !== quote && source[at] !== "\n") at += source[at] === "\\" ? 2 : 1;
  return Math.min(source[at] === quote ? at + 1 : at, source.length);
}

function endOfRegularExpression(source: string, start: number): number {
  let at = start + 1;
  let inClass = false;
  while (at < source.length && source[at] !== "\n" && (inClass || source[at] !== "/")) {
    if (source[at] === "\\") at += 1;
    else if (source[at] === "[") inClass = true;
    else if (source[at] === "]") inClass = false;
    at += 1;
  }
  return Math.min(source[at] === "/" ? at + 1 : at, source.length);
}
