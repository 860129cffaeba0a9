/** Brokers that lose NATS without losing the connection, or stand still while their runners move on. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createStage, type Stage } from "../brokers/stage.js";
import type { CliProcess } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { startTcpProxy, type TcpProxy } from "../kit/tcp-proxy.js";
import { type Balancer, startBalancer } from "./balancer.test.kit.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";
const inFull = (title: string): string => (isLong ? title : `${title} [half a minute of time-outs: npm run test:long]`);

let stage: Stage;
let nats: NatsServer;
let balancer: Balancer;
let proxy: TcpProxy;
beforeEach(async () => {
  [stage, nats, balancer] = await Promise.all([createStage(), startNatsServer({ version: "2.10" }), startBalancer()]);
  proxy = await startTcpProxy(nats.port);
});
afterEach(async () => {
  await stage.close();
  await Promise.all([balancer.close(), proxy.close()]);
  await nats.dispose();
});

async function start(broker: CliProcess, tool: string, key?: string): Promise<string> {
  const more = key === undefined ? {} : { idempotency_key: key };
  const made = await stage.http(broker, "POST", "/v1/calls", { toolset: "work", tool, arguments: { n: 1 }, ...more });
  expect(made.status, JSON.stringify(made.body)).toBe(202);
  return String(made.body.id);
}

describe.skipIf(!isLong)(inFull("a broker whose connection to NATS is open and dead"), () => {
  it("loses its calls to the other within 10 s, tells agents 503 after 5 s, sends its runners there, and harms nothing when it is back (B1, I9, L2)", {
    timeout: 90_000,
  }, async () => {
    const a = await stage.broker(`nats://127.0.0.1:${proxy.port}`);
    const b = await stage.broker(nats.url);
    balancer.add(String(a.ready.http));
    const token = await stage.setUp(a);
    await eventually("the balancer to know one", async () => (await fetch(`${balancer.http}/readyz`)).ok);
    // It connects to the one that will be cut off, and finds the other by the same address.
    const runner = await stage.runner({ url: balancer.ws, token, journal: "journal" });
    balancer.add(String(b.ready.http));
    const running = await Promise.all(["charge", "charge", "lookup", "lookup"].map((tool) => start(a, tool)));
    await eventually("the handlers to start", () => stage.starts().length === running.length);

    proxy.freeze(true);
    const frozenAt = performance.now();
    const refused = await stage.http(a, "POST", "/v1/calls", {
      toolset: "work",
      tool: "charge",
      arguments: {},
      idempotency_key: "while-cut-off",
    });
    const refusedMs = Math.round(performance.now() - frozenAt);
    expect(refused).toMatchObject({ status: 503, body: { error: { code: "ledger_away" } } });
    await stage.openGate();
    const views = await Promise.all(running.map((id) => stage.http(b, "GET", `/v1/calls/${id}?wait_seconds=30`)));
    const settledMs = Math.round(performance.now() - frozenAt);
    console.log(`cut off: 503 after ${refusedMs} ms; calls settled at the other broker after ${settledMs} ms`);
    expect(views.map(({ body }) => `${String(body.state)} ${String(body.attempt)}`)).toEqual(running.map(() => "succeeded 1"));
    expect(refusedMs).toBeLessThan(7_000);
    // Found by 10 s (I9); its runner is sent away after 5 s and dials again after at most one.
    expect(settledMs).toBeLessThan(15_000);

    proxy.freeze(false);
    const repeated = await eventually(
      "the broker to be back",
      async () => {
        const body = { toolset: "work", tool: "charge", arguments: {}, idempotency_key: "while-cut-off", wait_seconds: 20 };
        const answer = await stage.http(a, "POST", "/v1/calls", body);
        return answer.status === 503 ? undefined : answer;
      },
      30_000,
    );
    expect(repeated.body, a.stderr()).toMatchObject({ state: "succeeded", attempt: 1, result: { pid: runner.pid } });
    const seen = await Promise.all(running.map((id) => stage.http(a, "GET", `/v1/calls/${id}?wait_seconds=5`)));
    expect(seen.map(({ body }) => `${String(body.state)} ${String(body.attempt)}`)).toEqual(running.map(() => "succeeded 1"));
    expect(stage.starts()).toHaveLength(running.length + 1);
  });
});

describe.skipIf(!isLong)(inFull("two sessions of one runner id at two brokers (B2)"), () => {
  it("while the older one's broker stands still: the newer is served, the older is closed for good when it wakes, and nothing runs twice", {
    timeout: 90_000,
  }, async () => {
    const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
    const token = await stage.setUp(a);
    const older = await stage.runner({ url: String(a.ready.ws), token, journal: "journal-1", runnerId: "twin" });
    const first = await start(a, "charge");
    await eventually("the first to start", () => stage.starts().length === 1);
    a.signal("SIGSTOP");
    let newer: CliProcess;
    const during: string[] = [];
    try {
      newer = await stage.runner({ url: String(b.ready.grpc), token, journal: "journal-2", runnerId: "twin" });
      for (const tool of ["charge", "lookup", "charge"]) during.push(await start(b, tool));
      await eventually("those at the newer one to start", () => stage.starts().length === 4);
    } finally {
      a.signal("SIGCONT");
    }
    // A superseded runner does not dial again: the command ends.
    const code = await older.exited;
    expect(code).not.toBe(0);
    expect(older.stderr()).toContain("superseded");
    await stage.openGate();
    const views = await Promise.all(during.map((id) => stage.http(a, "GET", `/v1/calls/${id}?wait_seconds=20`)));
    expect(views.map(({ body }) => [body.state, body.attempt, (body.result as { pid: number }).pid])).toEqual(
      during.map(() => ["succeeded", 1, newer.pid]),
    );
    const starts = stage.starts().filter(({ call }) => call === first);
    expect(starts.map(({ pid }) => pid)).toEqual([older.pid]);
    // What the older one had begun has no other outcome than its own: it may not be run again.
    const unknown = await stage.http(b, "GET", `/v1/calls/${first}?wait_seconds=40`);
    expect(["needs_reconciliation", "succeeded", "failed"]).toContain(unknown.body.state);
    expect(stage.starts().filter(({ call }) => call === first)).toHaveLength(1);
    const after = await Promise.all([start(a, "charge"), start(b, "lookup")]);
    const late = await Promise.all(after.map((id) => stage.http(a, "GET", `/v1/calls/${id}?wait_seconds=20`)));
    expect(late.map(({ body }) => (body.result as { pid: number }).pid)).toEqual([newer.pid, newer.pid]);
  });
});
