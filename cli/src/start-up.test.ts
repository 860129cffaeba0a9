/** Starting a broker, and commands without one, from the outside. Exit codes and texts are the contract's. */
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { errorOf, freePort } from "./testing/expectations.js";
import { runInProcess } from "./testing/run-in-process.js";
import { type Ended, startToolrunner, type ToolrunnerProcess, toolrunner } from "./testing/toolrunner-process.js";

let folder: string;
let running: ToolrunnerProcess[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "toolrunner-cli-"));
  running = [];
});
afterEach(async () => {
  for (const each of running.reverse()) each.signal("SIGKILL");
  await Promise.all(running.map(({ ended }) => ended));
  await rm(folder, { recursive: true, force: true });
});

function start(args: readonly string[], env: Readonly<Record<string, string>> = {}, cwd = folder): ToolrunnerProcess {
  const made = startToolrunner(args, { cwd, env });
  running.push(made);
  return made;
}

async function startDev(cwd = folder): Promise<{ readonly process: ToolrunnerProcess; readonly ready: Readonly<Record<string, string>> }> {
  const made = start(["dev", "--port", "0", "--grpc-port", "0", "--json"], {}, cwd);
  return { process: made, ready: await made.ready() };
}

/** A process of its own. */
const run = (args: readonly string[]): Promise<Ended> => toolrunner(args, { cwd: folder });
/** The same command in this process. */
const quick = (args: readonly string[]): Promise<Ended> => runInProcess(args, { cwd: folder });

describe("toolrunner dev", () => {
  it("prints one ready line, leaves the same in dev.json for its owner only, and keeps its keys over a restart", async () => {
    const first = await startDev();
    expect(Object.keys(first.ready)).toEqual(["event", "http", "ws", "grpc", "agent_key", "runner_token"]);
    expect(first.ready["http"]).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(first.ready["ws"]).toBe(`${first.ready["http"]?.replace("http", "ws")}/v1/runner`);
    expect(first.ready["grpc"]).toMatch(/^grpc:\/\/127\.0\.0\.1:\d+$/);
    const file = join(folder, ".toolrunner", "dev.json");
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const { event: _event, ...facts } = first.ready;
    expect(JSON.parse(await readFile(file, "utf8"))).toEqual({ ...facts, pid: first.process.pid });

    first.process.signal("SIGTERM");
    const { exitCode, stdout, stderr } = await first.process.ended;
    expect({ exitCode, lines: stdout.split("\n").length, stderr }).toEqual({ exitCode: 0, lines: 2, stderr: "" });

    const second = await startDev();
    expect([second.ready["agent_key"], second.ready["runner_token"]]).toEqual([first.ready["agent_key"], first.ready["runner_token"]]);
  });

  it("tells people where it listens, what it promises and what is not safe", async () => {
    const dev = start(["dev", "--port", "0", "--grpc-port", "0"]);
    await dev.printed("insecure");
    dev.signal("SIGINT");
    const { exitCode, stdout } = await dev.ended;
    expect(exitCode).toBe(0);
    for (const text of ["http://127.0.0.1:", "grpc://127.0.0.1:", "synced to disk", "dev.json", "Development keys"])
      expect(stdout).toContain(text);
    expect(stdout).not.toMatch(/_dev_/);
  });

  it("says in one line that a port is in use, and what to do", async () => {
    const holder = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => holder.once("listening", resolve));
    const address = holder.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    try {
      for (const ports of [
        ["--port", String(port), "--grpc-port", "0"],
        ["--port", "0", "--grpc-port", String(port)],
      ]) {
        const human = await run(["dev", ...ports]);
        expect(human.exitCode).toBe(1);
        expect(human.stderr.trimEnd().split("\n")).toHaveLength(1);
        expect(human.stderr).toMatch(new RegExp(`${port}.*in use.*another port`));
        const json = await run(["dev", ...ports, "--json"]);
        expect(json.exitCode).toBe(1);
        expect(errorOf(json).code).toBe("port_in_use");
      }
    } finally {
      holder.close();
    }
  });

  it("refuses a data folder that another broker uses", async () => {
    await startDev();
    const other = await run(["dev", "--port", "0", "--grpc-port", "0", "--json"]);
    expect(other.exitCode).toBe(1);
    expect(errorOf(other).code).toBe("data_in_use");
  });

  it("does not show development keys to other machines", async () => {
    const open = await run(["dev", "--host", "0.0.0.0", "--port", "0", "--grpc-port", "0", "--json"]);
    expect(open.exitCode).toBe(1);
    expect(errorOf(open)).toMatchObject({ code: "development_keys_exposed", message: expect.stringContaining("TOOLRUNNER_BOOTSTRAP_KEY") });
    const guessable = await toolrunner(["dev", "--host", "0.0.0.0", "--port", "0", "--grpc-port", "0", "--json"], {
      cwd: folder,
      env: { TOOLRUNNER_BOOTSTRAP_KEY: "secret" },
    });
    expect(guessable.exitCode).toBe(1);
    expect(errorOf(guessable).message).not.toContain('"secret"');
    const own = start(["dev", "--host", "0.0.0.0", "--port", "0", "--grpc-port", "0", "--json"], {
      TOOLRUNNER_BOOTSTRAP_KEY: "x8Jq2mPz7Rt5Vw9Yb3Nd6Fg1Hk4",
    });
    expect(Object.keys(await own.ready())).toEqual(["event", "http", "ws", "grpc"]);
    expect(await readdir(join(folder, ".toolrunner"))).not.toContain("dev.json");
  });
});

describe("toolrunner broker", () => {
  it("wants to be told where NATS is", async () => {
    const ended = await run(["broker", "--json"]);
    expect(ended.exitCode).toBe(2);
    expect(errorOf(ended)).toMatchObject({ type: "usage_error", message: expect.stringContaining("TOOLRUNNER_NATS_URL") });
  });

  it("says when no NATS answers", async () => {
    const ended = await run([
      "broker",
      "--nats",
      "nats://127.0.0.1:1",
      "--port",
      "0",
      "--grpc-port",
      "0",
      "--json",
      "--log-level",
      "silent",
    ]);
    expect(ended.exitCode).toBe(1);
    expect(errorOf(ended)).toMatchObject({ code: expect.stringMatching(/^nats_/), message: expect.stringContaining("127.0.0.1:1") });
  });
});

describe("without a broker", () => {
  it("commands say that nobody answers, and where they looked: exit 4", async () => {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const human = await run(["calls", "--url", url]);
    expect(human).toMatchObject({ exitCode: 4, stdout: "" });
    expect(human.stderr).toMatch(new RegExp(`^toolrunner: no broker answers at ${url} .*\\n$`));
    const begun = performance.now();
    const call = await run(["call", "t", "--toolset", "s", "--url", url, "--key", "k", "--json"]);
    expect(call.exitCode).toBe(4);
    expect(errorOf(call)).toMatchObject({ code: "unreachable", message: expect.stringContaining(url) });
    expect(performance.now() - begun).toBeLessThan(10_000);
    expect((await quick(["call", "t", "--toolset", "s"])).exitCode).toBe(4);
  });

  it("run keeps trying, says so, and ends at once with exit 0", async () => {
    await writeFile(join(folder, "shop.mjs"), 'export default [{ name: "a", description: "", input: {}, run: () => 1 }];');
    const address = `ws://127.0.0.1:${await freePort()}`;
    const made = start(["run", "shop.mjs", "--url", address, "--token", "t"]);
    await made.printed(`not connected to ${address}/v1/runner`);
    made.signal("SIGTERM");
    const ended = await made.ended;
    expect({ exitCode: ended.exitCode, stderr: ended.stderr }).toMatchObject({ exitCode: 0 });
  });

  it.each([
    [["bogus"]],
    [["call"]],
    [["call", "t"]],
    [["call", "t", "--toolset", "s", "--args", "{"]],
    [["call", "t", "--toolset", "s", "--args", "@none.json"]],
    [["call", "t", "--toolset", "s", "--wait", "soon"]],
    [["calls", "bogus"]],
    [["calls", "--limit", "0"]],
    [["calls", "--url", "ftp://x"]],
    [["dev", "--port", "65536"]],
    [["dev", "--retention-days", "0"]],
    [["dev", "--retention-days", "-1"]],
    [["dev", "--retention-days", "3651"]],
    [["dev", "--retention-days", "forever"]],
    [["broker", "--nats", "nats://127.0.0.1:1", "--retention-days", "0.00001"]],
    [["confirm", "call_1"]],
    [["reconcile", "call_1"]],
    [["cancel", "call_1", "--mode", "hard"]],
    [["run"]],
    [["run", "1.ts", "--token", "t"]],
    [["keys", "put", "none.json"]],
  ])("%j is wrong usage: exit 2, one line for people, one error object for programs", async (args) => {
    const human = await quick(args);
    expect(human).toMatchObject({ exitCode: 2, stdout: "" });
    expect(human.stderr).toMatch(/^toolrunner: [^\n]+\n$/);
    const object = await quick([...args, "--json"]);
    expect(object.exitCode).toBe(2);
    expect(errorOf(object)).toMatchObject({ type: "usage_error", code: "usage" });
  });

  it("every command has --help and --json", async () => {
    const { stdout } = await quick(["--help"]);
    const commands = [...stdout.matchAll(/^ {2}([a-z]+)(?= |$)/gm)].map(([, name]) => name ?? "");
    expect(commands).toEqual(
      expect.arrayContaining([
        "dev",
        "broker",
        "run",
        "call",
        "calls",
        "tools",
        "toolsets",
        "runners",
        "bindings",
        "keys",
        "confirm",
        "cancel",
        "reconcile",
      ]),
    );
    for (const name of commands) {
      const help = await quick([name, "--help"]);
      expect(help).toMatchObject({ exitCode: 0, stderr: "" });
      const list = / list /.test(help.stdout) ? await quick([name, "list", "--help"]) : help;
      expect(list.stdout, name).toContain("--json");
    }
    expect((await quick(["--version"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
