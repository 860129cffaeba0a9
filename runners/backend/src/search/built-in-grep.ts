/**
 * Searches without ripgrep.
 *
 * Invariants: lines are matched in a thread of their own, so that a regular expression that blows up stalls neither the
 * runner nor a cancel: the thread is ended. One thread serves one search.
 */
import { Worker } from "node:worker_threads";
import { WorkspaceFault } from "../workspace-fault.js";
import type { FileMatches, GrepEngine, GrepQuery } from "./grep-engine.js";
import type { GrepJob, GrepNews } from "./grep-messages.js";

/** The built-in engine. */
export function builtInEngine(): GrepEngine {
  return {
    name: "built-in",
    note: "ripgrep is not installed: the built-in search read the pattern as a JavaScript regular expression; the order of matches is not promised.",
    search,
  };
}

async function* search(files: readonly string[], query: GrepQuery, lineLimit: number, signal: AbortSignal): AsyncGenerator<FileMatches> {
  signal.throwIfAborted();
  const job: GrepJob = { files, query, lineLimit };
  const worker = new Worker(new URL("./built-in-grep-thread.js", import.meta.url), { workerData: job, stdin: false });
  const arrived: GrepNews[] = [];
  const failures: Error[] = [];
  let wake: () => void = () => {};
  worker.on("message", (news: GrepNews) => {
    arrived.push(news);
    wake();
  });
  worker.on("error", (error: Error) => {
    failures.push(error);
    wake();
  });
  const exited = new Promise<void>((resolve) => {
    worker.once("exit", () => {
      failures.push(new Error("its thread ended early"));
      wake();
      resolve();
    });
  });
  const onAbort = () => wake();
  signal.addEventListener("abort", onAbort);
  try {
    for (;;) {
      const news = arrived.shift();
      signal.throwIfAborted();
      if (news?.kind === "matches") yield news.matches;
      else if (news?.kind === "done") return;
      else if (news?.kind === "invalid") throw new WorkspaceFault("pattern_invalid", news.message);
      else if (failures[0] !== undefined)
        throw new WorkspaceFault("io_error", `The built-in search failed: ${failures[0].message}.`, { cause: failures[0] });
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
    void worker.terminate();
    await exited;
  }
}
