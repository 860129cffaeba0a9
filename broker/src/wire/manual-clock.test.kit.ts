/** Time for tests of what runs on timers. */
import type { Clock } from "../domain/ports/clock.js";

/** A clock that the test moves; it counts how many of its timers are armed. */
export function manualClock(): Clock & { advance(ms: number): void; jump(ms: number): void; readonly armed: number } {
  let nowMs = 1_000;
  const timers = new Set<{ atMs: number; task: () => void }>();
  function fire(): void {
    for (const timer of [...timers].sort((a, b) => a.atMs - b.atMs)) {
      if (timer.atMs <= nowMs && timers.delete(timer)) {
        timer.task();
      }
    }
  }
  return {
    now: () => nowMs,
    monotonic: () => nowMs,
    schedule(delayMs, task) {
      const timer = { atMs: nowMs + delayMs, task };
      timers.add(timer);
      return { cancel: () => void timers.delete(timer) };
    },
    advance(ms) {
      for (let step = 0; step < ms; step += 1) {
        nowMs += 1;
        fire();
      }
    },
    jump(ms) {
      nowMs += ms;
      fire();
    },
    get armed() {
      return timers.size;
    },
  };
}
