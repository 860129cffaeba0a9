import { describe, expect, it } from "vitest";
import { cellOf, samplesOf } from "./cells.test.kit.js";
import { compare, MEASURES, meets } from "./figures.js";

const named = (name: string, comparisons: ReturnType<typeof compare>) => comparisons.find(({ measure }) => measure.name === name);

describe("an aim", () => {
  it("holds at its very edge and not beyond it", () => {
    expect(meets(1.5, { atMost: 1.5 })).toBe(true);
    expect(meets(1.5001, { atMost: 1.5 })).toBe(false);
    expect(meets(0.7, { atLeast: 0.7 })).toBe(true);
    expect(meets(0.6999, { atLeast: 0.7 })).toBe(false);
  });

  it("does not hold for a ratio that is no number", () => {
    expect(meets(Number.NaN, { atMost: 1.5 })).toBe(false);
    expect(meets(Number.NaN, { atLeast: 0.7 })).toBe(false);
  });
});

describe("a comparison", () => {
  it("takes the ratio of each round, so that a slow round of both sides changes nothing", () => {
    const cell = cellOf([{ p50Ms: 1.2 }, { p50Ms: 12 }, { p50Ms: 1.2 }], [{ p50Ms: 1 }, { p50Ms: 10 }, { p50Ms: 1 }]);
    const found = named("p50 ms", compare(cell));
    expect(found?.ratio).toBeCloseTo(1.2);
    expect(found?.holds).toBe(true);
    expect(found).toMatchObject({ product: 1.2, floor: 1 });
  });

  it("takes medians: one round in which only one side was disturbed does not decide", () => {
    const cell = cellOf([{ p99Ms: 2 }, { p99Ms: 90 }, { p99Ms: 2 }], [{ p99Ms: 2 }, { p99Ms: 2 }, { p99Ms: 2 }]);
    expect(named("p99 ms", compare(cell))).toMatchObject({ product: 2, ratio: 1, holds: true });
  });

  it("wants latency and processor time low, and throughput high", () => {
    const slow = { p50Ms: 1.6, p99Ms: 4.1, callsPerSecond: 690, brokerCpuMsPerCall: 0.16 };
    const comparisons = compare(cellOf([slow], [{}]));
    expect(comparisons.filter(({ holds }) => holds === false).map(({ measure }) => measure.name)).toEqual(
      MEASURES.filter(({ aim }) => aim !== undefined).map(({ name }) => name),
    );
    const fast = { p50Ms: 1.5, p99Ms: 4, callsPerSecond: 700, brokerCpuMsPerCall: 0.15 };
    expect(compare(cellOf([fast], [{}])).every(({ holds }) => holds !== false)).toBe(true);
  });

  it("judges latency one at a time, throughput and processor time at 64 and 256 in flight, and nothing else", () => {
    expect(
      compare(cellOf([{}], [{}]))
        .filter(({ holds }) => holds !== undefined)
        .map(({ measure }) => `${measure.field} ${measure.inFlight}`),
    ).toEqual(["p50Ms 1", "p99Ms 1", "callsPerSecond 64", "callsPerSecond 256", "brokerCpuMsPerCall 64", "brokerCpuMsPerCall 256"]);
  });

  it("reads each load's own samples", () => {
    const base = cellOf([{}], [{}]);
    const cell = { ...base, product: { ...base.product, 256: samplesOf([{ callsPerSecond: 1 }])[256] } };
    expect(named("calls/s 64", compare(cell))?.ratio).toBe(1);
    expect(named("calls/s 256", compare(cell))?.ratio).toBe(0.001);
  });

  it("of sides with different numbers of rounds is an error", () => {
    expect(() => compare(cellOf([{}, {}], [{}]))).toThrow(RangeError);
  });
});
