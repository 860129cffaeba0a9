/**
 * Walks the files of a folder for `glob` and `grep`.
 *
 * Invariants: links to folders are not followed, so no loop can catch the walk, and nothing outside is reached; only regular
 * files are given out (of links, those to a regular file inside the workspace, and only when asked for); the order is by
 * name, folders and files mixed; what is left out is counted.
 */
import type { Dirent } from "node:fs";
import { readdir, readFile, realpath, stat } from "node:fs/promises";
import path from "node:path";
import { setImmediate } from "node:timers/promises";
import { isInside } from "../workspace-root.js";
import { IGNORE_FILE_BYTES, type IgnoreRules, isIgnoredBy, parseIgnoreRules } from "./ignore-rules.js";

/** Entries that one walk looks at before it gives up. */
export const WALK_ENTRIES = 500_000;

/** Entries after which other work of the runner gets its turn. */
const ENTRIES_IN_A_ROW = 512;

/** Options of `walkFiles`. */
export interface WalkOptions {
  /** Real path of the workspace root; ignore rules count from here. */
  readonly root: string;
  /** Real path of the folder to walk, inside the root. */
  readonly from: string;
  /** Take files that `.gitignore` leaves out. `.git` folders are never entered. */
  readonly includeIgnored: boolean;
  /** Take links to regular files inside the root. */
  readonly includeLinks: boolean;
  readonly signal: AbortSignal;
}

/** What a walk left out, for the notes of the answer; counts rise while it goes on. */
export interface WalkReport {
  ignored: number;
  unreadableFolders: number;
  namesNotUtf8: number;
  /** True when the walk gave up after `WALK_ENTRIES`. */
  isCut: boolean;
}

/** A report with nothing in it. */
export function emptyWalkReport(): WalkReport {
  return { ignored: 0, unreadableFolders: 0, namesNotUtf8: 0, isCut: false };
}

/** Rules and the depth of their folder below the root, in names. */
interface ScopedRules {
  readonly rules: IgnoreRules;
  readonly depth: number;
}

/** A folder that the walk is in. */
interface Frame {
  readonly names: readonly string[];
  readonly entries: readonly Dirent[];
  readonly scopes: readonly ScopedRules[];
  next: number;
}

/** Gives the paths of files, relative to `from`, with `/`. */
export async function* walkFiles(options: WalkOptions, report: WalkReport): AsyncGenerator<string> {
  const prefix = path
    .relative(options.root, options.from)
    .split(path.sep)
    .filter((name) => name !== "");
  const stack: Frame[] = [];
  const enter = async (names: readonly string[], outer: readonly ScopedRules[]): Promise<void> => {
    options.signal.throwIfAborted();
    const folder = path.join(options.from, ...names);
    let entries: Dirent[];
    try {
      entries = await readdir(folder, { withFileTypes: true });
    } catch {
      report.unreadableFolders += 1;
      return;
    }
    const hasRules = !options.includeIgnored && entries.some((entry) => entry.name === ".gitignore");
    const rules = hasRules ? await rulesOf(folder) : undefined;
    const scopes = rules === undefined ? outer : [...outer, { rules, depth: prefix.length + names.length }];
    stack.push({ names, entries: entries.sort(byName), scopes, next: 0 });
  };

  await enter([], options.includeIgnored ? [] : await rulesAbove(options.root, prefix));
  for (let seen = 0, frame = stack.at(-1); frame !== undefined; frame = stack.at(-1)) {
    const entry = frame.entries[frame.next];
    if (entry === undefined) {
      stack.pop();
      continue;
    }
    frame.next += 1;
    seen += 1;
    if (seen % ENTRIES_IN_A_ROW === 0) {
      await setImmediate();
      options.signal.throwIfAborted();
    }
    if (seen > WALK_ENTRIES) {
      report.isCut = true;
      return;
    }
    if (entry.name.includes("\ufffd")) {
      report.namesNotUtf8 += 1;
      continue;
    }
    const isFolder = entry.isDirectory();
    if (isFolder && entry.name === ".git") continue;
    const names = [...frame.names, entry.name];
    if (isIgnored(frame.scopes, [...prefix, ...names], isFolder)) report.ignored += 1;
    else if (isFolder) await enter(names, frame.scopes);
    else if (await isWanted(entry, path.join(options.from, ...names), options)) yield names.join("/");
  }
}

function byName(left: Dirent, right: Dirent): number {
  if (left.name === right.name) return 0;
  return left.name < right.name ? -1 : 1;
}

async function isWanted(entry: Dirent, file: string, options: WalkOptions): Promise<boolean> {
  if (entry.isFile()) return true;
  return options.includeLinks && entry.isSymbolicLink() && (await leadsToFile(file, options.root));
}

/** Rules of the folders from the root down to, but without, the one where the walk starts. */
async function rulesAbove(root: string, prefix: readonly string[]): Promise<readonly ScopedRules[]> {
  const scopes: ScopedRules[] = [];
  for (let depth = 0; depth < prefix.length; depth += 1) {
    const rules = await rulesOf(path.join(root, ...prefix.slice(0, depth)));
    if (rules !== undefined) scopes.push({ rules, depth });
  }
  return scopes;
}

/** The rules of the deepest folder that has something to say decide. */
function isIgnored(scopes: readonly ScopedRules[], names: readonly string[], isFolder: boolean): boolean {
  for (let index = scopes.length - 1; index >= 0; index -= 1) {
    const scope = scopes[index];
    if (scope === undefined) continue;
    const verdict = isIgnoredBy(scope.rules, names.slice(scope.depth), isFolder);
    if (verdict !== undefined) return verdict;
  }
  return false;
}

/** Rules of the `.gitignore` in `folder`; undefined when there is none that can be read as one. */
async function rulesOf(folder: string): Promise<IgnoreRules | undefined> {
  const file = path.join(folder, ".gitignore");
  try {
    const found = await stat(file);
    if (!found.isFile() || found.size > IGNORE_FILE_BYTES) return undefined;
    return parseIgnoreRules(await readFile(file, "utf8"));
  } catch {
    return undefined;
  }
}

async function leadsToFile(link: string, root: string): Promise<boolean> {
  try {
    const real = await realpath(link);
    return isInside(root, real) && (await stat(real)).isFile();
  } catch {
    return false;
  }
}

/** Sentences about what a walk left out. */
export function walkNotes(report: WalkReport): string[] {
  const { ignored, unreadableFolders, namesNotUtf8 } = report;
  return [
    ...(ignored > 0 ? [`Left out by .gitignore: ${ignored} ${ignored === 1 ? "entry" : "entries"}; include_ignored takes them in.`] : []),
    ...(unreadableFolders > 0 ? [`Folders that could not be read: ${unreadableFolders}.`] : []),
    ...(namesNotUtf8 > 0 ? [`Left out because the name is not UTF-8: ${namesNotUtf8}.`] : []),
    ...(report.isCut ? [`The search stopped after ${WALK_ENTRIES} files and folders; give a path to search less.`] : []),
  ];
}
