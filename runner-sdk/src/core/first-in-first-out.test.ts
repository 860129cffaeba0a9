import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FirstInFirstOut } from "./first-in-first-out.js";

describe("things in the order in which they came", () => {
  it("are as a plain list of them would be, whatever is added and taken out, and twice", () => {
    const step = fc.oneof(fc.constant("add" as const), fc.constant("oldest" as const), fc.nat({ max: 60 }));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const queue = new FirstInFirstOut<string>();
        const numbers: number[] = [];
        let expected: string[] = [];
        for (const [index, one] of steps.entries()) {
          if (one === "add") {
            numbers.push(queue.add(`item ${numbers.length}`));
            expected.push(`item ${numbers.length - 1}`);
          } else {
            const at = one === "oldest" ? numbers.findIndex((_, item) => `item ${item}` === expected[0]) : one % (numbers.length + 1);
            const number = numbers[at];
            if (number === undefined) continue;
            queue.remove(number);
            expected = expected.filter((item) => item !== `item ${at}`);
          }
          expect([queue.size, queue.oldest], `after step ${index}`).toEqual([expected.length, expected[0]]);
        }
      }),
    );
  });

  it("hold no room for those that are gone", () => {
    const queue = new FirstInFirstOut<{ readonly weight: Uint8Array }>();
    const numbers = Array.from({ length: 1_000 }, () => queue.add({ weight: new Uint8Array(8) }));
    for (const number of numbers) queue.remove(number);
    expect(queue.oldest).toBeUndefined();
    expect(queue.size).toBe(0);
    const next = { weight: new Uint8Array(1) };
    const number = queue.add(next);
    for (const gone of numbers) queue.remove(gone);
    expect(queue.oldest).toBe(next);
    queue.remove(number);
    expect(queue.size).toBe(0);
  });
});
