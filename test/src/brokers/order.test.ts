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

interface Shown {
  readonly event: string;
  readonly at: string;
}

describe("calls with one ordering key, on three brokers of one NATS", () => {
  it("X10, B4: run one at a time in the order of their acknowledgements, while brokers that drive them are killed", async () => {
    const brokers = await Promise.all([stage.broker(nats.url), stage.broker(nats.url), stage.broker(nats.url)]);
    const [a, b, c] = brokers as [CliProcess, CliProcess, CliProcess];
    const token = await stage.setUp(a);
    await stage.runner({ url: String(c.ready.ws), token, journal: "journal" });
    const ids: string[] = [];
    for (let n = 0; n < 12; n += 1) {
      const body = { toolset: "work", tool: "charge", arguments: { n }, ordering_key: "account_7" };
      const made = await stage.http(brokers[n % 3] as CliProcess, "POST", "/v1/calls", body);
      expect(made.status, JSON.stringify(made.body)).toBe(202);
      ids.push(String(made.body["id"]));
    }
    await eventually("the head to start", () => stage.starts().length === 1);
    const waits = await stage.http(b, "GET", `/v1/calls/${ids[1]}`);
    expect(waits.body).toMatchObject({ state: "queued", waiting_for: "order" });
    // The driver of the head, and with it two of three that wait.
    await Promise.all([a.kill9(), b.kill9()]);
    await stage.openGate();
    for (const id of ids) {
      const settled = await stage.http(c, "GET", `/v1/calls/${id}?wait_seconds=30`);
      expect(settled.body, JSON.stringify(settled.body)).toMatchObject({ state: "succeeded", attempt: 1 });
    }
    expect(stage.starts().map(({ call }) => call)).toEqual(ids);
    const spans = await Promise.all(
      ids.map(async (id) => {
        const events = (await stage.http(c, "GET", `/v1/calls/${id}/events`)).body["data"] as readonly Shown[];
        const at = (name: string): number => Date.parse(events.find(({ event }) => event === name)?.at ?? "");
        return { granted: at("granted"), settled: at("settled") };
      }),
    );
    spans.slice(1).forEach(({ granted }, index) => {
      expect(granted).toBeGreaterThanOrEqual(spans[index]?.settled ?? Number.NaN);
    });
  }, 90_000);
});
