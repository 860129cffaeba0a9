import { setMaxListeners } from "node:events";
import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { PROGRESS_BYTES_MAX } from "../domain/limits.js";
import type { Bus } from "../domain/ports/bus.js";
import { AGENT, type BrokerParts, connectRunner, createSite, type Site, startBroker, until } from "./wire.test.kit.js";
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

/** Counts the requests of a broker by the endpoint they go to. */
function counting(bus: Bus, counts: Map<string, number>): Bus {
  return {
    ...bus,
    request(subject, payload, options) {
      const name = subject.split(".").at(-1) ?? "";
      counts.set(name, (counts.get(name) ?? 0) + 1);
      return bus.request(subject, payload, options);
    },
  };
}

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };

/** @param names takes them as they come. */
async function all(events: AsyncIterable<{ readonly event: string }>, names: string[] = []): Promise<string[]> {
  for await (const { event } of events) {
    names.push(event);
  }
  return names;
}

describe("agents that wait", () => {
  it("on a settled call, with nothing more to come, are answered at once", async () => {
    const one = await broker(createSite(silentLog));
    const runner = await connectRunner(one.wire);
    const pending = one.wire.calls.create(AGENT, { ...CALL, wait_seconds: 5 }, {});
    runner.succeed(await runner.next());
    const call = await pending;
    const last = (await one.wire.calls.listEvents(AGENT, call.id, 0)).at(-1)?.seq ?? 0;
    const startedAt = performance.now();
    expect(await all(one.wire.calls.watchEvents(AGENT, call.id, last, new AbortController().signal))).toEqual([]);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });

  it("at another broker than the driver cost a request now and then, however much progress there was", async () => {
    const site = createSite(silentLog);
    const a = await broker(site);
    const counts = new Map<string, number>();
    const b = await broker(site, {}, { bus: (bus) => counting(bus, counts) });
    const runner = await connectRunner(a.wire);
    const call = await a.wire.calls.create(AGENT, CALL, {});
    const { grantId, fence, ...grant } = await runner.next();
    for (let index = 0; index < 50; index += 1) {
      const value = { callId: call.id, grantId, fence, text: `${index}`, percentage: undefined, dataJson: "" };
      runner.send({ $case: "progress", value });
    }
    await until("the progress", async () => (await a.wire.calls.listEvents(AGENT, call.id, 0)).length > 50);
    counts.clear();
    const waiting = b.wire.calls.get(AGENT, call.id, { wait_seconds: 1 });
    expect((await waiting).state).toBe("running");
    expect(counts.get("command")).toBeLessThanOrEqual(6);
    runner.succeed({ ...grant, grantId, fence });
  });

  it("and go away leave nothing behind, wherever the driver is", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const call = await a.wire.calls.create(AGENT, CALL, {});
    for (const { wire } of [a, b]) {
      const controller = new AbortController();
      setMaxListeners(0, controller.signal);
      const gone = Promise.all([
        ...Array.from({ length: 50 }, () => wire.calls.get(AGENT, call.id, { wait_seconds: 60, signal: controller.signal })),
        ...Array.from({ length: 50 }, () => all(wire.calls.watchEvents(AGENT, call.id, 1_000, controller.signal))),
      ]);
      await new Promise((resolve) => setTimeout(resolve, 50));
      const startedAt = performance.now();
      controller.abort();
      await gone;
      expect(performance.now() - startedAt).toBeLessThan(500);
    }
    await a.wire.calls.cancel(AGENT, call.id, {});
  });

  it("see all events of a call whose progress no message of the bus could hold, at a broker that does not drive it", async () => {
    const site = createSite(silentLog);
    // A machine that is busy with other tests answers late: nobody is to take that for dead here.
    const figures = { driverAnswerMs: 5_000, goneAfterMs: 10_000 };
    const [a, b] = [await broker(site, figures), await broker(site, figures)];
    const runner = await connectRunner(a.wire);
    const call = await a.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    const text = "x".repeat(PROGRESS_BYTES_MAX - 10);
    const many = 150;
    for (let index = 0; index < many; index += 1) {
      const value = { callId: call.id, grantId: grant.grantId, fence: grant.fence, text, percentage: undefined, dataJson: "" };
      runner.send({ $case: "progress", value });
      if (index % 30 === 29) {
        await until("the progress", async () => (await a.wire.calls.listEvents(AGENT, call.id, 0)).length >= index + 4);
      }
    }
    expect((await b.wire.calls.listEvents(AGENT, call.id, 0)).length).toBe(many + 3);
    const names: string[] = [];
    const watching = all(b.wire.calls.watchEvents(AGENT, call.id, 0, new AbortController().signal), names);
    // X6: what was not fetched when the call settled may be left out.
    await until("the watcher to see all progress", async () => names.length >= many + 3);
    runner.succeed(grant);
    const watched = await watching;
    expect(watched.filter((event) => event === "progress")).toHaveLength(many);
    expect(watched.at(-1)).toBe("settled");
    // The driver kept the call: nobody took it for dead because its answer was large.
    expect(site.store.entries.length).toBe(2);
  });

  it("are told 503 at once while the ledger is away, and nothing piles up for it", async () => {
    const site = createSite(silentLog);
    let away = false;
    let appends = 0;
    const one = await broker(
      site,
      { ledgerAnswerMs: 200 },
      {
        ledger: (inner) =>
          withLedger(inner, {
            append(callId, expected, entry) {
              appends += 1;
              return away ? new Promise(() => undefined) : inner.append(callId, expected, entry);
            },
            check: () => (away ? Promise.reject(new Error("away")) : inner.check()),
          }),
      },
    );
    away = true;
    const create = () =>
      one.wire.calls.create(AGENT, CALL, {}).then(
        () => "created",
        (error: { readonly code?: string }) => error.code,
      );
    expect(await create()).toBe("ledger_away");
    await new Promise((resolve) => setTimeout(resolve, 200));
    const before = appends;
    const startedAt = performance.now();
    expect(await Promise.all(Array.from({ length: 100 }, create))).toEqual(Array.from({ length: 100 }, () => "ledger_away"));
    expect(performance.now() - startedAt).toBeLessThan(150);
    expect(appends).toBe(before);
    away = false;
    await until("the ledger to be back", async () => (await create()) === "created");
  });
});

describe("a broker that drains", () => {
  it("answers whoever waits at once, also for calls that another broker drives", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const call = await a.wire.calls.create(AGENT, CALL, {});
    const waits = Promise.all([
      b.wire.calls.get(AGENT, call.id, { wait_seconds: 60 }),
      all(b.wire.calls.watchEvents(AGENT, call.id, 1_000, new AbortController().signal)),
      a.wire.calls.get(AGENT, call.id, { wait_seconds: 60 }),
      all(a.wire.calls.watchEvents(AGENT, call.id, 1_000, new AbortController().signal)),
    ]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    const startedAt = performance.now();
    a.wire.beginDrain();
    b.wire.beginDrain();
    expect((await waits).map((answer) => (Array.isArray(answer) ? answer : answer.state))).toEqual(["queued", [], "queued", []]);
    expect(performance.now() - startedAt).toBeLessThan(500);
    await expect(a.wire.calls.create(AGENT, CALL, {})).rejects.toMatchObject({ code: "draining" });
  });
});
