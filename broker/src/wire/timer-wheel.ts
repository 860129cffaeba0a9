/**
 * One timer for all calls and sessions: tasks lie in buckets of {@link BUCKET_MS}, and a single timer of the clock
 * runs while there is any. A task runs at most one bucket late.
 *
 * Invariant (G3): after the loop stood still for over {@link STALL_MS}, whoever judges by silence is told first, and nothing
 * that came due meanwhile runs before the sockets were read.
 */
import type { Clock } from "../domain/ports/clock.js";

const BUCKET_MS = 20;
/** A timer this late shows that the event loop, or the whole process, stood still. */
export const STALL_MS = 1_000;
/** What came in meanwhile is read within this time. */
const READ_MS = 50;

export interface TimerTask {
  cancel(): void;
}

export interface TimerWheel {
  /** Runs `task` once, `delayMs` from now. */
  after(delayMs: number, task: () => void): TimerTask;
  /** Calls `listener` after each stall, with its length in milliseconds, before any task that is overdue. */
  onStall(listener: (stalledMs: number) => void): void;
  /** Monotonic time at which the last stall ended; undefined: there was none. */
  readonly stalledUntilMs: number | undefined;
  /** Forgets all tasks. */
  stop(): void;
}

/** `onError` is told what a task threw: all other tasks go on. */
export function createTimerWheel(clock: Clock, onError: (error: unknown) => void): TimerWheel {
  const buckets = new Map<number, Set<() => void>>();
  const stallListeners = new Set<(stalledMs: number) => void>();
  let running: { cancel(): void } | undefined;
  let expectedAt = 0;
  let stalledUntilMs: number | undefined;
  let nextBucket = 0;
  let stopped = false;

  function bucketOf(atMs: number): number {
    return Math.ceil(atMs / BUCKET_MS);
  }

  function arm(delayMs: number): void {
    if (running !== undefined || buckets.size === 0 || stopped) {
      return;
    }
    expectedAt = clock.monotonic() + delayMs;
    running = clock.schedule(delayMs, turn);
  }

  function attempt(task: () => void): void {
    try {
      task();
    } catch (error) {
      onError(error);
    }
  }

  function turn(): void {
    running = undefined;
    const now = clock.monotonic();
    const lateMs = now - expectedAt;
    if (lateMs > STALL_MS) {
      stalledUntilMs = now;
      for (const listener of stallListeners) {
        attempt(() => listener(lateMs));
      }
      arm(READ_MS);
      return;
    }
    const last = Math.floor(now / BUCKET_MS);
    // After a long stall few buckets hold tasks: walk those instead of every missed tick.
    const due =
      last - nextBucket > buckets.size
        ? [...buckets.keys()].filter((bucket) => bucket <= last).sort((a, b) => a - b)
        : span(nextBucket, last);
    nextBucket = last + 1;
    for (const bucket of due) {
      const tasks = buckets.get(bucket);
      if (tasks === undefined) {
        continue;
      }
      buckets.delete(bucket);
      for (const task of tasks) {
        attempt(task);
      }
    }
    arm(BUCKET_MS);
  }

  return {
    after(delayMs, task) {
      if (stopped) {
        return { cancel: () => undefined };
      }
      if (buckets.size === 0) {
        nextBucket = Math.floor(clock.monotonic() / BUCKET_MS);
      }
      const bucket = Math.max(nextBucket, bucketOf(clock.monotonic() + Math.max(0, delayMs)));
      const own = () => task();
      let tasks = buckets.get(bucket);
      if (tasks === undefined) {
        tasks = new Set();
        buckets.set(bucket, tasks);
      }
      tasks.add(own);
      arm(BUCKET_MS);
      return {
        cancel() {
          const held = buckets.get(bucket);
          held?.delete(own);
          if (held?.size === 0) {
            buckets.delete(bucket);
          }
        },
      };
    },
    onStall(listener) {
      stallListeners.add(listener);
    },
    get stalledUntilMs() {
      return stalledUntilMs;
    },
    stop() {
      stopped = true;
      running?.cancel();
      running = undefined;
      buckets.clear();
    },
  };
}

function span(from: number, to: number): number[] {
  const numbers: number[] = [];
  for (let bucket = from; bucket <= to; bucket += 1) {
    numbers.push(bucket);
  }
  return numbers;
}
