import { describe, expect, it } from "vitest";
import { cellOf } from "./cells.test.kit.js";
import { report, reportJson } from "./report.js";

describe("the report", () => {
  it("shows product, floor and ratio of each cell with a verdict, and counts the aims that hold", () => {
    const text = report([
      cellOf([{ p50Ms: 3 }], [{ p50Ms: 1 }], { productWritesPerCall: 2.04 }),
      cellOf([{}], [{}], { ledger: "jetstream", runner: "grpc", agent: "http" }),
    ]);
    const lines = text.split("\n");
    expect(lines.find((line) => /^sqlite +websocket +grpc +product/.test(line))).toMatch(/ 3\.00 .* 2\.04$/);
    expect(lines.filter((line) => line.includes(" ratio "))[0]).toMatch(/3\.00 ✗ +1\.00 ✓ +1\.00 /);
    expect(lines.filter((line) => /^jetstream +grpc +http +product/.test(line))).toHaveLength(2);
    expect(text).toContain("11 of 12 aims hold.");
  });

  it("shows what a call costs each process, in microseconds, at each load", () => {
    const text = report([cellOf([{ agentCpuMsPerCall: 0.2 }, { agentCpuMsPerCall: 0.3 }, { agentCpuMsPerCall: 9 }], [{}, {}, {}])]);
    const lines = text.slice(text.indexOf("Processor time a call")).split("\n");
    expect(lines.find((line) => line.includes("product"))).toMatch(/product +300 +300 +300 +20\.0 +20\.0 +20\.0 +100 +100 +100$/);
    expect(lines.find((line) => line.includes("floor"))).toMatch(/floor +30\.0 +30\.0 +30\.0 +20\.0 /);
  });

  it("names each aim with its bound", () => {
    expect(report([cellOf([{}], [{}])])).toMatch(/p50 ≤ 1\.5, p99 ≤ 2 .*calls\/s ≥ 0\.7, .*per call ≤ 1\.5/);
  });

  it("as JSON holds every sample, every ratio and every verdict", () => {
    const written = JSON.parse(reportJson([cellOf([{ p50Ms: 3 }, { p50Ms: 4 }], [{}, {}])], { machine: "one" }));
    expect(written.machine).toBe("one");
    expect(written.cells[0].product["1"].map((sample: { p50Ms: number }) => sample.p50Ms)).toEqual([3, 4]);
    expect(written.cells[0].comparisons[0]).toEqual({
      measure: "p50 ms",
      aim: { atMost: 1.5 },
      product: 3.5,
      floor: 1,
      ratio: 3.5,
      holds: false,
    });
  });
});
