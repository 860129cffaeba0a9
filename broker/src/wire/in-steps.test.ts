import { describe, expect, it } from "vitest";
import { inSteps } from "./in-steps.js";
import { manualClock } from "./manual-clock.test.kit.js";

describe("work in steps", () => {
  it("does some at once and the others in later turns, each once and in order", async () => {
    const clock = manualClock();
    const items = new Set(Array.from({ length: 300 }, (_, index) => index));
    const done: number[] = [];
    const over = inSteps(clock, items, (item) => {
      done.push(item);
      items.delete(item);
    });
    const seen = [done.length];
    for (let turn = 0; turn < 3; turn += 1) {
      clock.advance(1);
      await Promise.resolve();
      seen.push(done.length);
    }
    await over;
    expect(seen).toEqual([128, 256, 300, 300]);
    expect(done).toEqual(Array.from({ length: 300 }, (_, index) => index));
  });

  it("is over at once when there is nothing to do", async () => {
    await inSteps(manualClock(), [], () => expect.unreachable());
  });
});
