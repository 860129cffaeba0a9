import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type CliProcess, startCli } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";

const TOOLS = fileURLToPath(new URL("../../fixtures/child-processes.mjs", import.meta.url));

let folder: string;
const started: CliProcess[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-children-"));
});
afterEach(async () => {
  await Promise.all(started.splice(0).map((one) => one.kill9()));
  rmSync(folder, { recursive: true, force: true });
});

async function start(...args: readonly string[]): Promise<CliProcess> {
  const one = await startCli(args, { cwd: folder });
  started.push(one);
  return one;
}

const runnerOf = (broker: CliProcess) =>
  start(
    "run",
    TOOLS,
    "--url",
    String(broker.ready.ws),
    "--binding",
    "shop",
    "--token",
    String(broker.ready.runner_token),
    "--journal",
    join(folder, "journal"),
  );

async function http(broker: CliProcess, method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
  const response = await fetch(`${String(broker.ready.http)}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${String(broker.ready.agent_key)}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return (await response.json()) as Record<string, unknown>;
}

/** A process in the call's group, one in a session of its own, and one that ignores signals. */
async function startedCall(broker: CliProcess): Promise<{ readonly id: string; readonly pids: readonly number[] }> {
  const file = join(folder, "pids");
  const script = `(sleep 1000 & echo $!; setsid sleep 1000 & echo $!; (trap '' TERM; setsid bash -c 'trap "" TERM; echo $$; while :; do sleep 1; done') & sleep 0.3; echo ready; wait) > ${file}`;
  const { id } = await http(broker, "POST", "/v1/calls", { toolset: "shop", tool: "build", arguments: { script } });
  await eventually("the children to run", () => existsSync(file) && readFileSync(file, "utf8").includes("ready"));
  const pids = readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => /^\d+$/.test(line))
    .map(Number);
  expect(pids.filter(lives)).toHaveLength(3);
  return { id: String(id), pids };
}

function lives(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

describe("child processes of a call (K4)", () => {
  it("are gone when a cancel is answered", async () => {
    const broker = await start("dev", "--port", "0", "--grpc-port", "0", "--data", join(folder, "data"));
    await runnerOf(broker);
    const { id, pids } = await startedCall(broker);
    await http(broker, "POST", `/v1/calls/${id}/cancel`, {});
    expect(await http(broker, "GET", `/v1/calls/${id}?wait_seconds=20`)).toMatchObject({ state: "cancelled" });
    expect(pids.filter(lives)).toEqual([]);
  });

  it("outlive a runner that is killed with -9 only until it starts again, before anybody is told what is known of the call", async () => {
    const broker = await start("dev", "--port", "0", "--grpc-port", "0", "--data", join(folder, "data"));
    const runner = await runnerOf(broker);
    const { id, pids } = await startedCall(broker);
    await runner.kill9();
    expect(pids.filter(lives)).toHaveLength(3);
    await runnerOf(broker);
    expect(pids.filter(lives)).toEqual([]);
    expect(await http(broker, "GET", `/v1/calls/${id}?wait_seconds=20`)).toMatchObject({ state: "needs_reconciliation" });
  });
});
