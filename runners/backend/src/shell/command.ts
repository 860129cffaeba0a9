/**
 * Runs one command in a process group of its own, and sees it through.
 *
 * Invariants: when `runCommand` has answered for a command that ran out of time or was cancelled, none of its processes is
 * left (but for what `processes.ts` says is out of reach); a command that ended is not waited for longer because something
 * it left in the background holds its output: that output goes on into the log.
 */
import { spawn } from "node:child_process";
import { Socket } from "node:net";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { endFamily, type Mark, type ProcessFamily } from "@toolrunner/runner-sdk/node";
import type { OutputCollector } from "./output.js";

/** Exit code of a command that ran out of time. */
export const TIMED_OUT_EXIT_CODE = 124;

/** Output that a background job writes right after the command is waited for this long at most. */
const LAST_OUTPUT_MS = 1_000;
/** And as soon as nothing came for this long, it is not waited for. */
const QUIET_MS = 50;
/** Pause after each piece of a background job's output that is dropped, so that a flood does not wear the runner out. */
const DROP_PAUSE_MS = 20;

/** A program to run. */
export interface CommandLine {
  readonly program: string;
  readonly args: readonly string[];
  /** Directory to start in; it exists. */
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
  /** Mark that the environment carries. */
  readonly mark: Mark;
}

/** How a command ended. */
export interface CommandEnd {
  readonly exitCode: number;
  readonly timedOut: boolean;
  /** False when processes are left that could not be ended. */
  readonly isGone: boolean;
  /** True when something in the background still holds its output. */
  readonly printsOn: boolean;
  /** Resolves when no more output can come; never rejects. */
  readonly outputEnded: Promise<unknown>;
}

/**
 * Runs a command to its end, its time-out or its cancel.
 * @param timeoutMs time that it may take
 * @param signal ends it; the call then throws the signal's reason, after the processes are gone
 * @throws what `spawn` fails with
 */
export async function runCommand(line: CommandLine, output: OutputCollector, timeoutMs: number, signal: AbortSignal): Promise<CommandEnd> {
  signal.throwIfAborted();
  const child = spawn(line.program, line.args, {
    cwd: line.directory,
    env: line.environment,
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
  let hasExited = false;
  const exited = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, killer) => {
      hasExited = true;
      resolve(code ?? 128 + (killer === null ? 0 : constants.signals[killer]));
    });
  });
  let isInBackground = false;
  const reading = pump(child.stdout, output, () => isInBackground && output.isFull);
  if (child.pid === undefined) {
    child.stdout.destroy();
    return exited.then(() => Promise.reject(new Error("the shell has no process id")));
  }
  const family: ProcessFamily = { group: child.pid, mark: line.mark, leaderIsOurs: () => !hasExited };
  const ended = await firstOf(exited, timeoutMs, signal);
  if (typeof ended === "number") {
    const printsOn = !(await isQuiet(reading, output));
    isInBackground = true;
    // What goes on printing must not keep the runner from ending.
    if (printsOn && child.stdout instanceof Socket) child.stdout.unref();
    return { exitCode: ended, timedOut: false, isGone: true, printsOn, outputEnded: reading };
  }
  const isGone = await endFamily(family);
  if ((await Promise.race([reading, delay(LAST_OUTPUT_MS, "late" as const, { ref: false })])) === "late") child.stdout.destroy();
  if (ended === "aborted") throw signal.reason;
  return { exitCode: TIMED_OUT_EXIT_CODE, timedOut: true, isGone, printsOn: false, outputEnded: reading };
}

/** The exit code, or what came before the exit. */
function firstOf(exited: Promise<number>, timeoutMs: number, signal: AbortSignal): Promise<number | "aborted" | "timed out"> {
  return new Promise((resolve, reject) => {
    const finish = (outcome: number | "aborted" | "timed out"): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      resolve(outcome);
    };
    const onAbort = () => finish("aborted");
    const timer = setTimeout(() => finish("timed out"), timeoutMs);
    signal.addEventListener("abort", onAbort, { once: true });
    exited.then(finish, (error: unknown) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      reject(error);
    });
  });
}

/** Reads to the end, no faster than the output is dealt with, and slowly while `isSlow` says so. Never rejects. */
async function pump(source: Readable, output: OutputCollector, isSlow: () => boolean): Promise<"ended"> {
  try {
    for await (const chunk of source) {
      if (Buffer.isBuffer(chunk)) await output.add(chunk);
      if (isSlow()) await delay(DROP_PAUSE_MS, undefined, { ref: false });
    }
  } catch {
    // The stream was destroyed under us: what came is kept.
  }
  return "ended";
}

/** Waits for the last output of a command whose shell has ended. @returns false when more may come */
async function isQuiet(reading: Promise<"ended">, output: OutputCollector): Promise<boolean> {
  const deadline = performance.now() + LAST_OUTPUT_MS;
  for (let seen = -1; seen !== output.totalBytes && performance.now() < deadline; ) {
    seen = output.totalBytes;
    if ((await Promise.race([reading, delay(QUIET_MS, "waiting" as const)])) === "ended") return true;
  }
  return false;
}
