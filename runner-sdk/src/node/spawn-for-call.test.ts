import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { defineTool } from "../index.js";
import { serve, stopRunners, until } from "../runner.test.kit.js";
import { endMarked, GRANT_MARK, JOURNAL_MARK, markedProcesses, processStat } from "./processes.js";
import { grpcBroker, type SocketBroker } from "./socket-broker.test.kit.js";
import { spawnForCall } from "./spawn-for-call.js";

const SCRIPT = fileURLToPath(new URL("./crash.test.kit.js", import.meta.url));
/** Children in the group and out of it, one that ignores SIGTERM, one stopped. Prints their process ids, then "ready". */
const FAMILY = [
  "sleep 1000 & echo $!",
  "setsid sleep 1001 & echo $!",
  "(trap '' TERM HUP; setsid bash -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done') &",
  "sleep 1002 & kill -STOP $!; echo $!",
  "sleep 0.3; echo ready",
].join("\n");

let folder: string;
let calls = 0;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-children-"));
});
afterEach(async () => {
  await stopRunners();
  rmSync(folder, { recursive: true, force: true });
});

function context() {
  calls += 1;
  const controller = new AbortController();
  const grant = { grantId: `grant_${process.pid}_${calls}`, journalId: `jrn_${process.pid}` };
  return { controller, ctx: { signal: controller.signal, grant }, mark: { name: GRANT_MARK, value: grant.grantId } };
}

/** The process ids that the family wrote to this file, once it is there as a whole. */
async function family(file: string): Promise<number[]> {
  await until("the start of the family", () => existsSync(file) && readFileSync(file, "utf8").includes("ready"));
  const pids = readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => /^\d+$/.test(line))
    .map(Number);
  expect(pids.length).toBe(4);
  return pids;
}

const livingOf = (pids: readonly number[]) => pids.filter((pid) => processStat(pid) !== undefined);

describe("a child process of a call (K4)", () => {
  it("ends with everything that came of it when the signal aborts, and `ended` waits for that", async () => {
    const { controller, ctx, mark } = context();
    const file = join(folder, "pids");
    const { ended } = spawnForCall(ctx, "bash", ["-c", `(${FAMILY}\nwait) > ${file}`]);
    const pids = await family(file);
    controller.abort(new Error("cancelled"));
    expect(await ended).toEqual({ exitCode: null, signal: "SIGTERM" });
    expect(livingOf(pids)).toEqual([]);
    expect(markedProcesses(mark)).toEqual([]);
  });

  it("leaves another attempt of the same call alone, and everybody else's processes", async () => {
    const [first, second] = [context(), context()];
    const one = spawnForCall(first.ctx, "sleep", ["1000"]);
    const two = spawnForCall(second.ctx, "sleep", ["1000"]);
    first.controller.abort();
    expect(await one.ended).toMatchObject({ signal: "SIGTERM" });
    expect(livingOf([two.child.pid ?? 0])).toEqual([two.child.pid]);
    second.controller.abort();
    await two.ended;
  });

  it("is answered with its exit code, with what spawn says of a program that is not there, and not started when the signal has aborted", async () => {
    const { controller, ctx } = context();
    const { child, ended } = spawnForCall(ctx, "sh", ["-c", 'echo "$MORE"; exit 3'], { env: { PATH: process.env["PATH"], MORE: "more" } });
    let output = "";
    child.stdout?.on("data", (data: Buffer) => {
      output += data.toString();
    });
    expect(await ended).toEqual({ exitCode: 3, signal: null });
    await until("the output", () => output === "more\n");
    await expect(spawnForCall(ctx, "/nowhere/program").ended).rejects.toMatchObject({ code: "ENOENT" });
    controller.abort(new Error("too late"));
    expect(() => spawnForCall(ctx, "touch", [join(folder, "made")])).toThrow("too late");
    expect(existsSync(join(folder, "made"))).toBe(false);
  });

  it("does not outlive its handler, which need not wait for it", async () => {
    let pid = 0;
    const tool = defineTool({
      name: "work",
      description: "Work.",
      input: {},
      run: async (_args, ctx) => {
        pid = spawnForCall(ctx, "sleep", ["1000"]).child.pid ?? 0;
        return { journal: ctx.grant.journalId };
      },
    });
    const { session } = await serve({ tools: [tool] });
    const receipt = await session.call({ tool: "work" });
    expect(receipt.outcome?.$case).toBe("succeeded");
    expect(pid).toBeGreaterThan(0);
    await until("the end of the child", () => processStat(pid) === undefined);
  });

  it("goes on with the work of a submission, whose signal does not abort at the end of its turn", async () => {
    let signal: AbortSignal | undefined;
    const tool = defineTool({
      name: "work",
      description: "Work.",
      input: {},
      resultSemantics: "submission",
      run: (_args, ctx) => {
        signal = ctx.signal;
        return ctx.submit({ job: 1 });
      },
    });
    const { session } = await serve({ tools: [tool] });
    const receipt = await session.call({ tool: "work" });
    expect(receipt.outcome?.$case).toBe("submitted");
    expect(signal?.aborted).toBe(false);
  });

  it("ends when its process exits, however that ends", async () => {
    const script = `
      import { spawnForCall } from ${JSON.stringify(new URL("./spawn-for-call.js", import.meta.url).href)};
      const ctx = { signal: new AbortController().signal, grant: { grantId: "grant_exit_" + process.pid, journalId: "jrn_exit" } };
      const { child } = spawnForCall(ctx, "bash", ["-c", "setsid sleep 1000 & sleep 1000"]);
      setTimeout(() => { process.stdout.write(String(process.pid)); process.exit(0); }, 500);`;
    const runner = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
    let pid = "";
    runner.stdout.on("data", (data: Buffer) => {
      pid += data.toString();
    });
    await new Promise((resolve) => runner.once("close", resolve));
    expect(pid).toMatch(/^\d+$/);
    await until("the end of the children", () => markedProcesses({ name: GRANT_MARK, value: `grant_exit_${pid}` }).length === 0);
  });
});

describe("a runner that is killed with -9 and starts again (K4)", () => {
  let socket: SocketBroker;
  const runners: ChildProcess[] = [];
  beforeEach(async () => {
    socket = await grpcBroker();
  });
  afterEach(async () => {
    for (const runner of runners.splice(0)) runner.kill("SIGKILL");
    await socket.stop();
  });

  const start = (journal: string) => {
    const runner = spawn(process.execPath, [SCRIPT, socket.url, join(folder, journal), join(folder, "runs")], { stdio: "inherit" });
    runners.push(runner);
    return runner;
  };
  const session = async () => {
    const next = await socket.broker.nextSession();
    return Object.assign(next, { greeting: await next.welcome() });
  };

  it("ends what the calls of its journal left running before it says hello, and nothing of another runner's", async () => {
    const first = start("journal");
    const before = await session();
    const other = start("other");
    const elsewhere = await session();
    const [mine, theirs] = [join(folder, "mine"), join(folder, "theirs")];
    before.grant({ tool: "spawn", argumentsJson: JSON.stringify({ script: `(${FAMILY}\nwait) > ${mine}` }) });
    elsewhere.grant({ tool: "spawn", argumentsJson: JSON.stringify({ script: `(${FAMILY}\nwait) > ${theirs}` }) });
    const pids = await family(mine);
    const others = await family(theirs);
    const died = new Promise((resolve) => first.once("exit", resolve));
    first.kill("SIGKILL");
    await died;
    expect(livingOf(pids).length).toBe(4);
    start("journal");
    const after = await session();
    expect(after.greeting.journalId).toBe(before.greeting.journalId);
    expect(livingOf(pids)).toEqual([]);
    expect(livingOf(others).length).toBe(4);
    other.kill("SIGKILL");
    expect(await endMarked({ name: JOURNAL_MARK, value: elsewhere.greeting.journalId })).toBe(true);
    expect(livingOf(others)).toEqual([]);
  });
});
