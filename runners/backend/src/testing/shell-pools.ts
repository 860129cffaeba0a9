/** Real shells on fresh folders for tests. */
import { realpathSync } from "node:fs";
import { processStat } from "@toolrunner/runner-sdk/node";
import { afterEach } from "vitest";
import { type BashRequest, type BashResult, ShellPool } from "../shell/shell-pool.js";
import { StateFolder } from "../shell/state-folder.js";
import { WorkspaceRoot } from "../workspace-root.js";
import { noAbort, useFolders } from "./temp-folders.js";

/** A pool on a fresh root. */
export interface TestPool {
  readonly rootFolder: string;
  readonly state: StateFolder;
  /** Runs a command, or with undefined none, in the conversation "default" unless `more` says otherwise. */
  run(command: string | undefined, more?: Partial<BashRequest>): Promise<BashResult>;
}

/** Gives a function that makes pools, with the variables of this process unless told otherwise. Call once at the top of a test file. */
export function usePools(): (environment?: Readonly<Record<string, string | undefined>>) => TestPool {
  const makeFolder = useFolders();
  const opened: StateFolder[] = [];
  let calls = 0;
  afterEach(() => {
    for (const folder of opened.splice(0)) folder.close();
  });
  return (environment = process.env) => {
    const rootFolder = realpathSync(makeFolder());
    const state = new StateFolder(makeFolder());
    opened.push(state);
    const pool = new ShellPool(
      new WorkspaceRoot(rootFolder),
      () => state,
      () => environment,
    );
    const run = (command: string | undefined, more: Partial<BashRequest> = {}) => {
      calls += 1;
      return pool.run({
        conversation: "default",
        grantId: `call_test_${process.pid}_${calls}`,
        command,
        timeoutMs: 15_000,
        workdir: undefined,
        restart: false,
        budgetBytes: 32_768,
        signal: noAbort(),
        onProgress: () => undefined,
        ...more,
      });
    };
    return { rootFolder, state, run };
  };
}

/** True while a process runs; a zombie does not. */
export function isAlive(pid: number): boolean {
  return processStat(pid) !== undefined;
}
