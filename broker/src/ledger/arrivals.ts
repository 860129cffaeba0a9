/**
 * Wakes readers at the end of a ledger when something was appended behind them.
 *
 * Invariants:
 * - `latest` never falls.
 * - A waiter is woken exactly once, and is forgotten then, so that an aborted tail leaves nothing behind.
 */
import type { Version } from "../domain/ports/ledger.js";

interface Waiter {
  readonly wake: () => void;
  readonly fail: (error: Error) => void;
}

/** Runs `task` once after `delayMs`. */
export type Schedule = (delayMs: number, task: () => void) => { cancel(): void };

/** By the process's own timers; does not keep it alive. */
export const scheduleUnref: Schedule = (delayMs, task) => {
  const timer = setTimeout(task, delayMs).unref();
  return { cancel: () => clearTimeout(timer) };
};

/** The newest version of a ledger, and who waits for a newer one. */
export class Arrivals {
  #latest: Version;
  /** Up to here nobody lets entries gather. */
  #urgent: Version = 0;
  readonly #gathering = new Set<() => void>();
  #failure: Error | undefined;
  readonly #waiters = new Set<Waiter>();

  constructor(latest: Version) {
    this.#latest = latest;
  }

  get latest(): Version {
    return this.#latest;
  }

  /** Notes that `version` is stored and wakes all who wait. */
  announce(version: Version): void {
    if (version <= this.#latest) return;
    this.#latest = version;
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const waiter of waiters) waiter.wake();
  }

  /** Resolves when a version of at least `version` is stored, or when `signal` aborts. Rejects after {@link fail}. */
  reached(version: Version, signal: AbortSignal): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#latest >= version || signal.aborted) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        wake: () => {
          signal.removeEventListener("abort", aborted);
          resolve();
        },
        fail: (error) => {
          signal.removeEventListener("abort", aborted);
          reject(error);
        },
      };
      const aborted = (): void => {
        this.#waiters.delete(waiter);
        resolve();
      };
      signal.addEventListener("abort", aborted, { once: true });
      this.#waiters.add(waiter);
    });
  }

  /** Entries up to `version` are wanted now. */
  hurry(version: Version): void {
    this.announce(version);
    this.#urgent = Math.max(this.#urgent, version);
    for (const go of [...this.#gathering]) go();
  }

  /** Lets what follows `next` gather for `delayMs`, or less when somebody wants it, or `signal` aborts. */
  gathered(next: Version, delayMs: number, signal: AbortSignal, schedule: Schedule): Promise<void> {
    if (next <= this.#urgent || signal.aborted || this.#failure !== undefined) return Promise.resolve();
    return new Promise((resolve) => {
      const go = (): void => {
        this.#gathering.delete(go);
        timer.cancel();
        signal.removeEventListener("abort", go);
        resolve();
      };
      const timer = schedule(delayMs, go);
      signal.addEventListener("abort", go, { once: true });
      this.#gathering.add(go);
    });
  }

  /** Makes present and later waits reject with `error`: the ledger is closed. */
  fail(error: Error): void {
    this.#failure = error;
    for (const go of [...this.#gathering]) go();
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const waiter of waiters) waiter.fail(error);
  }
}
