/**
 * Finds and ends the child processes of calls.
 *
 * The processes of a family are those of its process group, and those that carry its mark in their environment, wherever they
 * went. Marks are read from /proc, so on systems without it only the group is reached. Out of reach is a process that left
 * the group and cleared its environment.
 *
 * Invariants: nothing is signalled by group id unless the group is known to be the family's: its leader has not been reaped,
 * or a member carries the mark; zombies count as gone.
 */
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/** Time that processes have between SIGTERM and SIGKILL. */
export const TERM_GRACE_MS = 2_000;

const KILL_WAIT_MS = 2_000;
const POLL_MS = 50;

/** Environment variable that holds the id of the grant: of two attempts of one call, each has processes of its own. */
export const GRANT_MARK = "TOOLRUNNER_GRANT_ID";
/** Environment variable that holds the id of the runner's journal: who opens that journal next ends what carries it. */
export const JOURNAL_MARK = "TOOLRUNNER_JOURNAL_ID";

/** A variable of the environment and the value that marks a process. */
export interface Mark {
  readonly name: string;
  readonly value: string;
}

/** A child process with all that came of it. */
export interface ProcessFamily {
  /** Process group; the leader's process id. */
  readonly group: number;
  readonly mark: Mark;
  /** False once the leader has been reaped, after which its id may belong to somebody else. */
  readonly leaderIsOurs: () => boolean;
}

const hasProc = (() => {
  try {
    readFileSync("/proc/self/stat");
    return true;
  } catch {
    return false;
  }
})();

/** What /proc/PID/stat says; undefined when the process is gone or a zombie. */
export function processStat(pid: number): { readonly group: number; readonly startTicks: string } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name stands in parentheses and may hold anything.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields[0] === "Z" || fields[0] === "X") return undefined;
    return { group: Number(fields[2]), startTicks: fields[19] ?? "" };
  } catch {
    return undefined;
  }
}

/** Living processes that carry the mark; none where there is no /proc. */
export function markedProcesses(mark: Mark): number[] {
  if (!hasProc) return [];
  const entry = Buffer.from(`\0${mark.name}=${mark.value}\0`);
  return processIds().filter((pid) => {
    try {
      const environment = Buffer.concat([Buffer.from("\0"), readFileSync(`/proc/${pid}/environ`), Buffer.from("\0")]);
      return environment.includes(entry) && processStat(pid) !== undefined;
    } catch {
      return false;
    }
  });
}

function processIds(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid);
}

/** Living processes of a family. */
export function familyMembers(family: ProcessFamily): number[] {
  if (!hasProc) return groupExists(family.group) ? [family.group] : [];
  const marked = markedProcesses(family.mark);
  const ownsGroup = family.leaderIsOurs() || marked.some((pid) => processStat(pid)?.group === family.group);
  if (!ownsGroup) return marked;
  return processIds().filter((pid) => marked.includes(pid) || processStat(pid)?.group === family.group);
}

/** Sends a signal to all members of a family now. */
export function signalFamily(family: ProcessFamily, signal: NodeJS.Signals): void {
  const members = familyMembers(family);
  const ownsGroup =
    family.leaderIsOurs() || (!hasProc && members.length > 0) || members.some((pid) => processStat(pid)?.group === family.group);
  if (ownsGroup) send(-family.group, signal);
  for (const pid of members) if (!ownsGroup || processStat(pid)?.group !== family.group) send(pid, signal);
}

/**
 * Ends a family: SIGTERM, and SIGKILL to what is left after `TERM_GRACE_MS`. Resolves when none is left, or when even that
 * did not help within two seconds more (a process that waits for a broken disk).
 * @returns true when all are gone
 */
export async function endFamily(family: ProcessFamily): Promise<boolean> {
  if (familyMembers(family).length === 0) return true;
  signalFamily(family, "SIGTERM");
  // A stopped process does not see SIGTERM until it goes on.
  signalFamily(family, "SIGCONT");
  if (await isGoneWithin(family, TERM_GRACE_MS)) return true;
  const deadline = performance.now() + KILL_WAIT_MS;
  do {
    signalFamily(family, "SIGKILL");
    if (await isGoneWithin(family, POLL_MS)) return true;
  } while (performance.now() < deadline);
  return false;
}

async function isGoneWithin(family: ProcessFamily, waitMs: number): Promise<boolean> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    if (familyMembers(family).length === 0) return true;
    if (performance.now() >= deadline) return false;
    await delay(POLL_MS);
  }
}

/** Kills everything that carries the mark, without waiting: for the exit of the process, and for what a dead runner left. */
export function killMarkedNow(mark: Mark): void {
  // A process may have forked between the look and the signal; a few rounds catch its child.
  for (let round = 0; round < 5; round += 1) {
    const marked = markedProcesses(mark);
    if (marked.length === 0) return;
    for (const pid of marked) send(pid, "SIGKILL");
  }
}

function groupExists(group: number): boolean {
  try {
    process.kill(-group, 0);
    return true;
  } catch {
    return false;
  }
}

function send(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal);
  } catch {
    // It is gone already, or belongs to another user; the caller looks again.
  }
}

/** Kills everything that carries the mark, and waits until it is gone, for two seconds at most. @returns whether it is */
export async function endMarked(mark: Mark): Promise<boolean> {
  const deadline = performance.now() + KILL_WAIT_MS;
  for (;;) {
    const marked = markedProcesses(mark);
    if (marked.length === 0) return true;
    if (performance.now() >= deadline) return false;
    for (const pid of marked) send(pid, "SIGKILL");
    await delay(POLL_MS);
  }
}
