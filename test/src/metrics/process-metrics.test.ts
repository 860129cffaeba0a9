import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ADMIN_KEY, createStage, type Stage } from "../brokers/stage.js";
import type { CliProcess } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { scrape } from "./scrape.js";

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

const urlOf = (broker: CliProcess): string => String(broker.ready.http);

async function keyWith(broker: CliProcess, ...scopes: readonly string[]): Promise<string> {
  const { status, body } = await stage.http(broker, "POST", "/v1/keys", { scopes });
  expect(status, JSON.stringify(body)).toBe(201);
  return String(body.key);
}

async function statusWith(broker: CliProcess, key: string | undefined): Promise<number> {
  const response = await fetch(`${urlOf(broker)}/metrics`, key === undefined ? {} : { headers: { authorization: `Bearer ${key}` } });
  await response.arrayBuffer();
  return response.status;
}

describe("metrics of broker processes on one NATS (D5)", () => {
  it("need their scope, count a call once though another broker takes it over, and are shown while the ledger is away", async () => {
    const [first, second] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
    const [key, other] = [await keyWith(second, "diagnostics:read"), await keyWith(second, "calls:read")];
    expect(await Promise.all([undefined, "wrong", other, key].map((each) => statusWith(second, each)))).toEqual([401, 401, 403, 200]);

    const token = await stage.setUp(second);
    await stage.runner({ url: String(second.ready.ws), token, journal: "journal" });
    const made = await stage.http(first, "POST", "/v1/calls", { toolset: "work", tool: "lookup", arguments: { n: 1 } });
    expect(made.status, JSON.stringify(made.body)).toBe(202);
    await eventually("the handler to start", () => stage.starts().length === 1);
    const accepting = await scrape(urlOf(first), ADMIN_KEY);
    const facts = ["calls_accepted_total", "attempts_total", "calls_settled_total", "calls_adopted_total", "calls_open", "brokers"];
    const factsOf = (shown: typeof accepting) => facts.map((name) => shown.sum(`toolrunner_${name}`));
    expect(factsOf(accepting)).toEqual([1, 1, 0, 0, 1, 2]);

    expect(await first.stop()).toBe(0);
    await eventually("the take-over", async () => (await scrape(urlOf(second), key)).sum("toolrunner_calls_adopted_total") === 1, 20_000);
    await stage.openGate();
    const settled = await stage.http(second, "GET", `/v1/calls/${String(made.body.id)}?wait_seconds=20`);
    expect(settled.body).toMatchObject({ state: "succeeded", attempt: 1 });
    const heir = await scrape(urlOf(second), key);
    expect(factsOf(heir)).toEqual([0, 0, 1, 1, 0, 1]);
    expect(heir.sum("toolrunner_calls_settled_total", { toolset: "work", tool: "lookup", state: "succeeded" })).toBe(1);
    for (const part of ["wait", "run", "total"]) expect([part, heir.sum(`toolrunner_call_${part}_seconds_count`)]).toEqual([part, 1]);
    expect(heir.sum("toolrunner_broker_info", { ledger: "jetstream" })).toBe(1);

    await nats.kill9();
    const away = await eventually(
      "the ledger to count as away",
      async () => {
        const shown = await scrape(urlOf(second), key);
        return shown.sum("toolrunner_ledger_away") === 1 && shown;
      },
      20_000,
    );
    expect(away.sum("toolrunner_ledger_silent_seconds")).toBeGreaterThan(5);
    expect(away.sum("toolrunner_calls_settled_total")).toBe(1);
  }, 60_000);
});
