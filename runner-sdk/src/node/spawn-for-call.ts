/**
 * Child processes that die with the call that started them (K4).
 *
 * Invariants: a child leads a process group of its own and carries the marks of grant and journal in its environment, and so
 * does what it starts; when `ctx.signal` aborts (cancel, lost lease, deadline, end of the handler) or this process exits, all of them
 * are ended; whoever opens the runner's file journal next ends what a killed runner left, before anything is reported.
 * Out of reach: a process that leaves the group and clears its environment; without /proc, one that leaves the group.
 */
import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import type { CallContext } from "../core/context.js";
import { endFamily, GRANT_MARK, JOURNAL_MARK, type ProcessFamily, signalFamily } from "./processes.js";

/** What of Node's `spawn` options can be chosen: the group and the marks are not. `env` is the runner's own by default, as in Node. */
export type SpawnForCallOptions = Omit<SpawnOptions, "detached" | "signal" | "timeout" | "killSignal">;

/** How the child ended: its exit code, or the signal that ended it. */
export interface CallProcessEnd {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A child process of a call. */
export interface CallProcess {
  readonly child: ChildProcess;
  /**
   * Resolves when the child has ended; after an abort of `ctx.signal` not before all its processes are gone, or four seconds passed in
   * which even SIGKILL did not help. Rejects with what `spawn` failed with.
   */
  readonly ended: Promise<CallProcessEnd>;
}

/** Those of this process, for its end. */
const living = new Set<ProcessFamily>();

/**
 * Starts a program that ends with the call: SIGTERM to everything that came of it, after 2 s SIGKILL.
 * @throws the reason of `ctx.signal` when that has aborted, and what Node's `spawn` throws for wrong options.
 */
export function spawnForCall(
  ctx: Pick<CallContext, "signal"> & { readonly grant: Pick<CallContext["grant"], "grantId" | "journalId"> },
  program: string,
  args: readonly string[] = [],
  options: SpawnForCallOptions = {},
): CallProcess {
  const { signal, grant } = ctx;
  signal.throwIfAborted();
  const env = { ...(options.env ?? process.env), [GRANT_MARK]: grant.grantId, [JOURNAL_MARK]: grant.journalId };
  const child = spawn(program, args, { ...options, env, detached: true });
  let hasExited = false;
  const exited = new Promise<CallProcessEnd>((resolve, reject) => {
    child.once("error", (error) => {
      // Also told when a signal could not be sent; the child lives on then.
      if (child.pid === undefined) reject(error);
    });
    child.once("exit", (exitCode, by) => {
      hasExited = true;
      resolve({ exitCode, signal: by });
    });
  });
  if (child.pid === undefined) {
    return { child, ended: exited };
  }
  const family: ProcessFamily = { group: child.pid, mark: { name: GRANT_MARK, value: grant.grantId }, leaderIsOurs: () => !hasExited };
  remember(family);
  const aborted = new Promise<void>((resolve) => {
    signal.addEventListener(
      "abort",
      () =>
        endFamily(family)
          .then(() => forget(family))
          .then(resolve, resolve),
      { once: true },
    );
  });
  const ended = exited.then(async (end) => {
    if (signal.aborted) await aborted;
    return end;
  });
  return { child, ended };
}

function remember(family: ProcessFamily): void {
  if (living.size === 0) process.on("exit", killLiving);
  living.add(family);
}

function forget(family: ProcessFamily): void {
  living.delete(family);
  if (living.size === 0) process.off("exit", killLiving);
}

function killLiving(): void {
  for (const family of living) signalFamily(family, "SIGKILL");
}
