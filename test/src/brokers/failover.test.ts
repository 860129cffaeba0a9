import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CliProcess } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { createStage, type Stage } from "./stage.js";

let stage: Stage;
let nats: NatsServer;
beforeEach(async () => {
  stage = await createStage();
  nats = await startNatsServer({ version: "2.10" });
});
afterEach(async () => {
  await stage.close();
  await nats.dispose();
});

async function start(broker: CliProcess, tool: string): Promise<string> {
  const made = await stage.http(broker, "POST", "/v1/calls", { toolset: "work", tool, arguments: { n: 1 } });
  expect(made.status, JSON.stringify(made.body)).toBe(202);
  return String(made.body.id);
}

describe("two brokers on one NATS", () => {
  for (const transport of ["ws", "grpc"] as const) {
    it(`run calls across each other in both directions, over ${transport} (B3)`, async () => {
      const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
      const token = await stage.setUp(a);
      await stage.openGate();
      const runner = await stage.runner({ url: String(b.ready[transport]), token, journal: "journal" });
      const there = await stage.http(a, "POST", "/v1/calls", { toolset: "work", tool: "charge", arguments: { n: 1 }, wait_seconds: 20 });
      expect(there, JSON.stringify(there.body)).toMatchObject({ status: 200, body: { state: "succeeded", result: { pid: runner.pid } } });
      expect(await runner.stop()).toBe(0);

      const other = await stage.runner({ url: String(a.ready[transport]), token, journal: "journal-2" });
      const back = await stage.http(b, "POST", "/v1/calls", { toolset: "work", tool: "charge", arguments: { n: 2 }, wait_seconds: 20 });
      expect(back, JSON.stringify(back.body)).toMatchObject({ status: 200, body: { state: "succeeded", result: { pid: other.pid } } });
      expect(await stage.http(a, "GET", `/v1/calls/${String(back.body.id)}`)).toMatchObject({ status: 200, body: { state: "succeeded" } });
    }, 60_000);
  }

  it("K1: a cancel at either broker reaches a handler whose runner is at the other", async () => {
    const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
    const token = await stage.setUp(a);
    await stage.runner({ url: String(b.ready.ws), token, journal: "journal" });
    for (const [index, asked] of [a, b].entries()) {
      const id = await start(a, "charge");
      await eventually("the handler to start", () => stage.starts().length === index + 1);
      const cancelledAt = performance.now();
      expect((await stage.http(asked, "POST", `/v1/calls/${id}/cancel`, { reason: "not needed" })).status).toBeLessThan(300);
      const settled = await stage.http(b, "GET", `/v1/calls/${id}?wait_seconds=20`);
      expect(settled.body).toMatchObject({ state: "cancelled", error: { code: "call_cancelled" } });
      console.log(`a cancel across two brokers settled its call after ${Math.round(performance.now() - cancelledAt)} ms`);
    }
  }, 60_000);

  it("B1, I9: when one is killed, the other settles its calls, the first within 10 s", async () => {
    const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
    const token = await stage.setUp(a);
    const runner = await stage.runner({ url: String(b.ready.ws), token, journal: "journal" });
    const running = await Promise.all(Array.from({ length: 10 }, (_, index) => start(a, index % 2 === 0 ? "charge" : "lookup")));
    await eventually("the handlers to start", () => stage.starts().length === running.length);
    await a.kill9();
    const killedAt = performance.now();
    await stage.openGate();
    const settledAfter: number[] = [];
    const views = await Promise.all(
      running.map(async (id) => {
        const view = await stage.http(b, "GET", `/v1/calls/${id}?wait_seconds=30`);
        settledAfter.push(Math.round(performance.now() - killedAt));
        return view.body;
      }),
    );
    console.log(`calls of the killed broker settled after ${Math.min(...settledAfter)} to ${Math.max(...settledAfter)} ms`);
    expect(views.map(({ state, attempt }) => ({ state, attempt }))).toEqual(running.map(() => ({ state: "succeeded", attempt: 1 })));
    expect(Math.min(...settledAfter)).toBeLessThan(10_000);
    expect(stage.starts().length).toBe(running.length);
    expect(views.every(({ result }) => (result as { pid: number }).pid === runner.pid)).toBe(true);
  }, 60_000);

  it("B1: one that hangs loses its calls to the other, and harms nothing when it wakes", async () => {
    const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
    const token = await stage.setUp(a);
    await stage.runner({ url: String(b.ready.ws), token, journal: "journal" });
    const running = await Promise.all(Array.from({ length: 6 }, (_, index) => start(a, index % 2 === 0 ? "charge" : "lookup")));
    await eventually("the handlers to start", () => stage.starts().length === running.length);
    a.signal("SIGSTOP");
    try {
      await stage.openGate();
      const views = await Promise.all(running.map((id) => stage.http(b, "GET", `/v1/calls/${id}?wait_seconds=30`)));
      expect(views.map(({ body }) => `${String(body.state)} ${String(body.attempt)}`)).toEqual(running.map(() => "succeeded 1"));
    } finally {
      a.signal("SIGCONT");
    }
    const seen = await Promise.all(running.map((id) => stage.http(a, "GET", `/v1/calls/${id}?wait_seconds=20`)));
    expect(seen.map(({ body }) => `${String(body.state)} ${String(body.attempt)}`)).toEqual(running.map(() => "succeeded 1"));
    expect(stage.starts().length).toBe(running.length);
  }, 60_000);

  it("B1, I9: queued calls of a killed broker that nobody asks for are driven by the other within 10 s", async () => {
    const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
    const token = await stage.setUp(a);
    const queued = await Promise.all(Array.from({ length: 20 }, () => start(a, "lookup")));
    await a.kill9();
    const killedAt = performance.now();
    await stage.openGate();
    await stage.runner({ url: String(b.ready.grpc), token, journal: "journal" });
    await eventually("all calls to start", () => stage.starts().length === queued.length, 20_000);
    const firstMs = Math.round(performance.now() - killedAt);
    console.log(`queued calls of the killed broker all started after ${firstMs} ms`);
    expect(firstMs).toBeLessThan(12_000);
    const views = await Promise.all(queued.map((id) => stage.http(b, "GET", `/v1/calls/${id}?wait_seconds=20`)));
    expect(views.map(({ body }) => body.state)).toEqual(queued.map(() => "succeeded"));
  }, 60_000);
});
