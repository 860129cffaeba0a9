/**
 * The tool `glob` (W5) without its wrapping: files whose path matches a pattern, the newest first.
 */
import { stat } from "node:fs/promises";
import path from "node:path";
import type { Arguments } from "../arguments.js";
import { fitLines, showPath } from "../json-budget.js";
import { WorkspaceFault } from "../workspace-fault.js";
import { isInside, type WorkspaceRoot } from "../workspace-root.js";
import { matchesGlob, parseGlob } from "./glob-pattern.js";
import { emptyWalkReport, walkFiles, walkNotes } from "./walk.js";

/** Files that one call names. */
export const GLOB_FILES = 100;

const STATS_AT_ONCE = 64;

/** Answer of `glob`. */
export interface GlobResult {
  /** One path a line, relative to the workspace root, the newest first. */
  readonly text: string;
  /** Paths named in `text`. */
  readonly shown: number;
  /** Files that matched in all. */
  readonly matched: number;
  /** What was left out, and how to get it. */
  readonly notes: readonly string[];
}

/**
 * Finds files by name.
 * @param budgetBytes most bytes of the compact JSON of the result
 * @throws {WorkspaceFault} `pattern_invalid`, `not_a_file` when `path` is no folder; see `WorkspaceRoot.find`
 */
export async function glob(root: WorkspaceRoot, args: Arguments, budgetBytes: number, signal: AbortSignal): Promise<GlobResult> {
  const realRoot = await root.real();
  const place = await findFolder(root, args.path("path") ?? ".");
  const pattern = parseGlob(relativePattern(args.text("pattern"), realRoot));
  const report = emptyWalkReport();
  const found: { readonly real: string; changedMs: number }[] = [];
  const walk = { root: realRoot, from: place, includeIgnored: args.boolean("include_ignored"), includeLinks: true, signal };
  for await (const file of walkFiles(walk, report)) {
    if (matchesGlob(pattern, file)) found.push({ real: path.join(place, file), changedMs: 0 });
  }
  await readTimes(found, signal);
  found.sort((left, right) => right.changedMs - left.changedMs || (left.real < right.real ? -1 : 1));
  const lines = found.slice(0, GLOB_FILES).map(({ real }) => showPath(path.relative(realRoot, real)));
  return fitLines(lines, budgetBytes, (text, count) => ({
    text,
    shown: count,
    matched: found.length,
    notes: [
      ...(found.length === 0 ? ["Nothing matched."] : []),
      ...(found.length > count ? [`${found.length - count} older files are left out; narrow the pattern or give a path.`] : []),
      ...walkNotes(report),
    ],
  })).result;
}

/**
 * The real path of a folder to search in.
 * @throws {WorkspaceFault} `not_a_file` when it is something else
 */
export async function findFolder(root: WorkspaceRoot, requested: string): Promise<string> {
  const place = await root.find(requested);
  if (!isInside(await root.real(), place.real)) {
    throw new WorkspaceFault("outside_workspace", `${place.shown} is not a folder of the workspace.`);
  }
  if (!(await stat(place.real)).isDirectory())
    throw new WorkspaceFault("not_a_file", `${place.shown} is not a folder; path names the folder to search.`);
  return place.real;
}

/** A pattern that spells out the root's path means the same without it. */
function relativePattern(pattern: string, realRoot: string): string {
  if (!pattern.startsWith("/")) return pattern;
  const prefix = realRoot.endsWith("/") ? realRoot : `${realRoot}/`;
  if (pattern.startsWith(prefix)) return `./${pattern.slice(prefix.length)}`;
  throw new WorkspaceFault(
    "outside_workspace",
    `The pattern ${showPath(pattern)} starts outside the workspace; write it relative to the root.`,
  );
}

/** Reads when files were changed, some at a time; one that went away meanwhile counts as the oldest. */
async function readTimes(files: readonly { readonly real: string; changedMs: number }[], signal: AbortSignal): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let file = files[next]; file !== undefined; file = files[next]) {
      next += 1;
      signal.throwIfAborted();
      file.changedMs = await stat(file.real).then(
        (found) => found.mtimeMs,
        () => 0,
      );
    }
  };
  await Promise.all(Array.from({ length: STATS_AT_ONCE }, work));
}
