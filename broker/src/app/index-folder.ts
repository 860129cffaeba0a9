/**
 * The folder of an index that lives no longer than its broker: below the system's folder for temporary files, removed at the end,
 * and removed by a later broker when its own was killed outright.
 *
 * Invariant: a folder is removed only when it is this user's, older than a minute, and its index is held by nobody. A running broker
 * holds its index from its first seconds on, on whichever host or in whichever container that shares the folder it runs.
 */
import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { isIndexHeld } from "../call-index/index-file.js";
import type { Log } from "../domain/ports/log.js";

const PREFIX = "toolrunner-index-";
const INDEX_FILE = "index.db";
/** A broker that starts has made its folder and does not hold its index yet. */
const YOUNG_MS = 60_000;

export interface IndexFolder {
  /** Where the index goes. */
  readonly file: string;
  remove(): Promise<void>;
}

/** Makes a folder in `parent`, and removes what brokers before left there; what cannot be removed is left, and logged. */
export async function makeIndexFolder(parent: string, log: Log, now: () => number = Date.now): Promise<IndexFolder> {
  const removed = await removeLeftOvers(parent, now()).catch((error: unknown) => {
    log.warn("call_index_left_overs_stay", { folder: parent, reason: error instanceof Error ? error.message : String(error) });
    return 0;
  });
  if (removed > 0) log.info("call_index_left_overs_removed", { folder: parent, count: removed });
  const folder = await mkdtemp(join(parent, PREFIX));
  return { file: join(folder, INDEX_FILE), remove: () => rm(folder, { recursive: true, force: true }) };
}

async function removeLeftOvers(parent: string, nowMs: number): Promise<number> {
  let removed = 0;
  for (const name of await readdir(parent)) {
    if (!name.startsWith(PREFIX)) continue;
    const folder = join(parent, name);
    const found = await lstat(folder).catch(() => undefined);
    if (found === undefined || !found.isDirectory() || found.uid !== process.getuid?.()) continue;
    if (nowMs - found.mtimeMs < YOUNG_MS || isIndexHeld(join(folder, INDEX_FILE))) continue;
    await rm(folder, { recursive: true, force: true });
    removed += 1;
  }
  return removed;
}
