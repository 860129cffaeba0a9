/** Commands run within the test's own process: the same code with other streams, many times as fast. For commands that ask and end. */
import { runCli } from "../run-cli.js";
import type { Ended, Place } from "./toolrunner-process.js";

/** Runs a command to its end. */
export async function runInProcess(args: readonly string[], { cwd, env = {}, stdin = "" }: Place): Promise<Ended> {
  const text = { stdout: "", stderr: "" };
  const exitCode = await runCli(args, {
    out: (chunk) => {
      text.stdout += chunk;
    },
    err: (chunk) => {
      text.stderr += chunk;
    },
    readStdin: async () => stdin,
    env,
    cwd,
    onStopSignal: () => () => undefined,
  });
  return { exitCode, ...text };
}
