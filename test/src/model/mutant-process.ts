/**
 * Runs one mutant in a process of its own and prints what the model found, as JSON in the last line: `{"found":…,"schedules":…}`.
 * The argument is a {@link MutantJob}, as JSON.
 */
import { register } from "node:module";
import fc from "fast-check";
import type { Replacement } from "./replacement.js";

/** What to change, and what to look at it with. */
export interface MutantJob {
  readonly replacements: readonly Replacement[];
  /** The scripted case; undefined: plans. */
  readonly case: string | undefined;
  /** Plans to try at most, of this seed. */
  readonly plans: number;
  readonly seed: number;
}

export interface MutantFinding {
  /** What broke; null: nothing did. */
  readonly found: string | null;
  /** How many schedules it took. */
  readonly schedules: number;
}

async function find(job: MutantJob): Promise<MutantFinding> {
  if (job.case !== undefined) {
    const { runCase } = await import("./cases.js");
    const failures = await runCase(job.case);
    return { found: failures[0] ?? null, schedules: 1 };
  }
  const { plans } = await import("./plan.js");
  const { runPlan } = await import("./run-plan.js");
  let schedules = 0;
  for (const plan of fc.sample(plans, { seed: job.seed, numRuns: job.plans })) {
    schedules += 1;
    const { failures } = await runPlan(plan);
    if (failures[0] !== undefined) return { found: failures[0], schedules };
  }
  return { found: null, schedules };
}

const job = JSON.parse(process.argv[2] ?? "{}") as MutantJob;
register("./mutant-loader.js", import.meta.url, { data: job.replacements });
process.stdout.write(`${JSON.stringify(await find(job))}\n`);
// What a broken broker left running would keep the process.
process.exit(0);
