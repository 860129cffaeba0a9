/** Waits that have an end. */
import type { TimerWheel } from "./timer-wheel.js";

/** Resolves to true when `work` settled, however it did, and to false after `withinMs`. The work itself goes on. */
export function settledWithin(timers: TimerWheel, work: Promise<unknown>, withinMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const late = timers.after(withinMs, () => resolve(false));
    const settled = (): void => {
      late.cancel();
      resolve(true);
    };
    work.then(settled, settled);
  });
}
