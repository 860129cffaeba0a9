/**
 * One timer for all calls and sessions: tasks lie in buckets of {@link BUCKET_MS}, and a single timer of the clock
 * runs while there is any. A task runs at most one bucket late.
 */
import type { Clock } from "../domain/ports/clock.js";

const BUCKET_MS = 20;

export interface TimerTask {
  cancel(): void;
}

export interface TimerWheel {
  /** Runs `task` once, `delayMs` from now. */
  after(delayMs: number, task: () => void): TimerTask;
  /** Forgets all tasks. */
  stop(): void;
}

/** `onError` is told what a task threw: all other tasks go on. */
export function createTimerWheel(clock: Clock, onError: (error: unknown) => void): TimerWheel {
  const buckets = new Map<number, Set<() => void>>();
  let running: { cancel(): void } | undefined;
  let nextBucket = 0;
  let stopped = false;

  function bucketOf(atMs: number): number {
    return Math.ceil(atMs / BUCKET_MS);
  }

  function arm(): void {
    if (running !== undefined || buckets.size === 0 || stopped) {
      return;
    }
    running = clock.schedule(BUCKET_MS, turn);
  }

  function turn(): void {
    running = undefined;
    const last = Math.floor(clock.monotonic() / BUCKET_MS);
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
        try {
          task();
        } catch (error) {
          onError(error);
        }
      }
    }
    arm();
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
      arm();
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
