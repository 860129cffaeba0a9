/**
 * The runner behind `toolrunner run`: from a module's tools to a runner that serves until it is stopped.
 *
 * Invariant: it redials for ever while no broker answers; it ends by itself only when its journal cannot be taken or the broker refuses it for good.
 */
import { hostname } from "node:os";
import { createRunner, type HandlerDeclaration, type Runner, RunnerConfigError, type RunnerState, type Tool } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket } from "@toolrunner/runner-sdk/node";
import type { RunnerAddress } from "../connect/address.js";
import { resolveRunner } from "../connect/connection.js";
import { bindingOfFile, checkedId } from "../connect/ids.js";
import { CliError, EXIT, type ExitCode, messageOf, startError } from "../errors.js";
import { type CliIo, oneLine, printJson } from "../io.js";
import { loadTools } from "../load/load-tools.js";
import { runnerLog } from "./logs.js";
import { readyFileOf } from "./ready-file.js";
import type { RunOptions } from "./run-options.js";
import { journalOf } from "./runner-journal.js";
import { type Served, serveUntilStopped } from "./serve.js";

/** Serves the tools of a module until it is stopped, and returns the exit code. */
export async function serveTools(file: string, options: RunOptions, io: CliIo): Promise<ExitCode> {
  const say = (line: string): void => {
    if (!options.json) io.out(`${oneLine(line)}\n`);
  };
  return serveUntilStopped(() => startServing(file, options, io, say), options.drainSeconds * 1000, io, say);
}

async function startServing(file: string, options: RunOptions, io: CliIo, say: (line: string) => void): Promise<Served> {
  const binding = options.binding === undefined ? bindingOfFile(file) : checkedId(options.binding, "--binding");
  const runnerId = options.runnerId === undefined ? undefined : checkedId(options.runnerId, "--runner-id");
  const { address, token } = await resolveRunner(options, io);
  const tools = await loadTools(file, io.cwd);
  const runner = make(file, {
    transport: transportOf(address),
    binding,
    token,
    tools: tools as readonly Tool[],
    journal: journalOf(options.journal, binding, io.cwd),
    concurrency: options.concurrency,
    labels: { host: hostname().slice(0, 200), pid: String(process.pid) },
    log: runnerLog(options.logLevel, io),
    ...(options.subject === undefined ? {} : { subject: options.subject }),
    ...(runnerId === undefined ? {} : { runnerId }),
  });
  say(`${binding}: ${runner.handlers.map(({ tool, version }) => `${tool}@${version}`).join(", ")}`);
  const showReady = options.readyFile === undefined ? undefined : await readyFileOf(options.readyFile, io.cwd);
  if (showReady !== undefined) runner.onState((state) => showReady(state.kind === "ready" && state.fault === null));
  return serving(runner, address, options, io, say);
}

/** Faults of tools and options are the module's to correct; they name the tool. */
function make(file: string, options: Parameters<typeof createRunner>[0]): Runner {
  try {
    return createRunner(options);
  } catch (cause) {
    const code = cause instanceof RunnerConfigError ? cause.code : "module_invalid";
    throw startError(code, `${file}: ${messageOf(cause)}`, cause);
  }
}

function transportOf({ transport, url }: RunnerAddress): ReturnType<typeof connectGrpc> {
  return transport === "grpc" ? connectGrpc(url) : connectWebSocket(url);
}

function serving(runner: Runner, address: RunnerAddress, options: RunOptions, io: CliIo, say: (line: string) => void): Served {
  let wasReady = false;
  let shown = "";
  runner.onState((state) => {
    if (state.kind === "ready" && !wasReady) {
      wasReady = true;
      if (options.json) printJson(io, { event: "ready", runner_id: runner.runnerId, handlers: runner.handlers.map(declaration) });
    }
    const line = describe(state, runner.runnerId, address.url);
    if (line !== undefined && line !== shown) say(line);
    shown = line ?? shown;
  });
  const started = runner.start().then(
    () => undefined,
    (cause: unknown) => cause,
  );
  return {
    ended: ended(runner, started),
    stop: async (drainMs) => {
      // One that never got through holds nothing that could finish.
      if (!wasReady) return runner.stop();
      await withinMs(drainMs, runner.drain({ deadlineMs: drainMs }));
      await withinMs(STOP_MS, runner.stop());
    },
  };
}

/** What is left for handlers to be journaled after a drain that used all its time. */
const STOP_MS = 1_500;

async function withinMs(limitMs: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const passed = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs);
  });
  try {
    await Promise.race([work, passed]);
  } finally {
    clearTimeout(timer);
  }
}

/** A runner ends by itself when its journal cannot be taken or when the broker refuses it for good. */
async function ended(runner: Runner, started: Promise<unknown>): Promise<{ message: string; exitCode: ExitCode }> {
  const state = await runner.closed;
  if (state.kind === "refused") {
    const superseded = state.code === "superseded";
    throw new CliError(
      state.code,
      superseded ? EXIT.failed : EXIT.refused,
      superseded
        ? `another process took over the runner id ${runner.runnerId}: give each its own --runner-id`
        : `the broker refused this runner (${state.code}): ${state.message}`,
    );
  }
  const cause = await started;
  if (cause !== undefined) throw startError(codeOf(cause), messageOf(cause), cause);
  return { message: "the runner stopped by itself", exitCode: EXIT.failed };
}

function codeOf(cause: unknown): string {
  return cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "start_failed";
}

function declaration({ tool, version, idempotent, cancellable }: HandlerDeclaration): object {
  return { tool, version, idempotent, cancellable };
}

function describe(state: RunnerState, runnerId: string, url: string): string | undefined {
  switch (state.kind) {
    case "ready":
      return state.fault === null ? `ready: ${runnerId} at ${url}` : `connected, but takes no calls: ${state.fault.message}`;
    case "retrying":
      return `not connected to ${url} (${state.reason}); trying again`;
    case "draining":
    case "connecting":
    case "refused":
    case "stopped":
      return undefined;
  }
}
