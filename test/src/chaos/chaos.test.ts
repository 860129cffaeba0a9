/** The short form of chaos: all kinds of faults for most of a minute, by the command itself. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ensureNatsServer } from "../../../scripts/ensure-nats-server.mjs";
import type { ChaosReport } from "./report.js";

const MAIN = fileURLToPath(new URL("./main.js", import.meta.url));
const RUN_MS = 480_000;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-chaos-test-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function chaos(
  ...args: string[]
): Promise<{ readonly code: number; readonly text: string; readonly report: ChaosReport | undefined }> {
  const json = join(folder, "report.json");
  const env = { ...process.env, TOOLRUNNER_NATS_SERVER_2_10: await ensureNatsServer("2.10") };
  const { code, text } = await new Promise<{ code: number; text: string }>((resolve) => {
    execFile(
      process.execPath,
      [MAIN, ...args, "--json", json],
      { env, timeout: RUN_MS, maxBuffer: 64 * 1_048_576 },
      (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : Number(error.code ?? -1), text: stdout + stderr });
      },
    );
  });
  return {
    code,
    text,
    report: code === 2 || !text.includes("violations ") ? undefined : (JSON.parse(readFileSync(json, "utf8")) as ChaosReport),
  };
}

describe("chaos", () => {
  it(
    "I1, I2, I3, I4, I5, I6, I7: three brokers, three NATS servers and six runners keep every promise while they are killed, stopped and cut off",
    async () => {
      const { code, text, report } = await chaos("--minutes", "0.6", "--seed", "20");
      console.log(text);
      expect(code, text).toBe(0);
      expect(report?.violations).toEqual([]);
      expect(Object.keys(report?.faults ?? {}).length).toBeGreaterThan(3);
      expect(report?.calls).toBeGreaterThan(50);
      expect(report?.settled.succeeded).toBeGreaterThan(30);
      expect(report?.receiptsAcknowledged).toBeGreaterThan(30);
    },
    RUN_MS + 10_000,
  );

  it("refuses a command line and a plan that it cannot follow", async () => {
    expect(await chaos("--faults", "moon")).toMatchObject({
      code: 2,
      text: expect.stringMatching(/"moon" is part of no kind[\s\S]*--minutes N/),
    });
    const plan = join(folder, "plan.json");
    writeFileSync(plan, '[{"atMs":1,"forMs":1,"kind":"kill","target":"moon-1"}]');
    expect(await chaos("--plan", plan)).toMatchObject({ code: 2, text: expect.stringContaining("target of fault 1 is") });
  });
});
