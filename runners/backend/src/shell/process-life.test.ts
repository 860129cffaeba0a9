import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { GRANT_MARK, markedProcesses } from "@toolrunner/runner-sdk/node";
import { describe, expect, it, vi } from "vitest";
import { isAlive, usePools } from "../testing/shell-pools.js";
import { until } from "../testing/temp-folders.js";

const makePool = usePools();

describe("bash: time-out and cancel (W6, K4)", () => {
  // Children in the group, a grandchild, one that ignores SIGTERM, one in a session of its own, one stopped.
  const family = [
    "sleep 1000 & echo $!",
    "(sleep 1001 & echo $!; sleep 1002) &",
    "(trap '' TERM; sleep 1003 & echo $!; wait) &",
    "setsid sleep 1004 & echo $!",
    "(trap '' TERM HUP INT; setsid bash -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done') &",
    "sleep 1005 & kill -STOP $!; echo $!",
    "echo ready; wait",
  ].join("\n");

  it("ends with exit code 124 and what was printed, and leaves no process", async () => {
    const { run } = makePool();
    const result = await run(family, { timeoutMs: 1_000, grantId: "call_timeout" });
    expect(result).toMatchObject({ exit_code: 124, timed_out: true, process_id: null });
    expect(result.notes).toContainEqual(expect.stringContaining("longer than 1000 ms"));
    const pids = result.output
      .split("\n")
      .filter((line) => /^\d+$/.test(line))
      .map(Number);
    expect(pids.length).toBe(6);
    expect(pids.filter(isAlive)).toEqual([]);
    expect(markedProcesses({ name: GRANT_MARK, value: "call_timeout" })).toEqual([]);
    expect(result.duration_ms).toBeLessThan(8_000);
    expect((await run("echo fine")).output).toBe("fine\n");
  });

  it("throws the reason of the signal when cancelled, after every process is gone", async () => {
    const { run, rootFolder } = makePool();
    const controller = new AbortController();
    const pidFile = path.join(rootFolder, "pids");
    const running = run(`(${family}) > pids`, { signal: controller.signal, grantId: "call_cancel" });
    const ended = expect(running).rejects.toThrow("cancelled by a test");
    await until(() => existsSync(pidFile) && readFileSync(pidFile, "utf8").includes("ready"), "the start of the processes");
    controller.abort(new Error("cancelled by a test"));
    await ended;
    const pids = readFileSync(pidFile, "utf8")
      .split("\n")
      .filter((line) => /^\d+$/.test(line))
      .map(Number);
    expect(pids.length).toBe(6);
    expect(pids.filter(isAlive)).toEqual([]);
    expect(markedProcesses({ name: GRANT_MARK, value: "call_cancel" })).toEqual([]);
  });

  it("lets a command clean up on SIGTERM, and shows what it printed then", async () => {
    const { run } = makePool();
    const result = await run("trap 'echo cleaning up; exit 1' TERM; echo started; while :; do sleep 0.05; done", { timeoutMs: 300 });
    expect(result).toMatchObject({ output: expect.stringMatching(/^started\n(Terminated\n)?cleaning up\n$/), exit_code: 124 });
    expect(result.duration_ms).toBeLessThan(1_900);
  });

  it("does not start when cancelled before", async () => {
    const { run, rootFolder } = makePool();
    const controller = new AbortController();
    controller.abort(new Error("cancelled by a test"));
    await expect(run("touch made", { signal: controller.signal })).rejects.toThrow("cancelled by a test");
    expect(existsSync(path.join(rootFolder, "made"))).toBe(false);
  });

  it("tells how far the output is while the command runs", async () => {
    const { run } = makePool();
    const news: string[] = [];
    await run("echo working; sleep 2.5", { onProgress: (text) => news.push(text) });
    expect(news).toEqual(["working\n"]);
  });
});

describe("bash: background jobs (W6)", () => {
  it("answers process id and log file for a trailing &, at once, and the log goes on", async () => {
    const { run, rootFolder } = makePool();
    execFileSync("mkfifo", [path.join(rootFolder, "gate")]);
    const result = await run("echo before; (echo started; cat gate; echo ended) &");
    expect(result.exit_code).toBe(0);
    expect(result.output).toMatch(/^before\n/);
    const [pid, log] = [result.process_id ?? 0, result.log_file ?? ""];
    expect(isAlive(pid)).toBe(true);
    await until(() => readFileSync(log, "utf8") === "before\nstarted\n", "the first lines in the log");
    await run("echo through > gate");
    await until(() => readFileSync(log, "utf8") === "before\nstarted\nthrough\nended\n", "the last lines in the log");
    await until(() => !isAlive(pid), "the end of the job");
  });

  it("keeps a job that was left in the middle of a command running and able to print", async () => {
    const { run } = makePool();
    const result = await run("(while :; do echo tick; sleep 0.02; done) & sleep 0.1; echo done");
    expect(result.output).toContain("done\n");
    const before = statSync(result.log_file ?? "").size;
    await until(() => statSync(result.log_file ?? "").size > before + 50, "more lines in the log");
    const pid = result.process_id ?? 0;
    expect((await run(`kill ${pid}; echo killed`)).output).toBe("killed\n");
    await until(() => !isAlive(pid), "the end of the job");
  });

  it("says nothing of jobs that ended with their command", async () => {
    const { run } = makePool();
    expect(await run("true & wait; echo done && true")).toMatchObject({ output: "done\n", process_id: null, log_file: null });
  });

  it("ends background jobs with the workspace, those in sessions of their own too", async () => {
    const { run, state } = makePool();
    const result = await run("setsid sleep 1000 & sleep 1001 & echo $!; sleep 1002 &");
    expect(markedProcesses(state.mark).length).toBe(3);
    state.close();
    // They are killed at once; how soon the kernel lets go of them depends on how busy it is.
    await vi.waitFor(() => expect(markedProcesses(state.mark)).toEqual([]), { timeout: 5_000 });
    expect(existsSync(state.path)).toBe(false);
    await vi.waitFor(() => expect(isAlive(result.process_id ?? 0)).toBe(false), { timeout: 5_000 });
  });
});
