import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { forAll } from "../testing/arbitrary-call.js";
import { RecentMap } from "./recent-map.js";

describe("RecentMap", () => {
  it("knows the last keys that were set, by their last value, and at most twice as many", () => {
    forAll(
      fc.property(fc.integer({ min: 1, max: 8 }), fc.array(fc.nat({ max: 20 }), { maxLength: 100 }), (keptMin, keys) => {
        const map = new RecentMap<number, number>(keptMin);
        const order = new Map<number, number>();
        for (const [at, key] of keys.entries()) {
          map.set(key, at);
          order.delete(key);
          order.set(key, at);
        }
        const recent = [...order].slice(-keptMin);
        for (const [key, at] of recent) {
          expect(map.get(key)).toBe(at);
        }
        const known = [...order].filter(([key]) => map.get(key) !== undefined);
        expect(known.length).toBeLessThanOrEqual(2 * keptMin);
        for (const [key, at] of known) {
          expect(map.get(key)).toBe(at);
        }
      }),
      500,
    );
  });
});
