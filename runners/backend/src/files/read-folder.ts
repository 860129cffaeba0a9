/**
 * The folder half of `read` (W2): entries of one folder, folders first, each group by name.
 */
import { opendir } from "node:fs/promises";
import { fitLines, showPath } from "../json-budget.js";
import { faultFromSystemError, WorkspaceFault } from "../workspace-fault.js";
import type { Place } from "../workspace-root.js";
import type { ReadResult } from "./read-file.js";

/** Entries that one call lists. */
export const FOLDER_ENTRIES = 500;
/** Entries of a folder that are looked at; more are left out and said so. */
export const FOLDER_SCAN_ENTRIES = 200_000;

/**
 * Lists the folder at `place` from entry `first` (counted from 1).
 * @throws {WorkspaceFault} `range_invalid` past the end, `permission_denied`
 */
export async function readFolder(
  place: Place,
  wanted: { readonly first: number; readonly limit: number },
  budgetBytes: number,
  signal: AbortSignal,
): Promise<ReadResult> {
  const folders: string[] = [];
  const others: string[] = [];
  let isWhole = true;
  try {
    for await (const entry of await opendir(place.real)) {
      signal.throwIfAborted();
      if (folders.length + others.length >= FOLDER_SCAN_ENTRIES) {
        isWhole = false;
        break;
      }
      if (entry.isDirectory()) folders.push(`${showPath(entry.name)}/`);
      else if (entry.isSymbolicLink()) others.push(`${showPath(entry.name)} (link)`);
      else if (entry.isFile()) others.push(showPath(entry.name));
      else others.push(`${showPath(entry.name)} (pipe, socket or device)`);
    }
  } catch (error) {
    if (signal.aborted) throw error;
    throw faultFromSystemError(error, place.shown);
  }
  const entries = [...folders.sort(), ...others.sort()];
  if (wanted.first > 1 && wanted.first > entries.length) {
    throw new WorkspaceFault("range_invalid", `${place.shown} has ${entries.length} entries; entry ${wanted.first} is past its end.`);
  }
  const start = wanted.first - 1;
  const wantedEntries = entries.slice(start, start + Math.min(wanted.limit, FOLDER_ENTRIES));
  return fitLines(wantedEntries, budgetBytes, (text, count) => ({
    kind: "folder" as const,
    text,
    first: count === 0 ? 0 : wanted.first,
    last: start + count,
    total: isWhole ? entries.length : null,
    next_offset: start + count < entries.length ? start + count + 1 : null,
    notes: [
      ...(entries.length === 0 ? ["The folder is empty."] : []),
      ...(isWhole ? [] : [`The folder has more than ${FOLDER_SCAN_ENTRIES} entries; the others are left out. Use glob.`]),
    ],
  })).result;
}
