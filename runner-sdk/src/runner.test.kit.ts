/** For this package's tests: runners that a fake broker has welcomed. */

import type { Welcome } from "@toolrunner/proto";
import { createRunner, defineTool, type LogFields, type Runner, type RunnerOptions, type Tool, type ToolOptions } from "./index.js";
import { createFakeBroker, type FakeBroker, type FakeSession } from "./testing.js";

export interface LoggedEvent {
  readonly event: string;
  readonly fields: LogFields;
}

export interface Served {
  readonly runner: Runner;
  readonly broker: FakeBroker;
  readonly session: FakeSession;
  readonly events: readonly LoggedEvent[];
}

const running: Runner[] = [];

/** For `afterEach`: stops every runner that the test made. */
export async function stopRunners(): Promise<void> {
  await Promise.all(running.splice(0).map((runner) => runner.stop()));
}

/** Has {@link stopRunners} stop it. */
export function stopAfterTest(runner: Runner): Runner {
  running.push(runner);
  return runner;
}

/** Makes a runner for a fake broker, not yet started. */
export function makeRunner(options: Partial<RunnerOptions> & { readonly tools: readonly Tool[] }, broker = createFakeBroker()) {
  const events: LoggedEvent[] = [];
  const runner = createRunner({
    transport: broker.transport,
    binding: "shop",
    // No jitter: the delay is the full one.
    random: () => 0,
    stopGraceMs: 50,
    log: (event, fields) => events.push({ event, fields }),
    ...options,
  });
  return { runner: stopAfterTest(runner), broker, events };
}

/** A runner that is started and welcomed. */
export async function serve(
  options: Partial<RunnerOptions> & { readonly tools: readonly Tool[] },
  welcome: Partial<Welcome> = {},
  broker = createFakeBroker(),
): Promise<Served> {
  const made = makeRunner(options, broker);
  const started = made.runner.start();
  const session = await broker.nextSession();
  await session.welcome(welcome);
  await started;
  return { ...made, session };
}

/** A tool called `work` with this handler. */
export function work(run: ToolOptions["run"], more: Partial<ToolOptions> = {}): Tool {
  return defineTool({ name: "work", description: "Work.", ...more, run });
}

/** A promise and the functions that settle it. */
export function deferred<T = void>() {
  let resolve: (value: T) => void = () => {};
  let reject: (error: unknown) => void = () => {};
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

/** Polls until `check` answers with something, for at most 5 s. */
export async function until<T>(what: string, check: () => T | undefined | null | false): Promise<T> {
  const end = performance.now() + 5_000;
  for (;;) {
    const found = check();
    if (found !== undefined && found !== null && found !== false) return found;
    if (performance.now() > end) throw new Error(`not within 5 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Rejects when the signal aborts, as a handler that heeds it does. */
export function abortOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener("abort", () => reject(signal.reason));
  });
}
