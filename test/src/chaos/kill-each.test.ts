/** Each broker and each NATS server killed in turn under load: nothing lost, nothing doubled, and how long nothing settled. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ensureNatsServer } from "../../../scripts/ensure-nats-server.mjs";
import type { ChaosReport } from "./report.js";

const MAIN = fileURLToPath(new URL("./main.js", import.meta.url));
const isLong = process.env.TOOLRUNNER_LONG === "1";
const LIMIT_MS = 900_000;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-chaos-test-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function run(...args: string[]): Promise<{ readonly text: string; readonly report: ChaosReport }> {
  const json = join(folder, "report.json");
  const env = { ...process.env, TOOLRUNNER_NATS_SERVER_2_10: await ensureNatsServer("2.10") };
  const text = await new Promise<string>((resolve) => {
    execFile(
      process.execPath,
      [MAIN, ...args, "--json", json],
      { env, timeout: LIMIT_MS, maxBuffer: 64 * 1_048_576 },
      (_error, stdout, stderr) => {
        resolve(stdout + stderr);
      },
    );
  });
  if (!text.includes("violations ")) throw new Error(`the run came to no report:\n${text}`);
  return { text, report: JSON.parse(readFileSync(json, "utf8")) as ChaosReport };
}

describe("under as many calls as the machine bears, 500 a second at most", () => {
  it(
    "I1, I3, I4, I9: each broker and each NATS server can be killed: no call is lost, none is run twice; prints the gaps",
    async (context) => {
      if (!isLong) context.skip("needs TOOLRUNNER_LONG=1: three minutes");
      const { text, report } = await run("--kill-each", "--minutes", "2", "--seed", "5");
      console.log(text);
      console.log(`${Math.round(report.calls / report.seconds)} calls a second were made of the 500 that were tried`);
      expect(report.violations, text).toEqual([]);
      expect(report.faults).toEqual({ "broker kill": 3, "nats kill": 3 });
      expect(report.settled).toEqual({ succeeded: report.calls });
      expect(report.gaps.length).toBe(6);
      for (const { target, gapMs } of report.gaps) expect(gapMs, target).toBeLessThan(14_000);
    },
    LIMIT_MS + 10_000,
  );
});
