import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { createTurnQueue } from "./turn-queue.js";

describe("the queue of turns", () => {
  it("begins what comes alone at once", () => {
    const queue = createTurnQueue(2);
    let begun = 0;
    queue.add(() => {
      begun += 1;
    });
    expect(begun).toBe(1);
    expect(queue.waiting).toBe(0);
  });

  it("begins so many of a crowd in each turn, in order", async () => {
    const queue = createTurnQueue(3);
    const begun: number[] = [];
    for (let job = 0; job < 10; job += 1) queue.add(() => begun.push(job));
    const seen = [begun.length];
    while (begun.length < 10) {
      await nextTurn();
      seen.push(begun.length);
    }
    expect(seen).toEqual([3, 6, 9, 10]);
    expect(begun).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it("lets nobody overtake who waits, and jobs add jobs", async () => {
    const queue = createTurnQueue(1);
    const begun: string[] = [];
    queue.add(() => begun.push("a"));
    queue.add(() => {
      begun.push("b");
      queue.add(() => begun.push("d"));
    });
    queue.add(() => begun.push("c"));
    for (let turn = 0; turn < 6; turn += 1) await nextTurn();
    expect(begun).toEqual(["a", "b", "c", "d"]);
    queue.add(() => begun.push("e"));
    expect(begun.at(-1)).toBe("e");
  });
});
