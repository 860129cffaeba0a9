/** Work on thousands of sessions that leaves the event loop to others in between. */
import type { Clock } from "../domain/ports/clock.js";

/** Items in one turn: a few milliseconds' worth of frames. */
const STEP = 128;

/** Does `job` for each of `items` as they are now, {@link STEP} in one turn of the event loop, the first ones at once. */
export async function inSteps<T>(clock: Pick<Clock, "schedule">, items: Iterable<T>, job: (item: T) => void): Promise<void> {
  let inTurn = 0;
  for (const item of [...items]) {
    if (inTurn === STEP) {
      inTurn = 0;
      await new Promise<void>((resolve) => clock.schedule(0, resolve));
    }
    inTurn += 1;
    job(item);
  }
}
