import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { kindsOf } from "./reconcile.test.kit.js";
import { AGENT, connectRunner, createSite, type Site, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

async function broker(site: Site, mayRun: () => boolean) {
  const started = await startBroker(site, {}, { mayRun });
  stops.push(() => started.stop());
  return started;
}

const CALL = { toolset: "shop", tool: "echo", arguments: {} };

describe("a call whose caller may not any more (G7)", () => {
  it("is denied when a runner would take it, which never sees it", async () => {
    const site = createSite(silentLog);
    let mayRun = true;
    const one = await broker(site, () => mayRun);
    const { id } = await one.wire.calls.create(AGENT, CALL, {});
    mayRun = false;
    const runner = await connectRunner(one.wire);
    const call = await one.wire.calls.get(AGENT, id, { wait_seconds: 10 });
    expect(call).toMatchObject({ state: "denied", attempt: 0, error: { code: "no_longer_authorized", retryable: false } });
    expect(runner.grants).toEqual([]);
    expect(kindsOf(site, id).at(-1)).toBe("denied");
    // The slot that was reserved for it is free.
    expect(one.wire.inspect()["reserved"]).toBe(0);
  });

  it("is denied in place of another attempt, and after a person confirmed it", async () => {
    const site = createSite(silentLog);
    let mayRun = true;
    const one = await broker(site, () => mayRun);
    const runner = await connectRunner(one.wire, { slots: 1 });
    const repeated = await one.wire.calls.create(AGENT, { ...CALL, tool: "safe" }, {});
    const grant = await runner.next();
    const asked = await one.wire.calls.create(AGENT, { ...CALL, tool: "asked" }, {});
    mayRun = false;
    runner.send({
      $case: "decline",
      value: { callId: grant.callId, grantId: grant.grantId, fence: grant.fence, reason: 1, message: "not now" },
    });
    await one.wire.calls.confirm(AGENT, asked.id, { decision: "allow" });
    for (const { id } of [repeated, asked]) {
      await until("the denial", async () => (await one.wire.calls.get(AGENT, id, {})).state === "denied");
    }
    expect(runner.grants).toHaveLength(1);
  });

  it("goes on where a runner had it before: what runs is the runner's to finish", async () => {
    const site = createSite(silentLog);
    let mayRun = true;
    const one = await broker(site, () => mayRun);
    const runner = await connectRunner(one.wire);
    const told = one.wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    const grant = await runner.next();
    mayRun = false;
    runner.succeed(grant);
    expect(await told).toMatchObject({ state: "succeeded" });
  });
});
