/**
 * A Node process of the run. What it writes on standard error goes to a file, over restarts of the same name to the same one.
 *
 * Invariant: none outlives the process that started it: the kernel kills it then.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync } from "node:fs";

export interface Child {
  readonly pid: number;
  /** The first line of standard output, read as JSON. Rejects when the process ends before. */
  readonly ready: Promise<Record<string, unknown>>;
  /** Exit code; null after a signal. */
  readonly exited: Promise<number | null>;
  signal(name: NodeJS.Signals): void;
}

export interface ChildOptions {
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Standard error is appended to it. */
  readonly logFile: string;
}

const SET_PRIVILEGES = "/usr/bin/setpriv";

/** Starts `node args`. */
export function startChild({ args, cwd, env, logFile }: ChildOptions): Child {
  const log = openSync(logFile, "a");
  const command = existsSync(SET_PRIVILEGES) ? [SET_PRIVILEGES, "--pdeathsig", "KILL", process.execPath] : [process.execPath];
  const [file = process.execPath, ...before] = command;
  let child: ChildProcess;
  try {
    child = spawn(file, [...before, ...args], { cwd, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", log] });
  } finally {
    closeSync(log);
  }
  const exited = new Promise<number | null>((resolve) => {
    child.once("exit", (code) => resolve(code));
    child.once("error", () => resolve(null));
  });
  const ready = new Promise<Record<string, unknown>>((resolve, reject) => {
    let text = "";
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      if (text.includes("\n")) return;
      text += chunk;
      const end = text.indexOf("\n");
      if (end >= 0) resolve(JSON.parse(text.slice(0, end)) as Record<string, unknown>);
    });
    void exited.then((code) => reject(new Error(`ended with ${code} before it was ready; see ${logFile}`)));
  });
  // Whoever does not wait for it is not told.
  ready.catch(() => undefined);
  return { pid: child.pid ?? 0, ready, exited, signal: (name) => void child.kill(name) };
}
