import { describe, expect, it } from "vitest";
import { NewsFilter } from "./news-order.js";

describe("news of a grant", () => {
  it("is next only when nothing later was noted: sessions count before numbers (X6)", () => {
    const filter = new NewsFilter();
    const told = [
      [7, 1],
      [7, 3],
      [7, 2],
      [7, 3],
      [8, 1],
      [7, 9],
      [8, 2],
    ].filter(([sessionEpoch = 0, number = 0]) => filter.isNext("grant_1", { sessionEpoch, number }));
    expect(told).toEqual([
      [7, 1],
      [7, 3],
      [8, 1],
      [8, 2],
    ]);
  });

  it("begins anew with another grant: its runner counts for itself", () => {
    const filter = new NewsFilter();
    expect(filter.isNext("grant_1", { sessionEpoch: 9, number: 5 })).toBe(true);
    expect(filter.isNext("grant_2", { sessionEpoch: 2, number: 1 })).toBe(true);
    expect(filter.isNext("grant_2", { sessionEpoch: 2, number: 1 })).toBe(false);
  });
});
