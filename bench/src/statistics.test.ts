import { describe, expect, it } from "vitest";
import { median, percentile } from "./statistics.js";

describe("the median", () => {
  it("is the middle value of an odd number, in whatever order they come", () => {
    expect(median([9, 1, 5])).toBe(5);
    expect(median([7])).toBe(7);
  });

  it("is the mean of the two in the middle of an even number", () => {
    expect(median([10, 1, 2, 4])).toBe(3);
  });

  it("orders numbers by size, not as text, and leaves its argument as it is", () => {
    const values = [100, 20, 3];
    expect(median(values)).toBe(20);
    expect(values).toEqual([100, 20, 3]);
  });

  it("of nothing is an error", () => {
    expect(() => median([])).toThrow(RangeError);
  });
});

describe("a percentile", () => {
  const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);

  it("is the smallest value that the share of all does not exceed", () => {
    expect(percentile(hundred, 0.5)).toBe(50);
    expect(percentile(hundred, 0.99)).toBe(99);
    expect(percentile(hundred, 0.991)).toBe(100);
    expect(percentile(hundred, 1)).toBe(100);
  });

  it("of one value is that value, whatever the share", () => {
    expect(percentile([3], 0.01)).toBe(3);
    expect(percentile(Float64Array.of(3), 0.99)).toBe(3);
  });

  it("of nothing, or for a share that is none, is an error", () => {
    expect(() => percentile([], 0.5)).toThrow(RangeError);
    for (const share of [0, -0.1, 1.01, Number.NaN]) expect(() => percentile([1], share)).toThrow(RangeError);
  });
});
