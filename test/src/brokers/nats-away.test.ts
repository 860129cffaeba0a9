import { afterEach, beforeEach, describe, expect, it } from "vitest";
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

describe("a broker whose NATS is away", () => {
  it("tells agents 503 and not ready, and goes on with every acknowledged call when it is back", async () => {
    const broker = await stage.broker(nats.url);
    const token = await stage.setUp(broker);
    await stage.runner({ url: String(broker.ready.ws), token, journal: "journal" });
    const made = await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        stage.http(broker, "POST", "/v1/calls", {
          toolset: "work",
          tool: "charge",
          arguments: { n: index },
          idempotency_key: `key-${index}`,
        }),
      ),
    );
    expect(made.map(({ status }) => status)).toEqual(made.map(() => 202));
    await eventually("the handlers to start", () => stage.starts().length === made.length);
    await nats.kill9();

    const refused = await stage.http(broker, "POST", "/v1/calls", {
      toolset: "work",
      tool: "charge",
      arguments: {},
      idempotency_key: "while-away",
    });
    expect(refused).toMatchObject({ status: 503, body: { error: { code: "ledger_away" } } });
    const ready = await fetch(`${String(broker.ready.http)}/readyz`);
    expect(ready.status).toBe(503);
    expect((await fetch(`${String(broker.ready.http)}/healthz`)).status).toBe(200);
    // The handlers end while nothing can be stored: their receipts wait.
    await stage.openGate();

    await nats.restart();
    await eventually("the broker to be ready", async () => (await fetch(`${String(broker.ready.http)}/readyz`)).status === 200, 20_000);
    const settled = await Promise.all(made.map(({ body }) => stage.http(broker, "GET", `/v1/calls/${String(body.id)}?wait_seconds=40`)));
    expect(settled.map(({ body }) => `${String(body.state)} ${String(body.attempt)}`)).toEqual(made.map(() => "succeeded 1"));
    const repeated = await stage.http(broker, "POST", "/v1/calls", {
      toolset: "work",
      tool: "charge",
      arguments: {},
      idempotency_key: "while-away",
      wait_seconds: 30,
    });
    expect(repeated.body.state).toBe("succeeded");
    expect(stage.starts().length).toBe(made.length + 1);
    expect(new Set(stage.starts().map(({ call }) => call)).size).toBe(made.length + 1);
  }, 120_000);
});
