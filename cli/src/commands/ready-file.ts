/**
 * A file that is there while a runner takes calls, for the health checks of containers, which can look at files but not into processes.
 *
 * Invariants: one that an earlier process left is gone before this one begins; what cannot be written keeps the runner from starting,
 * and later faults never stop it: the file is for those who look on.
 */
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { messageOf, startError } from "../errors.js";

/**
 * Removes what is left at `file`, relative to `cwd`, and returns a function that makes or removes it.
 * Rejects with the start-up fault `ready_file_invalid` when it cannot be written there.
 */
export async function readyFileOf(file: string, cwd: string): Promise<(ready: boolean) => void> {
  const path = resolve(cwd, file);
  try {
    writeFileSync(path, "");
    rmSync(path);
  } catch (cause) {
    throw startError("ready_file_invalid", `--ready-file: ${path} cannot be written (${messageOf(cause)})`, cause);
  }
  return (ready) => change(path, ready);
}

function change(path: string, ready: boolean): void {
  try {
    if (ready) writeFileSync(path, "");
    else rmSync(path, { force: true });
  } catch {
    // A disk that is full or gone says nothing about the runner.
  }
}
