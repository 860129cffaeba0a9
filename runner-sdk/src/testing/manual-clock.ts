/** A clock that stands still until a test moves it. */
import type { Clock } from "../core/clock.js";

/** Time by hand. */
export interface ManualClock extends Clock {
  /** Moves both clocks on and runs what falls due, in order. */
  advance(ms: number): void;
  /** Moves the wall clock alone, as a set clock or a sleep does. */
  jumpWall(ms: number): void;
  /** Moves both clocks without running timers, as an event loop that stands still does. */
  stall(ms: number): void;
  /** Runs what is due already. */
  runDue(): void;
}

/** Starts at wall time 1,700,000,000,000 and monotonic time 0. */
export function createManualClock(): ManualClock {
  let monotonic = 0;
  let wall = 1_700_000_000_000;
  const timers = new Set<{ readonly dueMs: number; readonly task: () => void }>();
  const earliest = () => [...timers].sort((a, b) => a.dueMs - b.dueMs)[0];
  const clock: ManualClock = {
    now: () => wall,
    monotonic: () => monotonic,
    schedule(delayMs, task) {
      const timer = { dueMs: monotonic + Math.max(0, delayMs), task };
      timers.add(timer);
      return { cancel: () => void timers.delete(timer) };
    },
    advance(ms) {
      const end = monotonic + ms;
      for (let next = earliest(); next !== undefined && next.dueMs <= end; next = earliest()) {
        const step = Math.max(0, next.dueMs - monotonic);
        monotonic += step;
        wall += step;
        timers.delete(next);
        next.task();
      }
      wall += end - monotonic;
      monotonic = end;
    },
    jumpWall: (ms) => {
      wall += ms;
    },
    stall: (ms) => {
      monotonic += ms;
      wall += ms;
    },
    runDue: () => clock.advance(0),
  };
  return clock;
}
