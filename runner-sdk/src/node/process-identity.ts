/** Names a process so that a later one can tell whether it still lives, pid reuse and containers included. */
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

/** A process, as far as the platform lets it be named. Null: not known here. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Start time in clock ticks since boot (Linux). */
  readonly started: string | null;
  readonly boot: string | null;
  /** Pid namespace: pids of another one say nothing here. */
  readonly namespace: string | null;
  readonly host: string;
}

/** This process. */
export function ownIdentity(): ProcessIdentity {
  return {
    pid: process.pid,
    started: startTimeOf(process.pid),
    boot: attempt(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
    namespace: attempt(() => readlinkSync("/proc/self/ns/pid")),
    host: hostname(),
  };
}

/** Whether a process lives: "unknown" where this process cannot see it. */
export function livenessOf(other: ProcessIdentity, own: ProcessIdentity = ownIdentity()): "alive" | "dead" | "unknown" {
  if (other.boot !== null && own.boot !== null && other.boot !== own.boot && other.host === own.host) return "dead";
  if (other.host !== own.host || other.namespace !== own.namespace || other.boot !== own.boot) return "unknown";
  if (other.started !== null && own.started !== null) return startTimeOf(other.pid) === other.started ? "alive" : "dead";
  try {
    process.kill(other.pid, 0);
    // Without a start time another process may have the pid by now.
    return "unknown";
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM" ? "unknown" : "dead";
  }
}

/** Null for a process that is gone, or is a zombie: it holds nothing any more. */
function startTimeOf(pid: number): string | null {
  const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
  if (stat === null) return null;
  // The second field is the command in brackets and may hold anything; what follows its last bracket is regular.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" || fields[0] === "X" ? null : (fields[19] ?? null);
}

function attempt<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}
