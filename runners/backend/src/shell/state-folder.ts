/**
 * Owns the folder where a workspace keeps what must not lie in the user's files: logs of commands, and the scratch files
 * that carry a shell's state from one command to the next.
 *
 * Invariants: the folder is private to the user (mode 0700, its parent too) and carries a name that says which process made
 * it, and when; it is removed when that process ends, else by the next one that starts; its name marks the processes of the
 * workspace, so that the next one can end those that outlived their runner (K4).
 */
import { randomBytes } from "node:crypto";
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { killMarkedNow, type Mark, processStat } from "@toolrunner/runner-sdk/node";

/** Environment variable that holds the name of the runner's state folder: the same for all commands of one workspace. */
export const WORKSPACE_MARK = "TOOLRUNNER_WORKSPACE_MARK";

const NAME = /^w-(\d+)-(\d+)-(\d*)-[0-9a-f]{16}$/;

/** Folders of this process, for the end of the process. */
const live = new Set<StateFolder>();

/** A workspace's folder for logs and scratch files. */
export class StateFolder {
  readonly path: string;
  /** Carried by each process of the workspace. */
  readonly mark: Mark;
  #isClosed = false;

  /** Makes the folder, and clears away what processes that are gone left behind. Throws what the file system throws. */
  constructor(parent: string = defaultParent()) {
    sweep(parent);
    const name = `w-${process.pid}-${pidNamespace()}-${processStat(process.pid)?.startTicks ?? ""}-${randomBytes(8).toString("hex")}`;
    this.path = path.join(parent, name);
    mkdirSync(this.path, { mode: 0o700 });
    this.mark = { name: WORKSPACE_MARK, value: name };
    if (live.size === 0) process.on("exit", closeAll);
    live.add(this);
  }

  /** Kills every process of the workspace, and removes the folder. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    killMarkedNow(this.mark);
    rmSync(this.path, { recursive: true, force: true });
    live.delete(this);
    if (live.size === 0) process.off("exit", closeAll);
  }
}

function closeAll(): void {
  for (const folder of [...live]) folder.close();
}

/** `toolrunner-UID` in the folder for temporary files; a fresh folder where another user was there first. */
function defaultParent(): string {
  const uid = process.getuid?.() ?? 0;
  const wanted = usualParent();
  mkdirSync(wanted, { recursive: true, mode: 0o700 });
  const found = lstatSync(wanted);
  if (!found.isDirectory() || (process.getuid !== undefined && found.uid !== uid)) return mkdtempSync(path.join(tmpdir(), "toolrunner-"));
  chmodSync(wanted, 0o700);
  return wanted;
}

function usualParent(): string {
  return path.join(tmpdir(), `toolrunner-${process.getuid?.() ?? 0}`);
}

/** Ends what runners of this user that are gone left running, and removes their folders. Never throws. */
export function clearAbandoned(): void {
  sweep(usualParent());
}

function sweep(parent: string): void {
  let names: string[];
  try {
    names = readdirSync(parent);
  } catch {
    return;
  }
  for (const name of names) {
    const [, pid, namespace, startTicks] = NAME.exec(name) ?? [];
    // A process of another namespace cannot be seen from here, so nothing is known about it.
    if (pid === undefined || namespace !== pidNamespace() || isAlive(Number(pid), startTicks ?? "")) continue;
    killMarkedNow({ name: WORKSPACE_MARK, value: name });
    try {
      rmSync(path.join(parent, name), { recursive: true, force: true });
    } catch {
      // Another process clears it away at the same time, or it cannot be removed: nothing here depends on it.
    }
  }
}

function isAlive(pid: number, startTicks: string): boolean {
  if (startTicks !== "") return processStat(pid)?.startTicks === startTicks;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

/** Number of the process namespace; "0" where there is none. */
function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "0";
  } catch {
    return "0";
  }
}
