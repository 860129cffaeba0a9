import { describe, expect, it } from "vitest";
import { scaleFiguresOf } from "./figures.test.kit.js";
import { scaleReport, scaleVerdicts } from "./scale-report.js";

describe("the report of the measurements at scale", () => {
  it("shows sessions beside bare connections, contrasts with their ratios, and counts the aims that hold", () => {
    const text = scaleReport(scaleFiguresOf({ growth: 1.5 }));
    expect(text).toMatch(/sqlite +product +10,000 +20\.0 +4\.00 +5\.00 +12\.0 \(40\.0\)/);
    expect(text).toMatch(/bare ws +10,000 +10\.0 /);
    expect(text).toMatch(/10,000 sessions +0\.900 +7\.00 .* 1,234 +none/);
    expect(text).toMatch(/ratio +1\.00 +1\.50 +1\.00 +1\.50 ✗/);
    expect(text).toContain("6 of 8 aims hold.");
  });

  it("judges memory over the bare server's, stalls by what was computed, and a restart by failed calls, too", () => {
    const holds = (figures: Parameters<typeof scaleFiguresOf>[0]): readonly boolean[] =>
      scaleVerdicts(scaleFiguresOf(figures)).map((verdict) => verdict.holds);
    expect(holds({})).toEqual(Array.from({ length: 8 }, () => true));
    expect(holds({ sessionBytes: 10_240 + 20 * 1_024 + 1 })[0]).toBe(false);
    expect(holds({ failure: "no runner" })[3]).toBe(false);
  });
});
