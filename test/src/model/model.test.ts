import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Plan, plans } from "./plan.js";
import { runPlan } from "./run-plan.js";

const LONG = process.env["TOOLRUNNER_LONG"] === "1";
const ONE = process.env["TOOLRUNNER_MODEL_PLAN"];
const SEED = process.env["TOOLRUNNER_MODEL_SEED"];
const RUNS = Number(process.env["TOOLRUNNER_MODEL_RUNS"] ?? (LONG ? 4_000 : 40));

async function holds(plan: Plan): Promise<void> {
  const { failures, logged } = await runPlan(plan);
  const report = `run it again with TOOLRUNNER_MODEL_PLAN='${JSON.stringify(plan)}'`;
  expect(failures, ONE === undefined ? report : `${report}\n${logged.slice(-200).join("\n")}`).toEqual([]);
}

describe("real brokers and real runners, whatever happens to them", () => {
  if (ONE !== undefined) {
    it("keep I1 to I9 in the plan that TOOLRUNNER_MODEL_PLAN gives", () => holds(JSON.parse(ONE) as Plan), 120_000);
    return;
  }
  const seed = SEED !== undefined ? Number(SEED) : LONG ? Math.floor(Math.random() * 2_147_483_647) : 20_261_130;
  it(
    `keep I1 to I5 and I8 at every step, and I6, I7 and I9, in ${RUNS} plans of seed ${seed}`,
    async () => {
      let ran = 0;
      const property = fc.asyncProperty(plans, (plan) => {
        ran += 1;
        return holds(plan);
      });
      await fc.assert(property, { seed, numRuns: RUNS, interruptAfterTimeLimit: LONG ? 3_000_000 : 100_000 });
      if (ran < RUNS) console.info(`time was up after ${ran} of ${RUNS} plans`);
    },
    LONG ? 3_600_000 : 120_000,
  );
});
