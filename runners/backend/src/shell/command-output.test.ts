import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { jsonBytes } from "../json-budget.js";
import { usePools } from "../testing/shell-pools.js";
import { until, writeTree } from "../testing/temp-folders.js";

const makePool = usePools();

describe("bash: output (W6)", () => {
  it("keeps head and tail of output over 30,000 characters, with the whole in the log", async () => {
    const { run } = makePool();
    const result = await run("seq 20000");
    const whole = Array.from({ length: 20_000 }, (_, index) => `${index + 1}\n`).join("");
    expect(result.output.length).toBeLessThan(30_100);
    expect(result.output).toMatch(/^1\n2\n/);
    expect(result.output).toMatch(/19999\n20000\n$/);
    const [, left] = /\[… (\d+) characters left out here …\]/.exec(result.output) ?? [];
    expect(Number(left)).toBeGreaterThan(70_000);
    expect(readFileSync(result.log_file ?? "", "utf8")).toBe(whole);
    expect(result.notes).toEqual([expect.stringContaining("log_file holds all of it")]);
    expect(jsonBytes(result)).toBeLessThanOrEqual(32_768);
  });

  it("keeps head and tail of many small pieces", async () => {
    const { run } = makePool();
    const result = await run("for i in $(seq 40000); do echo $i; done");
    expect(result.output).toMatch(/^1\n2\n3\n/);
    expect(result.output).toMatch(/39998\n39999\n40000\n$/);
    expect(readFileSync(result.log_file ?? "", "utf8").split("\n").length).toBe(40_001);
  });

  it("shows 30,000 characters whole, and one more not", async () => {
    const { run } = makePool();
    const exact = await run("head -c 30000 /dev/zero | tr '\\0' x");
    expect([exact.output.length, exact.log_file]).toEqual([30_000, null]);
    const over = await run("head -c 30001 /dev/zero | tr '\\0' x");
    expect(over.log_file).not.toBeNull();
    expect(readFileSync(over.log_file ?? "").length).toBe(30_001);
  });

  it.each([1_024, 2_000, 32_768])("fits any output into %i bytes of compact JSON, escapes counted", async (budgetBytes) => {
    const { run } = makePool();
    for (const command of [
      "head -c 20000 /dev/zero | tr '\\0' '\"'",
      "head -c 9000 /dev/zero | tr '\\0' '\\033'",
      "for i in $(seq 3000); do printf '😀é'; done",
      "head -c 100000 /dev/urandom",
    ]) {
      const result = await run(command, { budgetBytes });
      expect([command, jsonBytes(result) <= budgetBytes]).toEqual([command, true]);
      expect(result.output).not.toMatch(/[\ud800-\udfff]/u);
    }
  });

  it("puts characters together whose bytes arrive apart", async () => {
    const { run } = makePool();
    expect((await run("printf '\\360\\237'; sleep 0.1; printf '\\230\\200'; printf 'caf\\303'; sleep 0.1; printf '\\251\\n'")).output).toBe(
      "😀café\n",
    );
  });

  it("shows binary output as text without control characters, and keeps its bytes in the log when it is cut", async () => {
    const { run } = makePool();
    expect((await run("printf 'a\\000b\\377c\\007\\tend\\n'")).output).toBe("a\ufffdb\ufffdc\ufffd\tend\n");
    const result = await run("head -c 100000 /dev/urandom | tee copy");
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not be there
    expect(result.output).not.toMatch(/[\u0000-\u0008]/);
    expect(execFileSync("sha256sum", [result.log_file ?? ""], { encoding: "utf8" }).slice(0, 64)).toBe(
      (await run("sha256sum < copy")).output.slice(0, 64),
    );
  });

  it("fits a long directory and a note about it into the smallest budget", async () => {
    const { run, rootFolder } = makePool();
    await run(`for i in $(seq 15); do mkdir ${"d".repeat(200)} && cd ${"d".repeat(200)}; done`);
    const inside = await run("seq 20000", { budgetBytes: 1_024 });
    expect(jsonBytes(inside)).toBeLessThanOrEqual(1_024);
    expect(inside.directory).toMatch(/^…d+/);
    rmSync(path.join(rootFolder, "d".repeat(200)), { recursive: true });
    expect(jsonBytes(await run("seq 20000", { budgetBytes: 1_536 }))).toBeLessThanOrEqual(1_536);
  });

  it("keeps the runner awake under a flood, in front and left behind", async () => {
    const { run } = makePool();
    let longestMs = 0;
    let last = performance.now();
    const watch = setInterval(() => {
      longestMs = Math.max(longestMs, performance.now() - last);
      last = performance.now();
    }, 5);
    await run("yes", { timeoutMs: 700 });
    const left = await run("yes &");
    await until(() => statSync(left.log_file ?? "").size === 64 * 1024 * 1024, "a full log");
    const before = process.cpuUsage();
    await run("sleep 1", { conversation: "session b" });
    const used = process.cpuUsage(before);
    clearInterval(watch);
    process.kill(left.process_id ?? 0, "SIGKILL");
    expect(longestMs).toBeLessThan(1_000);
    // What is dropped is read slowly: far from a whole second of processor time.
    expect((used.user + used.system) / 1_000).toBeLessThan(700);
  });

  it("bounds memory and log under a flood of 1 GiB, and keeps its end", async () => {
    const { run } = makePool();
    let peak = 0;
    const watch = setInterval(() => {
      peak = Math.max(peak, process.memoryUsage().rss);
    }, 20);
    const before = process.memoryUsage().rss;
    const result = await run("yes | head -c 1G; echo the end", { timeoutMs: 100_000 });
    clearInterval(watch);
    expect(result.output.endsWith("y\nthe end\n")).toBe(true);
    expect(statSync(result.log_file ?? "").size).toBe(64 * 1024 * 1024);
    expect(result.notes).toEqual([expect.stringContaining("full")]);
    expect(peak - before).toBeLessThan(200 * 1024 * 1024);
  }, 120_000);

  it("says that partial output is lost when it could not be saved, and names no file", async () => {
    const { run, state } = makePool();
    writeTree(state.path, { logs: "a file where the folder should be" });
    const result = await run("seq 20000");
    expect(result.log_file).toBeNull();
    expect(result.notes).toEqual([expect.stringContaining("is lost")]);
    expect(result.output).toMatch(/20000\n$/);
  });
});
