/**
 * Matches paths against glob patterns.
 *
 * Invariants: no regular expression is built from a pattern, and matching takes at most (pattern length × path length)
 * steps, so that no pattern can stall the runner. Paths are relative, with `/`.
 *
 * `*` and `?` stay inside a segment, `**` spans segments (none too), `[a-z]` and `[!a-z]` are sets, `{a,b}` are
 * alternatives, `\` takes the next character as it is. A leading dot needs no dot in the pattern.
 */
import { WorkspaceFault } from "../workspace-fault.js";

/** Longest pattern that is taken, in characters. */
export const PATTERN_CHARACTERS = 1024;
/** Most alternatives that `{a,b}` may make in all. */
export const PATTERN_ALTERNATIVES = 256;

type Token =
  | { readonly kind: "character"; readonly character: string }
  | { readonly kind: "any" }
  | { readonly kind: "star" }
  | { readonly kind: "set"; readonly negated: boolean; readonly ranges: readonly (readonly [number, number])[] };

/** One segment of a pattern: `**`, or tokens that match one name. */
type Segment = "globstar" | readonly Token[];

/** A pattern that was read. */
export type GlobPattern = readonly (readonly Segment[])[];

/**
 * Reads a pattern. One without a slash matches at any depth, any other from the start of the path.
 * @throws {WorkspaceFault} `pattern_invalid`, saying what is wrong
 */
export function parseGlob(pattern: string): GlobPattern {
  if (pattern.length > PATTERN_CHARACTERS) {
    throw new WorkspaceFault("pattern_invalid", `The glob pattern has ${pattern.length} characters; ${PATTERN_CHARACTERS} at most.`);
  }
  return expandBraces(pattern).map((alternative) => {
    const relative = alternative.replace(/^(?:\.\/+)+/, "").replace(/\/+$/, "");
    const segments = splitSegments(relative);
    if (segments.includes("..")) {
      throw new WorkspaceFault("pattern_invalid", "A glob pattern has no .. segments; it stays inside the folder it starts from.");
    }
    return segmentsOf(segments.length > 1 ? segments : ["**", ...segments]);
  });
}

/** True when `path` matches. */
export function matchesGlob(pattern: GlobPattern, path: string): boolean {
  const names = path.split("/");
  return pattern.some((segments) => matchesSegments(segments, names));
}

/** Reads segments as they stand, without the rule about slashes; used by ignore rules, which know no braces. */
export function segmentsOf(segments: readonly string[]): readonly Segment[] {
  const read: Segment[] = [];
  for (const segment of segments) {
    if (segment === "**") {
      if (read.at(-1) !== "globstar") read.push("globstar");
    } else {
      read.push(tokensOf(segment));
    }
  }
  return read;
}

/** Matches names one by one; a set of places in the pattern is carried along, so nothing is tried twice. */
export function matchesSegments(segments: readonly Segment[], names: readonly string[]): boolean {
  let places = new Set<number>();
  enter(segments, places, 0);
  for (const name of names) {
    const next = new Set<number>();
    for (const place of places) {
      const segment = segments[place];
      if (segment === "globstar") enter(segments, next, place);
      else if (segment !== undefined && matchesName(segment, name)) enter(segments, next, place + 1);
    }
    if (next.size === 0) return false;
    places = next;
  }
  return places.has(segments.length);
}

/** Adds a place, and those that a `**` there lets through without a name. */
function enter(segments: readonly Segment[], places: Set<number>, place: number): void {
  for (let at = place; ; at += 1) {
    places.add(at);
    if (segments[at] !== "globstar") return;
  }
}

/** Greedy matching with one remembered star: each star is gone back to at most once for each character. */
function matchesName(tokens: readonly Token[], name: string): boolean {
  const characters = Array.from(name);
  let token = 0;
  let at = 0;
  let starToken = -1;
  let starAt = 0;
  while (at < characters.length) {
    const current = tokens[token];
    if (current?.kind === "star") {
      starToken = token;
      starAt = at;
      token += 1;
    } else if (current !== undefined && matchesCharacter(current, characters[at] ?? "")) {
      token += 1;
      at += 1;
    } else if (starToken >= 0) {
      starAt += 1;
      at = starAt;
      token = starToken + 1;
    } else {
      return false;
    }
  }
  while (tokens[token]?.kind === "star") token += 1;
  return token === tokens.length;
}

function matchesCharacter(token: Token, character: string): boolean {
  switch (token.kind) {
    case "character":
      return token.character === character;
    case "any":
      return true;
    case "set": {
      const point = character.codePointAt(0) ?? 0;
      return token.ranges.some(([from, to]) => point >= from && point <= to) !== token.negated;
    }
    case "star":
      return false;
  }
}

function tokensOf(segment: string): readonly Token[] {
  const characters = Array.from(segment);
  const tokens: Token[] = [];
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at] ?? "";
    if (character === "*") {
      if (tokens.at(-1)?.kind !== "star") tokens.push({ kind: "star" });
    } else if (character === "?") {
      tokens.push({ kind: "any" });
    } else if (character === "\\" && at + 1 < characters.length) {
      at += 1;
      tokens.push({ kind: "character", character: characters[at] ?? "" });
    } else if (character === "[") {
      const set = readSet(characters, at);
      if (set === undefined) {
        tokens.push({ kind: "character", character });
      } else {
        tokens.push(set.token);
        at = set.end;
      }
    } else {
      tokens.push({ kind: "character", character });
    }
  }
  return tokens;
}

/** Reads `[…]` at `start`; undefined when it is not closed and thus stands for itself. */
function readSet(characters: readonly string[], start: number): { readonly token: Token; readonly end: number } | undefined {
  let at = start + 1;
  const negated = characters[at] === "!" || characters[at] === "^";
  if (negated) at += 1;
  const ranges: (readonly [number, number])[] = [];
  for (let isFirst = true; at < characters.length; isFirst = false) {
    if (characters[at] === "]" && !isFirst) return { token: { kind: "set", negated, ranges }, end: at };
    if (characters[at] === "\\" && at + 1 < characters.length) at += 1;
    const from = characters[at]?.codePointAt(0) ?? 0;
    at += 1;
    if (characters[at] === "-" && at + 1 < characters.length && characters[at + 1] !== "]") {
      at += characters[at + 1] === "\\" && at + 2 < characters.length ? 2 : 1;
      ranges.push([from, characters[at]?.codePointAt(0) ?? 0]);
      at += 1;
    } else {
      ranges.push([from, from]);
    }
  }
  return undefined;
}

/** Splits at slashes; doubled ones count once. */
function splitSegments(pattern: string): string[] {
  return pattern.split("/").filter((segment, index, all) => segment !== "" || (index === 0 && all.length === 1));
}

/** Writes `{a,b}` out as alternatives, from the left; one that is not closed stands for itself. */
function expandBraces(pattern: string): string[] {
  let waiting = [pattern];
  const done: string[] = [];
  while (waiting.length > 0) {
    const next: string[] = [];
    for (const candidate of waiting) {
      const brace = firstBrace(candidate);
      if (brace === undefined) done.push(candidate);
      else for (const option of brace.options) next.push(candidate.slice(0, brace.start) + option + candidate.slice(brace.end + 1));
      if (done.length + next.length > PATTERN_ALTERNATIVES) {
        throw new WorkspaceFault("pattern_invalid", `The braces of the glob pattern make more than ${PATTERN_ALTERNATIVES} alternatives.`);
      }
    }
    waiting = next;
  }
  return done;
}

function firstBrace(pattern: string): { readonly start: number; readonly end: number; readonly options: readonly string[] } | undefined {
  for (let start = 0; start < pattern.length; start += 1) {
    if (pattern[start] === "\\") {
      start += 1;
    } else if (pattern[start] === "{") {
      const group = readBrace(pattern, start);
      if (group !== undefined) return { start, ...group };
    }
  }
  return undefined;
}

function readBrace(pattern: string, start: number): { readonly end: number; readonly options: readonly string[] } | undefined {
  const options: string[] = [];
  let depth = 0;
  let from = start + 1;
  for (let at = start; at < pattern.length; at += 1) {
    const character = pattern[at];
    if (character === "\\") at += 1;
    else if (character === "{") depth += 1;
    else if (character === "," && depth === 1) {
      options.push(pattern.slice(from, at));
      from = at + 1;
    } else if (character === "}") {
      depth -= 1;
      if (depth > 0) continue;
      options.push(pattern.slice(from, at));
      // As in shells, braces around a single option are plain characters.
      return options.length > 1 ? { end: at, options } : undefined;
    }
  }
  return undefined;
}
