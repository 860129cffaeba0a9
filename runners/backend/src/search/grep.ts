/**
 * The tool `grep` (W5) without its wrapping: lines that match a pattern, in files chosen by this module for either engine.
 *
 * Invariants: what is searched does not depend on the engine; a search ends after `SEARCH_MS`; a page fits the byte budget
 * and says where to go on.
 */
import { stat } from "node:fs/promises";
import path from "node:path";
import type { Arguments } from "../arguments.js";
import { fitLines, showPath } from "../json-budget.js";
import { WorkspaceFault } from "../workspace-fault.js";
import type { WorkspaceRoot } from "../workspace-root.js";
import { matchesGlob, parseGlob } from "./glob-pattern.js";
import { type FileMatches, GREP_COLUMNS, type GrepEngine, type GrepQuery } from "./grep-engine.js";
import { emptyWalkReport, type WalkReport, walkFiles, walkNotes } from "./walk.js";

/** Lines that one call gives. */
export const GREP_LINES = 250;
/** Largest `offset`. */
export const GREP_MAX_OFFSET = 10_000;
/** Longest search, in milliseconds. */
export const SEARCH_MS = 30_000;

/** File names are handed to the engine in lots below this many characters, and of at most `LOT_FILES`. */
const LOT_CHARACTERS = 65_536;
const LOT_FILES = 1_000;

/** Answer of `grep`. */
export interface GrepResult {
  /** `path:line:text` or, with `output` "files", a path on each line; paths are relative to the workspace root. */
  readonly text: string;
  /** Lines of `text`. */
  readonly shown: number;
  /** `offset` to go on with; null when there is no more. */
  readonly next_offset: number | null;
  readonly engine: "ripgrep" | "built-in";
  /** What was left out, and how to get it. */
  readonly notes: readonly string[];
}

/** Options of `grep`. */
export interface GrepOptions {
  readonly engine: GrepEngine;
  /** Most bytes of the compact JSON of the result. */
  readonly budgetBytes: number;
  readonly signal: AbortSignal;
  /** Longest search in milliseconds; `SEARCH_MS` by default. */
  readonly searchMs?: number;
}

/**
 * Searches the text of files.
 * @throws {WorkspaceFault} `pattern_invalid`, `not_a_file`, `search_timed_out` when nothing was found in time; see `WorkspaceRoot.find`
 */
export async function grep(root: WorkspaceRoot, args: Arguments, options: GrepOptions): Promise<GrepResult> {
  const query: GrepQuery = {
    pattern: args.text("pattern"),
    ignoreCase: args.boolean("ignore_case"),
    literal: args.boolean("literal"),
    filesOnly: args.choice("output", ["lines", "files"]) === "files",
  };
  if (/[\n\r\0]/.test(query.pattern)) {
    throw new WorkspaceFault("pattern_invalid", "The pattern holds a line break or NUL, but lines are searched one by one.");
  }
  const offset = args.integer("offset", 0, GREP_MAX_OFFSET) ?? 0;
  const searchMs = options.searchMs ?? SEARCH_MS;
  const timeUp = AbortSignal.timeout(searchMs);
  const signal = AbortSignal.any([options.signal, timeUp]);
  const found = new Findings(await root.real(), query.filesOnly, offset + GREP_LINES + 1);
  const report = emptyWalkReport();
  let isInTime = true;
  try {
    for await (const lot of lotsOf(filesOf(root, args, report, signal))) {
      for await (const matches of options.engine.search(lot, query, offset + GREP_LINES + 1, signal)) {
        found.take(matches);
        if (found.isFull) break;
      }
      if (found.isFull) break;
    }
  } catch (error) {
    options.signal.throwIfAborted();
    if (!timeUp.aborted) throw error;
    if (found.lines.length === 0) {
      throw new WorkspaceFault(
        "search_timed_out",
        `The search found nothing in ${searchMs / 1000} s; give a path or a glob to search less.`,
      );
    }
    isInTime = false;
  }
  const lines = found.lines.slice(offset, offset + GREP_LINES);
  return fitLines(lines, options.budgetBytes, (text, count) => ({
    text,
    shown: count,
    next_offset: found.lines.length > offset + count && offset + count <= GREP_MAX_OFFSET ? offset + count : null,
    engine: options.engine.name,
    notes: [
      ...(lines.length === 0 ? [offset === 0 ? "Nothing matched." : "There are no matches from this offset on."] : []),
      ...(found.lines.length > offset + count ? ["There is more; go on with next_offset, or narrow the search."] : []),
      ...(found.longLines > 0
        ? [`${found.longLines} matching lines with over ${GREP_COLUMNS} characters are left out; look at them with bash.`]
        : []),
      ...(isInTime ? [] : [`The search was stopped after ${searchMs / 1000} s; there may be more.`]),
      ...walkNotes(report),
      ...(options.engine.note === "" ? [] : [options.engine.note]),
    ],
  })).result;
}

/** Output lines of the matches so far. */
class Findings {
  readonly lines: string[] = [];
  longLines = 0;

  constructor(
    readonly realRoot: string,
    readonly filesOnly: boolean,
    readonly limit: number,
  ) {}

  get isFull(): boolean {
    return this.lines.length >= this.limit;
  }

  take(matches: FileMatches): void {
    const shown = showPath(path.relative(this.realRoot, matches.file));
    if (this.filesOnly) {
      this.lines.push(shown);
      return;
    }
    this.longLines += matches.longLines;
    for (const line of matches.lines) {
      if (this.isFull) return;
      this.lines.push(`${shown}:${line.number}:${line.text}`);
    }
  }
}

/** Absolute paths of the files that a call wants searched. */
async function* filesOf(root: WorkspaceRoot, args: Arguments, report: WalkReport, signal: AbortSignal): AsyncGenerator<string> {
  const place = await root.find(args.path("path") ?? ".");
  const found = await stat(place.real);
  const wanted = args.string("glob");
  const pattern = wanted === undefined || wanted === "" ? undefined : parseGlob(wanted);
  if (found.isFile()) {
    yield place.real;
    return;
  }
  if (!found.isDirectory()) {
    throw new WorkspaceFault("not_a_file", `${place.shown} is a pipe, socket or device; only regular files and folders are searched.`);
  }
  const walk = { root: await root.real(), from: place.real, includeIgnored: args.boolean("include_ignored"), includeLinks: false, signal };
  for await (const file of walkFiles(walk, report)) {
    if (pattern === undefined || matchesGlob(pattern, file)) yield path.join(place.real, file);
  }
}

/** Files in lots for the engine: at least one lot, empty when there are no files, so that the pattern is always checked. */
async function* lotsOf(files: AsyncIterable<string>): AsyncGenerator<readonly string[]> {
  let lot: string[] = [];
  let characters = 0;
  let isFirst = true;
  for await (const file of files) {
    lot.push(file);
    characters += file.length;
    if (characters >= LOT_CHARACTERS || lot.length >= LOT_FILES) {
      yield lot;
      isFirst = false;
      lot = [];
      characters = 0;
    }
  }
  if (isFirst || lot.length > 0) yield lot;
}
