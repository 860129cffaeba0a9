/** Runners whose event loop stands still, and machines that sleep: no second effect, no lost result, no storm of connections (R8, R2). */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createStage, type Stage } from "../brokers/stage.js";
import { type CliProcess, startCli } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { startTcpProxy, type TcpProxy } from "../kit/tcp-proxy.js";
import { type InProcessBroker, startInProcessBroker } from "./in-process-broker.test.kit.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";
/** In production a handler that blocks for 60 s outlasts a lease of 15 s; here all is a fifteenth of that, in the long form the real thing. */
const FIGURES = isLong ? {} : { pingIntervalMs: 350, leaseMs: 1_000 };
const BLOCKED_MS = isLong ? 60_000 : 4_000;

const TOOLS = `
import { appendFileSync } from "node:fs";
import { defineTool } from "@toolrunner/runner-sdk";
const run = (args, ctx) => {
  appendFileSync(process.env.STARTS_FILE, JSON.stringify({ call: ctx.callId, attempt: ctx.attempt, fence: ctx.fence, pid: process.pid }) + "\\n");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, args.blocked_ms ?? 0);
  return args.later_ms === undefined ? "done" : new Promise((resolve) => setTimeout(resolve, args.later_ms, "done"));
};
const common = { description: "Blocks.", input: { type: "object" }, cancellable: true, run };
export default [defineTool({ ...common, name: "charge" }), defineTool({ ...common, name: "echo", idempotent: true })];
`;

let stage: Stage;
let site: InProcessBroker;
let proxy: TcpProxy;
const processes: CliProcess[] = [];
beforeEach(async () => {
  stage = await createStage();
  site = await startInProcessBroker({ bindings: ["work"], figures: FIGURES });
  proxy = await startTcpProxy(Number(new URL(site.broker.addresses.http).port));
});
afterEach(async () => {
  await Promise.all(processes.splice(0).map((child) => child.kill9()));
  await Promise.all([proxy.close(), site.stop()]);
  await stage.close();
});

async function runner(): Promise<CliProcess> {
  // Below the folder of this package, so that the SDK is found.
  const file = join(import.meta.dirname, `blocking-tools-${process.pid}.mjs`);
  await writeFile(file, TOOLS);
  const { key } = await site.runnerKey("work");
  const args = ["run", file, "--url", `ws://127.0.0.1:${proxy.port}`, "--binding", "work", "--token", key, "--runner-id", "sleeper"];
  const env = { STARTS_FILE: join(stage.folder, "starts") };
  const child = await startCli([...args, "--journal", join(stage.folder, "journal"), "--log-level", "info"], { cwd: stage.folder, env });
  processes.push(child);
  return child;
}

async function call(tool: string, args: object): Promise<string> {
  const made = await site.http("POST", "/v1/calls", { toolset: "work", tool, arguments: args });
  expect(made.status, JSON.stringify(made.body)).toBe(202);
  return String(made.body.id);
}

const sessions = (): number => site.events.filter(({ event }) => event === "session_opened").length;
const startsOf = (id: string): number => stage.starts().filter((start) => start.call === id).length;

describe(`a handler that blocks its event loop for ${BLOCKED_MS / 1_000} s, over a lease of ${(FIGURES.leaseMs ?? 15_000) / 1_000} s`, () => {
  it("R8: what is not safe to repeat is told as unknown, started once, and settles with its own result", { timeout: 120_000 }, async () => {
    await runner();
    const id = await call("charge", { blocked_ms: BLOCKED_MS });
    const told = await eventually(
      "the unknown outcome",
      async () => {
        const { body } = await site.http("GET", `/v1/calls/${id}?wait_seconds=30`);
        return body.state === "needs_reconciliation" ? body : undefined;
      },
      60_000,
    );
    expect(told.attempt).toBe(1);
    const settled = await eventually(
      "the result",
      async () => {
        const { body } = await site.http("GET", `/v1/calls/${id}`);
        return body.state === "succeeded" ? body : undefined;
      },
      BLOCKED_MS + 20_000,
    );
    expect(settled).toMatchObject({ attempt: 1, result: "done" });
    expect(startsOf(id)).toBe(1);
    const next = await site.http("POST", "/v1/calls", { toolset: "work", tool: "charge", arguments: {}, wait_seconds: 20 });
    expect(next.body.state).toBe("succeeded");
    console.log(`sessions of a runner that blocked once: ${sessions()}`);
    expect(sessions()).toBeLessThanOrEqual(3);
  });

  it("R8: what is safe to repeat gets one result, whichever attempt brings it", { timeout: 120_000 }, async () => {
    await runner();
    const id = await call("echo", { blocked_ms: BLOCKED_MS });
    const { body } = await site.http("GET", `/v1/calls/${id}?wait_seconds=60`);
    expect(body).toMatchObject({ state: "succeeded", result: "done" });
    expect(startsOf(id)).toBeLessThanOrEqual(2);
  });
});

describe("a machine that sleeps with a call running, and wakes to a socket that looks open and is dead", () => {
  it("R2, R8: the result arrives once, nothing is started twice, and it connects once", { timeout: 120_000 }, async () => {
    const child = await runner();
    const id = await call("charge", { later_ms: 500 });
    await eventually("the handler to start", () => startsOf(id) === 1);
    child.signal("SIGSTOP");
    // Nothing that the broker sends, its close included, gets to the sleeper from now on.
    proxy.freeze(true);
    const told = await eventually(
      "the unknown outcome",
      async () => {
        const { body } = await site.http("GET", `/v1/calls/${id}?wait_seconds=30`);
        return body.state === "needs_reconciliation" ? body : undefined;
      },
      60_000,
    );
    expect(told.attempt).toBe(1);
    await eventually("the session to be given up", () => site.events.some(({ event }) => event === "session_closed"), 60_000);
    proxy.renew();
    const before = sessions();
    child.signal("SIGCONT");
    const settled = await eventually(
      "the result",
      async () => {
        const { body } = await site.http("GET", `/v1/calls/${id}`);
        return body.state === "succeeded" ? body : undefined;
      },
      60_000,
    );
    expect(settled).toMatchObject({ attempt: 1, result: "done" });
    expect(startsOf(id)).toBe(1);
    const next = await site.http("POST", "/v1/calls", { toolset: "work", tool: "charge", arguments: {}, wait_seconds: 20 });
    expect(next.body.state).toBe("succeeded");
    expect(sessions() - before).toBe(1);
  });
});
