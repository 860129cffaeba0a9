/**
 * The tool `read` (W2) without its wrapping: which lines a call wants, and who reads them.
 */
import { stat } from "node:fs/promises";
import type { Arguments } from "../arguments.js";
import { faultFromSystemError, WorkspaceFault } from "../workspace-fault.js";
import type { WorkspaceRoot } from "../workspace-root.js";
import { DEFAULT_LINES, MAX_LINES, type ReadResult, readFile, type WantedLines } from "./read-file.js";
import { FOLDER_ENTRIES, readFolder } from "./read-folder.js";

/**
 * Reads a text file or lists a folder.
 * @param budgetBytes most bytes of the compact JSON of the result
 * @throws {WorkspaceFault} see `readFile`, `readFolder` and `WorkspaceRoot.find`
 */
export async function read(root: WorkspaceRoot, args: Arguments, budgetBytes: number, signal: AbortSignal): Promise<ReadResult> {
  const wanted = wantedLines(args);
  const place = await root.find(args.path("path") ?? ".");
  let isFolder: boolean;
  try {
    isFolder = (await stat(place.real)).isDirectory();
  } catch (error) {
    throw faultFromSystemError(error, place.shown);
  }
  if (!isFolder) return readFile(place, wanted, budgetBytes, signal);
  return readFolder(place, wanted.isRange ? wanted : { first: 1, limit: FOLDER_ENTRIES }, budgetBytes, signal);
}

/**
 * The range of a call: `offset` and `limit`, or `view_range` whose end of 0 or less means to the end.
 * @throws {WorkspaceFault} `arguments_invalid`, `range_invalid`
 */
export function wantedLines(args: Arguments): WantedLines {
  const offset = args.integer("offset", 1, Number.MAX_SAFE_INTEGER);
  const limit = args.integer("limit", 1, MAX_LINES);
  const viewRange = args.pair("view_range");
  if (viewRange === undefined) {
    return { first: offset ?? 1, limit: limit ?? DEFAULT_LINES, isRange: offset !== undefined || limit !== undefined };
  }
  if (offset !== undefined || limit !== undefined) {
    throw new WorkspaceFault("arguments_invalid", "Give either view_range or offset and limit, not both.");
  }
  const [first, last] = viewRange;
  if (first < 1) throw new WorkspaceFault("range_invalid", `view_range starts at ${first}; lines count from 1.`);
  if (last > 0 && last < first) throw new WorkspaceFault("range_invalid", `view_range ends at ${last}, before its start ${first}.`);
  return { first, limit: last <= 0 ? MAX_LINES : Math.min(last - first + 1, MAX_LINES), isRange: true };
}
