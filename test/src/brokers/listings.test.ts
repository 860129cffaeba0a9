/** What listings show of calls that other brokers took, moved and left behind. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CliProcess } from "../kit/cli-process.js";
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

async function create(broker: CliProcess): Promise<string> {
  const made = await stage.http(broker, "POST", "/v1/calls", { toolset: "work", tool: "charge", arguments: { n: 1 } });
  expect(made.status, JSON.stringify(made.body)).toBe(202);
  return String(made.body.id);
}

async function idsAt(broker: CliProcess, query: string): Promise<string[]> {
  const { status, body } = await stage.http(broker, "GET", `/v1/calls?limit=100&${query}`);
  expect(status, JSON.stringify(body)).toBe(200);
  return (body.data as { readonly id: string }[]).map(({ id }) => id);
}

describe("listings at brokers that share one NATS", () => {
  it("show each call at once at every broker, in its present state, whoever took it", async () => {
    const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
    await stage.setUp(a);
    const created: string[] = [];
    for (let round = 0; round < 12; round += 1) {
      const [by, other] = round % 3 === 0 ? [b, a] : [a, b];
      created.unshift(await create(by));
      expect(await idsAt(other, "tool=charge")).toEqual(created);
      expect(await idsAt(by, "state=queued")).toEqual(created);
    }
    const [first = "", ...others] = created;
    expect((await stage.http(a, "POST", `/v1/calls/${first}/cancel`, { reason: "not needed" })).status).toBeLessThan(300);
    for (const broker of [a, b]) {
      expect(await idsAt(broker, "state=cancelled")).toEqual([first]);
      expect(await idsAt(broker, "state=queued")).toEqual(others);
    }
  }, 60_000);

  it("show what was taken before a broker started, also by one that was killed", async () => {
    const a = await stage.broker(nats.url);
    await stage.setUp(a);
    const created: string[] = [];
    for (let index = 0; index < 5; index += 1) created.unshift(await create(a));
    await a.kill9();
    const b = await stage.broker(nats.url);
    expect(await idsAt(b, "tool=charge")).toEqual(created);
    created.unshift(await create(b));
    expect(await idsAt(b, "state=queued")).toEqual(created);
  }, 60_000);
});
