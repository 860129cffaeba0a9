import { describe, expect, it } from "vitest";
import { seededRandom } from "./seeded-random.js";
import { chartOf, trendOf } from "./trend.js";

const within = { share: 0.1, more: 4 };
const random = seededRandom(1, "trend");
/** Samples of a process that collects its garbage now and then. */
const sawtooth = (perSample: number): number[] =>
  Array.from({ length: 100 }, (_, index) => 120 + (index % 7) * 3 + random.next() * 5 + index * perSample);

describe("a trend", () => {
  it("is flat for a sawtooth, and for one peak", () => {
    expect(trendOf(sawtooth(0), within).isFlat).toBe(true);
    expect(trendOf([...sawtooth(0), 900], within).isFlat).toBe(true);
  });

  it("is flat for what grows in its warm-up only", () => {
    const samples = [...Array.from({ length: 40 }, (_, index) => 50 + 2 * index), ...Array.from({ length: 60 }, () => 130)];
    expect(trendOf(samples, within)).toEqual({ growth: 0, level: 130, isFlat: true });
  });

  it("is not flat for what grows all the time, under its sawtooth, too", () => {
    const { growth, isFlat } = trendOf(sawtooth(0.5), within);
    expect(isFlat).toBe(false);
    expect(growth).toBeGreaterThan(25);
    expect(trendOf([20, 20, 20, 21, 22, 23, 25, 26, 27, 28], { share: 0, more: 4 }).isFlat).toBe(false);
  });

  it("is refused for too few samples", () => {
    expect(() => trendOf([1, 2, 3], within)).toThrow(/3 samples are too few/);
  });
});

describe("a chart", () => {
  it("shows the curve from its lowest to its highest point", () => {
    expect(chartOf([0, 1, 2, 3, 4, 5, 6, 7])).toBe("▁▂▃▄▅▆▇█");
    expect(chartOf([5, 5, 5])).toBe("▁▁▁");
    expect(chartOf(Array.from({ length: 240 }, (_, index) => index)).length).toBe(60);
  });
});
