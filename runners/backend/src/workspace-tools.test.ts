import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { createRunner, type Tool } from "@toolrunner/runner-sdk";
import { GRANT_MARK, markedProcesses, processStat } from "@toolrunner/runner-sdk/node";
import { createFakeBroker, type FakeSession } from "@toolrunner/runner-sdk/testing";
import { afterEach, describe, expect, it } from "vitest";
import { until, useFolders, writeTree } from "./testing/temp-folders.js";
import { createWorkspace, type Workspace, workspaceTools } from "./workspace-tools.js";

const makeFolder = useFolders();
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** A runner with the workspace tools on a real folder, and the broker's end of its session. */
async function serve(
  options: Partial<Parameters<typeof workspaceTools>[0]> = {},
): Promise<{ root: string; session: FakeSession; workspace: Workspace }> {
  const root = makeFolder();
  const workspace = createWorkspace({ root, ...options });
  const broker = createFakeBroker();
  const runner = createRunner({ transport: broker.transport, binding: "workspace", tools: workspace.tools });
  closing.push(
    () => runner.stop(),
    () => workspace.close(),
  );
  const started = runner.start();
  const session = await broker.nextSession();
  await session.welcome();
  await started;
  return { root, session, workspace };
}

async function call(
  session: FakeSession,
  tool: string,
  args: unknown,
  more: { session?: string; subject?: string } = {},
): Promise<unknown> {
  const grant = session.grant({ tool, argumentsJson: JSON.stringify(args), ...more });
  const receipt = await session.next("receipt", 15_000);
  expect(receipt.callId).toBe(grant.callId);
  session.acknowledge(receipt);
  if (receipt.outcome?.$case === "succeeded") return JSON.parse(receipt.outcome.value.resultJson);
  return receipt.outcome;
}

describe("the workspace tools, served by a runner (W1)", () => {
  it("tell the model their limits, and declare what may be done with them", () => {
    const tools = workspaceTools({ root: "." });
    const facts = (tool: Tool) => [tool.name, tool.behaviour, tool.idempotent, tool.cancellable, tool.maxResultContextBytes];
    expect(tools.map(facts)).toEqual([
      ["read", "read_only", true, true, 32_768],
      ["glob", "read_only", true, true, 32_768],
      ["grep", "read_only", true, true, 32_768],
      ["bash", "write", false, true, 32_768],
    ]);
    for (const [name, limits] of [
      ["read", ["2,000", "10,000", "60,000", "500", "262,144"]],
      ["glob", ["100"]],
      ["grep", ["250", "500", "30 s"]],
      ["bash", ["120,000", "600,000", "30,000", "124"]],
    ] as const) {
      const description = tools.find((tool) => tool.name === name)?.description ?? "";
      for (const limit of limits) expect(description).toContain(limit);
    }
  });

  it("answer with what their output schemas say, no more and no less", async () => {
    const { root, session, workspace } = await serve();
    writeTree(root, { "a.txt": "hello\n" });
    for (const [name, args] of [
      ["read", { path: "a.txt" }],
      ["read", { path: "." }],
      ["glob", { pattern: "*" }],
      ["grep", { pattern: "hello" }],
      ["bash", { command: "cat a.txt" }],
    ] as const) {
      const result = await call(session, name, args);
      const schema = workspace.tools.find((tool) => tool.name === name)?.output;
      expect(schema).toMatchObject({ required: Object.keys(result ?? {}) });
      expect(schema).toMatchObject({ properties: Object.fromEntries(Object.keys(result ?? {}).map((key) => [key, expect.anything()])) });
      expect(JSON.stringify(result)).toMatch(/hello|a\.txt/);
    }
  });

  it("refuse with a typed error that says what to do, and is not retried", async () => {
    const { session } = await serve();
    for (const [tool, args, code] of [
      ["read", { path: "../x" }, "outside_workspace"],
      ["read", { path: "missing" }, "not_found"],
      ["grep", { pattern: "(" }, "pattern_invalid"],
      ["glob", { pattern: "../*" }, "pattern_invalid"],
      ["bash", {}, "arguments_invalid"],
    ] as const) {
      expect(await call(session, tool, args)).toMatchObject({
        $case: "failed",
        value: { code, retryable: false, message: expect.stringMatching(/\.$|\^|error/s) },
      });
    }
  });

  it("give each agent session a shell of its own, each subject else, and one to all others (W6)", async () => {
    const { session } = await serve();
    const who = [{ session: "s1", subject: "u1" }, { session: "s2", subject: "u1" }, { subject: "u1" }, { subject: "s1" }, {}];
    for (const [index, owner] of who.entries()) await call(session, "bash", { command: `export WHO=${index}` }, owner);
    for (const [index, owner] of who.entries())
      expect(await call(session, "bash", { command: "echo $WHO" }, owner)).toMatchObject({ output: `${index}\n` });
    expect(await call(session, "bash", { command: "echo $WHO" }, { session: "s1", subject: "somebody else" })).toMatchObject({
      output: "0\n",
    });
  });

  it("read a log by its pointer, but neither list the logs nor read what else lies there", async () => {
    const { session } = await serve();
    const result = await call(session, "bash", { command: "seq 20000" });
    const log = typeof result === "object" && result !== null && "log_file" in result ? String(result.log_file) : "";
    expect(await call(session, "read", { path: log, offset: 19_999 })).toMatchObject({
      text: "19999\t19999\n20000\t20000",
      next_offset: null,
    });
    for (const other of [path.dirname(log), path.dirname(path.dirname(log)), `${log}/../..`]) {
      expect(await call(session, "read", { path: other })).toMatchObject({ value: { code: "outside_workspace" } });
    }
    expect(await call(session, "grep", { pattern: "19999", path: log })).toMatchObject({ shown: 1 });
    await call(session, "bash", { restart: true });
    expect(await call(session, "read", { path: log })).toMatchObject({ value: { code: "not_found" } });
  });

  it("say which engine searched", async () => {
    const { root, session } = await serve({ ripgrep: null });
    writeTree(root, { "a.txt": "hello\n" });
    expect(await call(session, "grep", { pattern: "hello" })).toMatchObject({ text: "a.txt:1:hello", engine: "built-in" });
    const missing = await serve({ ripgrep: "/nowhere/rg" });
    expect(await call(missing.session, "grep", { pattern: "x" })).toMatchObject({ engine: "built-in" });
  });

  it("kill a command's processes when its call is cancelled (K4)", async () => {
    const { session } = await serve();
    const grant = session.grant({ tool: "bash", argumentsJson: JSON.stringify({ command: "setsid sleep 1000 & sleep 1001" }) });
    const mark = { name: GRANT_MARK, value: grant.grantId };
    await until(() => markedProcesses(mark).length >= 3, "the start of the command");
    session.send({ $case: "cancel", value: { callId: grant.callId, grantId: grant.grantId, fence: grant.fence, reason: "asked for" } });
    expect((await session.next("receipt", 10_000)).outcome).toMatchObject({ $case: "cancelled" });
    expect(markedProcesses(mark)).toEqual([]);
  });

  it("end with their workspace: what runs is killed, and no command starts any more", async () => {
    const { session, workspace } = await serve();
    const grant = session.grant({ tool: "bash", argumentsJson: JSON.stringify({ command: "sleep 1000" }) });
    const mark = { name: GRANT_MARK, value: grant.grantId };
    await until(() => markedProcesses(mark).length > 0, "the start of the command");
    workspace.close();
    const receipt = await session.next("receipt", 10_000);
    expect(receipt.outcome?.$case === "succeeded" && JSON.parse(receipt.outcome.value.resultJson)).toMatchObject({ exit_code: 137 });
    session.acknowledge(receipt);
    expect(await call(session, "bash", { command: "true" })).toMatchObject({ value: { code: "workspace_unusable" } });
  });

  it("refuse a byte budget out of bounds", () => {
    for (const maxResultContextBytes of [1_023, 32_769, 2_000.5])
      expect(() => workspaceTools({ root: ".", maxResultContextBytes })).toThrow(RangeError);
  });

  it("are the default export of the module for toolrunner run, on TOOLRUNNER_WORKSPACE_ROOT", async () => {
    const root = makeFolder();
    const script =
      'const { default: tools } = await import("@toolrunner/runner-backend/workspace"); const r = await tools[0].run({ path: "." }, { signal: new AbortController().signal }); console.log(tools.map((t) => t.name).join(), r.text);';
    writeTree(root, { "only-here": "" });
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
      env: { ...process.env, TOOLRUNNER_WORKSPACE_ROOT: root },
      cwd: import.meta.dirname,
      stdio: ["ignore", "pipe", "inherit"],
    });
    expect(await textOf(child)).toBe("read,glob,grep,bash only-here\n");
  });
});

async function textOf(child: ChildProcess): Promise<string> {
  let text = "";
  child.stdout?.setEncoding("utf8").on("data", (piece: string) => {
    text += piece;
  });
  await once(child, "close");
  return text;
}

describe("the end of a runner (K4)", () => {
  const kit = path.join(import.meta.dirname, "testing/runner-process.js");

  /** Starts a process with a workspace; resolves when it has left its jobs. */
  async function start(temp: string, ending: string) {
    const child = spawn(process.execPath, [kit, makeFolder(), ending], {
      env: { ...process.env, TMPDIR: temp },
      stdio: ["ignore", "pipe", "ignore"],
    });
    closing.push(() => child.kill("SIGKILL"));
    const exited = once(child, "exit");
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
    });
    await until(() => text.endsWith("\n"), "the answer of the process");
    const answer: unknown = JSON.parse(text);
    const output = typeof answer === "object" && answer !== null && "output" in answer ? String(answer.output) : "";
    const pids = output
      .split("\n")
      .filter((line) => line !== "")
      .map(Number);
    expect(pids.length).toBe(2);
    return { child, exited, pids };
  }

  const parentOf = (temp: string) => path.join(temp, `toolrunner-${process.getuid?.() ?? 0}`);

  it.each(["exit", "throw", "natural"])("ends what commands left in the background, and removes their logs: %s", async (ending) => {
    const temp = makeFolder();
    const { exited, pids } = await start(temp, ending);
    await exited;
    await until(() => pids.every((pid) => processStat(pid) === undefined), "the end of the jobs");
    expect(readdirSync(parentOf(temp))).toEqual([]);
  });

  it("leaves them to the next start after kill -9, which spares those of a living runner", async () => {
    const temp = makeFolder();
    const killed = await start(temp, "wait");
    const living = await start(temp, "wait");
    killed.child.kill("SIGKILL");
    await killed.exited;
    expect(killed.pids.every((pid) => processStat(pid) !== undefined)).toBe(true);
    const next = spawn(process.execPath, [kit, makeFolder(), "create"], { env: { ...process.env, TMPDIR: temp }, stdio: "ignore" });
    await once(next, "exit");
    await until(() => killed.pids.every((pid) => processStat(pid) === undefined), "the end of the dead runner's jobs");
    expect(living.pids.every((pid) => processStat(pid) !== undefined)).toBe(true);
    expect(readdirSync(parentOf(temp)).length).toBe(1);
    for (const pid of living.pids) process.kill(pid, "SIGKILL");
    expect(existsSync(parentOf(temp))).toBe(true);
  });
});
