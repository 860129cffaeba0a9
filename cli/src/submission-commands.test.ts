/** `update` and `settle` against a real embedded broker. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { errorOf } from "./testing/expectations.js";
import { runInProcess } from "./testing/run-in-process.js";
import { type Ended, startToolrunner, type ToolrunnerProcess } from "./testing/toolrunner-process.js";

const TOOLS = `import { defineTool } from "@toolrunner/runner-sdk";
export default [defineTool({ name: "order", description: "Orders.", input: { type: "object" }, resultSemantics: "submission", run: (_args, ctx) => ctx.submit(ctx.fence) })];
`;

describe("a submitted call (X5)", () => {
  let folder: string;
  let dev: ToolrunnerProcess;
  let runner: ToolrunnerProcess;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "toolrunner-cli-submission-"));
    await writeFile(join(folder, "jobs.ts"), TOOLS);
    dev = startToolrunner(["dev", "--port", "0", "--grpc-port", "0", "--json"], { cwd: folder });
    await dev.ready();
    runner = startToolrunner(["run", "jobs.ts", "--json"], { cwd: folder });
    await runner.ready();
  }, 30_000);
  afterAll(async () => {
    for (const process of [runner, dev]) {
      process.signal("SIGTERM");
      await process.ended;
    }
    await rm(folder, { recursive: true, force: true });
  });

  const run = (...args: readonly string[]): Promise<Ended> => runInProcess(args, { cwd: folder });
  async function submitted(): Promise<{ readonly id: string; readonly result: number }> {
    const ended = await run("call", "order", "--toolset", "jobs", "--args", "{}", "--json");
    expect(ended.exitCode).toBe(0);
    return JSON.parse(ended.stdout);
  }

  it("is updated and settled by the runner key that dev.json holds", async () => {
    const { id, result: fence } = await submitted();
    const told = await run("update", id, "--text", "half", "--percentage", "50", "--data", "[1]", "--json");
    expect(told).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(told.stdout)).toMatchObject({ event: "progress", data: { text: "half", percentage: 50, data: [1] } });
    expect(await run("update", id, "--text", "more")).toMatchObject({ exitCode: 0, stdout: `${id} was told\n` });
    const settled = await run("settle", id, "--outcome", "succeeded", "--result", '{"a":1}', "--fence", String(fence));
    expect(settled).toMatchObject({ exitCode: 0, stdout: `${id} is succeeded\n`, stderr: "" });
    const again = await run("settle", id, "--outcome", "cancelled", "--message", "no", "--json");
    expect([again.exitCode, errorOf(again).code]).toEqual([4, "receipt_conflict"]);
    const other = (await submitted()).id;
    const failed = await run("settle", other, "--outcome", "failed", "--code", "no_stock", "--message", "none left", "--json");
    expect(JSON.parse(failed.stdout)).toMatchObject({ state: "failed", outcome: "failed" });
  }, 30_000);

  it.each([
    [["update", "call_x", "--percentage", "101"], 2],
    [["update", "call_x", "--data", "{"], 2],
    [["update", "call_x", "--token", "wrong", "--text", "a"], 4],
    [["settle", "call_x"], 2],
    [["settle", "call_x", "--outcome", "succeeded"], 2],
    [["settle", "call_x", "--outcome", "failed"], 2],
    [["settle", "call_x", "--outcome", "cancelled", "--result", "1"], 2],
    [["settle", "call_x", "--outcome", "succeeded", "--result", "1", "--code", "a"], 2],
    [["settle", "call_x", "--outcome", "cancelled", "--fence", "first"], 4],
  ] as const)("is refused what is wrong: %j exits with %d", async (args, exitCode) => {
    const ended = await run(...args);
    expect([ended.exitCode, ended.stdout]).toEqual([exitCode, ""]);
    expect(ended.stderr.trim().split("\n")).toHaveLength(1);
  });
});
