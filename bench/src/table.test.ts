import { describe, expect, it } from "vitest";
import { figure, renderTable } from "./table.js";

describe("a table", () => {
  it("makes columns as wide as their widest cell, names to the left and figures to the right", () => {
    expect(
      renderTable(
        ["name", "ms"],
        [
          ["a", "1.00"],
          ["longer", "12.5"],
        ],
        1,
      ),
    ).toBe(["name      ms", "────────────", "a       1.00", "longer  12.5"].join("\n"));
  });

  it("draws a rule for an empty row, and takes rows that are short", () => {
    expect(renderTable(["a", "b"], [["1"], [], ["2", "3"]], 0)).toBe(["a  b", "────", "1", "────", "2  3"].join("\n"));
  });
});

describe("a figure", () => {
  it.each([
    [0, "0.00"],
    [0.00123, "0.00123"],
    [0.0421, "0.0421"],
    [0.5, "0.500"],
    [1.234, "1.23"],
    [45.67, "45.7"],
    [123.4, "123"],
    [27_000, "27,000"],
    [1e-12, "0.00000000"],
  ])("of %d is written %s", (value, text) => {
    expect(figure(value)).toBe(text);
  });

  it("that is none is a dash", () => {
    expect(figure(Number.NaN)).toBe("–");
    expect(figure(Number.POSITIVE_INFINITY)).toBe("–");
  });
});
