/**
 * Which journal a runner uses.
 *
 * Invariants: a journal that is named is used or the command fails; without one, runners that share a folder never share a journal.
 * Each takes the first of its binding's that no live process holds, so that a runner that starts again finds what the last one left.
 */
import { statSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Journal, JournalError } from "@toolrunner/runner-sdk";
import { fileJournal } from "@toolrunner/runner-sdk/node";
import { JOURNAL_FOLDER } from "./run-options.js";

/** Most runners of one binding that share a folder. */
const PLACES = 256;

/** The journal that `--journal` names, a folder meaning one in it; else the first free one in {@link JOURNAL_FOLDER}. */
export function journalOf(option: string | undefined, binding: string, cwd: string): Journal {
  if (option !== undefined && !isFolder(resolve(cwd, option))) return fileJournal(resolve(cwd, option));
  const folder = resolve(cwd, option ?? JOURNAL_FOLDER);
  return firstFree(Array.from({ length: PLACES }, (_, index) => join(folder, index === 0 ? binding : `${binding}.${index + 1}`)));
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function firstFree(paths: readonly string[]): Journal {
  return {
    kind: "file",
    durable: true,
    async open(options) {
      let inUse: unknown;
      for (const path of paths) {
        try {
          return await fileJournal(path).open(options);
        } catch (cause) {
          if (!(cause instanceof JournalError) || cause.code !== "journal_in_use") throw cause;
          inUse = cause;
        }
      }
      throw inUse;
    },
  };
}
