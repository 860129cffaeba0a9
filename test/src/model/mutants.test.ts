import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { CASES } from "./cases.js";
import type { MutantFinding, MutantJob } from "./mutant-process.js";
import { MUTANTS, type Mutant } from "./mutants.js";
import { replaced } from "./replacement.js";

const LONG = process.env["TOOLRUNNER_LONG"] === "1";
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const PROCESS = fileURLToPath(new URL("./mutant-process.js", import.meta.url));
const SEED = 20_261_130;

async function run(job: MutantJob): Promise<MutantFinding> {
  const { stdout } = await promisify(execFile)(process.execPath, [PROCESS, JSON.stringify(job)], { timeout: LONG ? 600_000 : 60_000 });
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as MutantFinding;
}

function caseOf(mutant: Mutant): string {
  const found = CASES.filter(({ name }) => name.startsWith(mutant.case));
  if (found[0] === undefined || found.length > 1) throw new Error(`${found.length} cases begin with ${mutant.case}`);
  return found[0].name;
}

describe("the product with a rule taken out", () => {
  it("is changed in places that are there, once each", () => {
    for (const replacement of MUTANTS.flatMap(({ replacements }) => replacements)) {
      const source = readFileSync(`${ROOT}${replacement.file}`, "utf8");
      expect(replaced(source, replacement)).not.toBe(source);
    }
    expect(() => replaced("a a", { file: "f", text: "a", by: "b" })).toThrow("2 places");
    expect(() => replaced("a a", { file: "f", text: "c", by: "b" })).toThrow("0 places");
  });

  it("is what breaks: unchanged, the same process finds nothing", async () => {
    expect(await run({ replacements: [], case: CASES[0]?.name, plans: 0, seed: SEED })).toEqual({ found: null, schedules: 1 });
    expect(await run({ replacements: [], case: undefined, plans: 3, seed: SEED })).toEqual({ found: null, schedules: 3 });
  });

  it.concurrent.each(MUTANTS)(
    "$rule: $does",
    async (mutant) => {
      const name = caseOf(mutant);
      const { found } = await run({ replacements: mutant.replacements, case: name, plans: 0, seed: SEED });
      expect(found, `nothing is found by the case "${name}"`).toContain(mutant.finds);
      console.info(`${mutant.rule} | ${mutant.does} | found by "${name}" in 1 schedule: ${found}`);
      if (!LONG || mutant.plans === undefined) return;
      const byPlans = await run({ replacements: mutant.replacements, case: undefined, plans: mutant.plans, seed: SEED });
      expect(byPlans.found, `nothing is found by ${mutant.plans} plans of seed ${SEED}`).not.toBeNull();
      console.info(`${mutant.rule} | ${mutant.does} | found by plan ${byPlans.schedules} of seed ${SEED}: ${byPlans.found}`);
    },
    LONG ? 1_200_000 : 90_000,
  );
});

describe("the table of rules in docs/reliability.md", () => {
  it("says what is taken out, and what finds it", () => {
    const lines = readFileSync(`${ROOT}docs/reliability.md`, "utf8").split("\n");
    const from = lines.indexOf("| rule | taken out | found by |");
    const rows = lines.slice(from + 2, from + 2 + MUTANTS.length);
    expect(rows).toEqual(MUTANTS.map((mutant) => `| ${mutant.rule} | ${mutant.does} | ${caseOf(mutant)} |`));
    expect(lines[from + 2 + MUTANTS.length]?.startsWith("|") ?? false).toBe(false);
  });
});
