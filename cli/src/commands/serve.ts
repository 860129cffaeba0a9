/**
 * From "ready" to the exit code, for commands that stay: `dev`, `broker` and `run`.
 *
 * Invariants: the first SIGTERM or SIGINT drains and means exit 0; a second one, or a drain that ran out of time, means exit 1 at once;
 * something that ends by itself means exit 1.
 */
import { EXIT, type ExitCode } from "../errors.js";
import type { CliIo } from "../io.js";

/** Something that runs until it is stopped. */
export interface Served {
  /** Lets what runs finish, for at most `drainMs`, then ends. */
  stop(drainMs: number): Promise<void>;
  /** Rejects with a `CliError`, or resolves with a line for people and an exit code, when it ended without being asked to. */
  readonly ended: Promise<{ readonly message: string; readonly exitCode: ExitCode }>;
}

/** Longest drain when no other is given, in milliseconds. */
export const DRAIN_MS_DEFAULT = 30_000;

/**
 * Starts something, then waits for its end, or for signals and drains it. Returns the exit code.
 * Signals count from the first moment: one that comes during the start ends what was started, a second one does not wait for it.
 */
export async function serveUntilStopped(
  starting: () => Promise<Served>,
  drainMs: number,
  io: CliIo,
  say: (line: string) => void,
): Promise<ExitCode> {
  const signals = listen(io);
  try {
    const served = await Promise.race([starting(), signals.second]);
    if (served === "second") return EXIT.failed;
    const first = await Promise.race([signals.first, served.ended]);
    if (first !== "first") {
      say(first.message);
      return first.exitCode;
    }
    say(`draining for at most ${drainMs / 1000} s; another signal ends at once`);
    const begun = performance.now();
    const overrun = timeout(drainMs + OVERRUN_GRACE_MS);
    try {
      const stopped = served.stop(drainMs).then(() => "stopped" as const);
      const next = await Promise.race([stopped, signals.second, overrun.passed]);
      if (next === "second") return EXIT.failed;
      if (next === "passed" || performance.now() - begun >= drainMs) {
        say(`the drain ran out of its ${drainMs / 1000} s`);
        return EXIT.failed;
      }
      return EXIT.done;
    } finally {
      overrun.cancel();
    }
  } finally {
    signals.end();
  }
}

/** What is left for closing sockets and files after a drain that used all its time. */
const OVERRUN_GRACE_MS = 2_000;

/** The first two SIGTERM or SIGINT. */
interface StopSignals {
  readonly first: Promise<"first">;
  readonly second: Promise<"second">;
}

function listen(io: CliIo): StopSignals & { end(): void } {
  let count = 0;
  let resolveFirst: () => void = () => undefined;
  let resolveSecond: () => void = () => undefined;
  const first = new Promise<"first">((resolve) => {
    resolveFirst = () => resolve("first");
  });
  const second = new Promise<"second">((resolve) => {
    resolveSecond = () => resolve("second");
  });
  const end = io.onStopSignal(() => {
    count += 1;
    if (count === 1) resolveFirst();
    else resolveSecond();
  });
  return { first, second, end };
}

function timeout(afterMs: number): { readonly passed: Promise<"passed">; cancel(): void } {
  let timer: NodeJS.Timeout | undefined;
  const passed = new Promise<"passed">((resolve) => {
    timer = setTimeout(() => resolve("passed"), afterMs);
  });
  return { passed, cancel: () => clearTimeout(timer) };
}
