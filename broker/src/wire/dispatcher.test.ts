import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import type { Bus } from "../domain/ports/bus.js";
import { AGENT, type BrokerParts, connectRunner, createSite, type Site, startBroker, TOOL, until } from "./wire.test.kit.js";
import { withLedger } from "./with-ledger.test.kit.js";

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

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };

/** Counts offers and wake-ups. */
function counting(counts: { offers: number; wakeUps: number }) {
  return (bus: Bus): Bus => ({
    ...bus,
    publish(subject, payload) {
      counts.wakeUps += subject === "claims" ? 1 : 0;
      bus.publish(subject, payload);
    },
    requestMany(subject, payload, options) {
      counts.offers += subject.startsWith("offer.") ? 1 : 0;
      return bus.requestMany(subject, payload, options);
    },
  });
}

describe("calls that wait for a runner", () => {
  it("of this broker are granted in the order in which they came", async () => {
    const site = createSite(silentLog);
    const [one] = [await broker(site, { offerRepeatMs: 30 }), await broker(site)];
    const runner = await connectRunner(one.wire, { slots: 0 });
    const calls: string[] = [];
    for (let index = 0; index < 30; index += 1) {
      calls.push((await one.wire.calls.create(AGENT, CALL, {})).id);
    }
    // Their offers to the other broker are repeated meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 150));
    runner.send({ $case: "claim", value: { slots: 1 } });
    const granted: string[] = [];
    for (let index = 0; index < calls.length; index += 1) {
      const grant = await runner.next();
      granted.push(grant.callId);
      runner.succeed(grant);
    }
    expect(granted).toEqual(calls);
  });

  it("do not hold the loop up when a runner comes that can take them all: so many are granted in one turn", async () => {
    const site = createSite(silentLog);
    // A call whose wait is being stored is granted after that, and so out of turn.
    const one = await broker(site, { waitingNoticeMs: 60_000 });
    const calls: string[] = [];
    for (let index = 0; index < 500; index += 1) {
      calls.push((await one.wire.calls.create(AGENT, CALL, {})).id);
    }
    let most = 0;
    let before = 0;
    const look = (): void => {
      const present = one.wire.inspect()["grants"] ?? 0;
      most = Math.max(most, present - before);
      before = present;
      looking = setImmediate(look);
    };
    let looking = setImmediate(look);
    const runner = await connectRunner(one.wire, { slots: 500 });
    const granted: string[] = [];
    for (let index = 0; index < calls.length; index += 1) {
      granted.push((await runner.next()).callId);
    }
    clearImmediate(looking);
    expect(granted).toEqual(calls);
    // Timers and frames have one turn each between two looks.
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(128);
  });

  it("of another broker are granted in the order in which they came, and each costs a few offers, however many wait", async () => {
    const site = createSite(silentLog);
    const counts = { offers: 0, wakeUps: 0 };
    const a = await broker(site, { offerRepeatMs: 60_000 }, { bus: counting(counts) });
    const b = await broker(site);
    const calls: string[] = [];
    for (let index = 0; index < 200; index += 1) {
      calls.push((await a.wire.calls.create(AGENT, CALL, {})).id);
    }
    counts.offers = 0;
    const runner = await connectRunner(b.wire, { slots: 1 });
    const granted: string[] = [];
    for (let index = 0; index < calls.length; index += 1) {
      const grant = await runner.next();
      granted.push(grant.callId);
      runner.succeed(grant);
    }
    expect(granted).toEqual(calls);
    expect(counts.offers).toBeLessThanOrEqual(calls.length * 20);
  });

  it("cost the bus the same while nobody serves them, however many there are", async () => {
    const site = createSite(silentLog);
    const counts = { offers: 0, wakeUps: 0 };
    const a = await broker(site, { offerRepeatMs: 50 }, { bus: counting(counts) });
    await broker(site);
    await Promise.all(Array.from({ length: 500 }, () => a.wire.calls.create(AGENT, CALL, {})));
    await new Promise((resolve) => setTimeout(resolve, 200));
    counts.offers = 0;
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(counts.offers).toBeLessThanOrEqual(30);
    expect(counts.offers).toBeGreaterThan(2);
  });

  it("wake other brokers up with one message, however many handlers the runner has that got free", async () => {
    const site = createSite(silentLog);
    const counts = { offers: 0, wakeUps: 0 };
    const b = await broker(site, {}, { bus: counting(counts) });
    await broker(site);
    await connectRunner(b.wire, { slots: 1 });
    expect(counts.wakeUps).toBe(1);
  });

  it("keep nobody off the fast path who needs another subject's runner", async () => {
    const site = createSite(silentLog);
    const catalog: BrokerParts["catalog"] = {
      getBinding: async (_application, id) => ({ id, name: id, kind: "browser", created_at: "" }),
      resolveTool: async (_application, toolset, name) => ({
        toolset,
        toolsetVersion: 1,
        bindingKind: "browser",
        checkArguments: () => [],
        checkResult: () => [],
        tool: { ...TOOL, name },
      }),
    };
    const one = await broker(site, {}, { catalog });
    const runner = await connectRunner(one.wire, { subject: "present" });
    const waits = await one.wire.calls.create(AGENT, { ...CALL, subject: "offline" }, {});
    expect(await one.wire.calls.get(AGENT, waits.id, {})).toMatchObject({ state: "queued", waiting_for: "runner" });
    const call = await one.wire.calls.create(AGENT, { ...CALL, subject: "present" }, {});
    expect(call.state).toBe("running");
    expect(site.store.entriesOfCall.get(call.id)?.length).toBe(1);
    expect((await runner.next()).callId).toBe(call.id);
  });

  it("are placed again when their grant could not be stored for a reason of the broker's own", async () => {
    const site = createSite(silentLog);
    let failures = 0;
    const one = await broker(
      site,
      {},
      {
        ledger: (inner) =>
          withLedger(inner, {
            append(callId, expected, entry) {
              if (expected > 0 && failures < 3) {
                failures += 1;
                return Promise.reject(new Error("a fault of its own"));
              }
              return inner.append(callId, expected, entry);
            },
          }),
      },
    );
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const runner = await connectRunner(one.wire, { slots: 1 });
    const grant = await until("the grant", () => runner.grants[0]);
    expect([grant.callId, failures]).toEqual([call.id, 3]);
    expect(one.wire.inspect()).toMatchObject({ reserved: 0, placing: 0, delayed: 0 });
  });
});
