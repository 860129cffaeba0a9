import { describe, expect, it } from "vitest";
import { CASES, runCase } from "./cases.js";

describe("the schedules that the rules prevent, on real brokers and real runners", () => {
  it.each(CASES)("$name", async ({ name }) => {
    expect(await runCase(name)).toEqual([]);
  });
});
