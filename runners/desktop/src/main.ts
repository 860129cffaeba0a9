/**
 * Runs a desktop runner until it is told to stop: `node dist/main.js`.
 *
 * Reads TOOLRUNNER_RUNNER_URL, TOOLRUNNER_RUNNER_TOKEN, TOOLRUNNER_SUBJECT, TOOLRUNNER_BINDING (`desktop`),
 * TOOLRUNNER_WORKSPACE_ROOT (the current folder) and TOOLRUNNER_JOURNAL (`./.toolrunner/desktop-journal`).
 * SIGTERM and SIGINT drain for 30 s, then exit with 0; a second one, or a drain that ran out of time, exits with 1.
 */
import { fileJournal } from "@toolrunner/runner-sdk/node";
import { startDesktopRunner } from "./desktop-runner.js";

const DRAIN_MS = 30_000;

function setting(name: string, fallback?: string): string {
  const value = process.env[name];
  if (value !== undefined && value !== "") return value;
  if (fallback === undefined) throw new Error(`Set ${name}.`);
  return fallback;
}

async function main(): Promise<void> {
  const runner = await startDesktopRunner({
    broker: setting("TOOLRUNNER_RUNNER_URL"),
    token: setting("TOOLRUNNER_RUNNER_TOKEN", ""),
    subject: setting("TOOLRUNNER_SUBJECT"),
    binding: setting("TOOLRUNNER_BINDING", "desktop"),
    workspace: { root: setting("TOOLRUNNER_WORKSPACE_ROOT", process.cwd()) },
    journal: fileJournal(setting("TOOLRUNNER_JOURNAL", "./.toolrunner/desktop-journal")),
  });
  process.stdout.write(`${JSON.stringify({ event: "ready", runner_id: runner.runnerId })}\n`);
  let isStopping = false;
  const stop = (): void => {
    // Exiting ends what commands left running.
    if (isStopping) process.exit(1);
    isStopping = true;
    setTimeout(() => process.exit(1), DRAIN_MS).unref();
    void runner.drain({ deadlineMs: DRAIN_MS });
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  const end = await runner.closed;
  if (end.kind === "refused") throw new Error(`The broker refused this runner: ${end.message}`);
  process.exit(0);
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
});
