/**
 * When and how long a request is repeated.
 *
 * A request is repeated with jittered, growing pauses while the broker cannot be reached, drains, or asks for patience; one
 * that must not be carried out twice only when the broker said that it was not carried out. Pauses end with the signal.
 */

import { abortedError, ToolRunnerError } from "./errors.js";

/** Time and chance, for tests. */
export interface RetryTime {
  /** Monotonic milliseconds. */
  now(): number;
  /** In [0, 1). */
  random(): number;
  /** Resolves after `delayMs`, or rejects with `aborted` as soon as the signal does. */
  pause(delayMs: number, signal: AbortSignal | undefined): Promise<void>;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** The real time. */
export const REAL_TIME: RetryTime = {
  now: () => performance.now(),
  random: () => Math.random(),
  pause: (delayMs, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(abortedError(signal));
        return;
      }
      const onAbort = (): void => {
        clearTimeout(timer);
        if (signal !== undefined) reject(abortedError(signal));
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      }, delayMs);
      signal?.addEventListener("abort", onAbort, { once: true });
    }),
};

/** Failures in a row. */
export interface Patience {
  /** Pauses before the next attempt, or throws `error` when it is not worth one or the time is up. */
  afterFailure(error: unknown, repeatable: boolean): Promise<void>;
  /** Pauses, a little longer each time: for answers that came too soon to be of use. */
  afterNothing(): Promise<void>;
  /** The row is broken. */
  succeeded(): void;
}

/** Makes the patience for one request: `retryForMs` counts from the first failure after the last success. */
export function createPatience(time: RetryTime, retryForMs: number, signal: AbortSignal | undefined): Patience {
  let failures = 0;
  let since: number | undefined;

  function nextPause(): number {
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures);
    failures += 1;
    return longest * (0.5 + time.random() / 2);
  }

  return {
    async afterFailure(error, repeatable) {
      if (!(error instanceof ToolRunnerError) || !mayRepeat(error, repeatable)) throw error;
      since ??= time.now();
      const asked = (error.retryAfterSeconds ?? 0) * 1_000;
      const pause = nextPause() + asked;
      if (time.now() + pause - since > retryForMs) throw error;
      await time.pause(pause, signal);
    },
    async afterNothing() {
      await time.pause(nextPause(), signal);
    },
    succeeded() {
      failures = 0;
      since = undefined;
    },
  };
}

function mayRepeat(error: ToolRunnerError, repeatable: boolean): boolean {
  if (error.status === 429) return true;
  return repeatable && (error.code === "unreachable" || error.status === 503);
}
