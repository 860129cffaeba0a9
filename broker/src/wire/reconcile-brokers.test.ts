import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { APPLIED, answer, crashed, kindsOf, question, view } from "./reconcile.test.kit.js";
import { AGENT, type BrokerParts, connectRunner, createSite, recordedLog, type Site, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

async function broker(site: Site, figures = {}, parts: BrokerParts = {}) {
  const started = await startBroker(site, figures, parts);
  stops.push(() => started.stop());
  return started;
}

describe("several brokers (G4, B1)", () => {
  it("ask and answer over the bus when the session is elsewhere", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const two = await broker(site);
    const { told, back } = await crashed(one);
    const runner = await back(two);
    answer(runner, await question(runner), APPLIED);
    expect(await told).toMatchObject({ state: "succeeded", result: { paid: 7 } });
  });

  it("hold the turn also for an agent that waits at another broker than the driver", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, { reconcileTurnMs: 60_000 });
    const two = await broker(site, { reconcileTurnMs: 60_000 });
    const { callId, back } = await crashed(one, { wait_seconds: 0 });
    const runner = await back();
    const asked = await question(runner);
    const began = performance.now();
    expect(await two.wire.calls.get(AGENT, callId, { wait_seconds: 0.2 })).toMatchObject({ state: "needs_reconciliation" });
    expect(performance.now() - began).toBeGreaterThan(190);
    const waiting = two.wire.calls.get(AGENT, callId, { wait_seconds: 20 });
    answer(runner, asked, APPLIED);
    expect(await waiting).toMatchObject({ state: "succeeded" });
  });

  it("hear the answer when the driver died while the handler looked: whoever takes over goes on from the log", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const two = await broker(site);
    const { callId, back } = await crashed(one, { wait_seconds: 0 });
    const runner = await back(two);
    const asked = await question(runner);
    one.kill();
    answer(runner, asked, APPLIED);
    await until("the settlement", async () => (await view(two, callId).catch(() => undefined))?.state === "succeeded");
  });

  it("ask anew when the driver died between storing what was lost and asking, without another hello", async () => {
    const { log, lines } = recordedLog();
    const site = createSite(log);
    const one = await broker(site);
    const two = await broker(site);
    // The runner comes back without a word of the start, as when its driver answered and died.
    const { callId, back } = await crashed(one, { wait_seconds: 0 });
    await until("the lost lease", () => kindsOf(site, callId).includes("lease_lost"));
    one.kill();
    const runner = await connectRunner(two.wire, { reconciles: true });
    const asked = await question(runner);
    answer(runner, asked, APPLIED);
    await until("the settlement", async () => (await view(two, callId).catch(() => undefined))?.state === "succeeded");
    expect(lines.some(({ event, fields }) => event === "reconcile_asked" && fields["call_id"] === callId)).toBe(true);
    expect(back).toBeDefined();
  });

  it("send a question again that a dead driver had stored", async () => {
    const site = createSite(silentLog);
    const two = await broker(site);
    const one = await broker(site);
    const { callId, back } = await crashed(one, { wait_seconds: 0 });
    const runner = await back(two);
    const asked = await question(runner);
    one.kill();
    const again = await question(runner, 1);
    expect(again.grant.callId).toBe(callId);
    answer(runner, again, APPLIED);
    await until("the settlement", async () => (await view(two, callId).catch(() => undefined))?.state === "succeeded");
    // The same question while it stands, else a newer one; never two that count.
    expect(again.grant.fence).toBeGreaterThanOrEqual(asked.grant.fence);
  });
});
