/** Names a process so that a later one can tell whether it still lives, pid reuse and containers included. */
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import { processStat } from "./processes.js";

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
    started: processStat(process.pid)?.startTicks ?? null,
    boot: attempt(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
    namespace: attempt(() => readlinkSync("/proc/self/ns/pid")),
    host: hostname(),
  };
}

/** Whether a process lives: "unknown" where this process cannot see it. */
export function livenessOf(other: ProcessIdentity, own: ProcessIdentity = ownIdentity()): "alive" | "dead" | "unknown" {
  if (other.boot !== null && own.boot !== null && other.boot !== own.boot && other.host === own.host) return "dead";
  if (other.host !== own.host || other.namespace !== own.namespace || other.boot !== own.boot) return "unknown";
  if (other.started !== null && own.started !== null) return processStat(other.pid)?.startTicks === other.started ? "alive" : "dead";
  try {
    process.kill(other.pid, 0);
    // Without a start time another process may have the pid by now.
    return "unknown";
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM" ? "unknown" : "dead";
  }
}

function attempt<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}
