import { describe, expect, it } from "vitest";
import { longestStall } from "./stalls.js";

const stall = (settledAtMs: number[], waiting: [number, number][], unhealthy: [number, number][] = []): number =>
  longestStall({ settledAtMs, waiting, unhealthy });

describe("the longest stall", () => {
  it("is the longest time between settlements while calls wait", () => {
    expect(stall([10, 50, 60], [[0, 70]])).toBe(40);
    expect(stall([], [[0, 70]])).toBe(70);
    expect(stall([60, 10, 50], [[0, 100]])).toBe(40);
  });

  it("does not count time in which nobody waits", () => {
    expect(
      stall(
        [10, 500],
        [
          [0, 10],
          [490, 500],
        ],
      ),
    ).toBe(10);
    expect(stall([5], [])).toBe(0);
  });

  it("does not count time in which nothing could have settled, and begins anew after it", () => {
    expect(stall([10], [[0, 100]], [[20, 80]])).toBe(20);
    expect(stall([], [[0, 100]], [[0, 100]])).toBe(0);
    expect(
      stall(
        [],
        [[0, 100]],
        [
          [10, 30],
          [20, 40],
        ],
      ),
    ).toBe(60);
  });

  it("takes overlapping waits as one", () => {
    expect(
      stall(
        [50],
        [
          [0, 30],
          [20, 60],
          [60, 120],
        ],
      ),
    ).toBe(70);
  });
});
