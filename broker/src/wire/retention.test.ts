import { ReceiptDisposition } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { createLocalBusHub } from "../bus/local/local-bus.js";
import type { Ledger } from "../domain/ports/ledger.js";
import { createMemoryLedger } from "../ledger/memory/memory-ledger.js";
import type { RemovedCall } from "./retention.js";
import {
  AGENT,
  type BrokerParts,
  connectRunner,
  createSite,
  recordedLog,
  type ScriptedRunner,
  type Site,
  startBroker,
  type TestBroker,
  until,
} from "./wire.test.kit.js";
import { withLedger } from "./with-ledger.test.kit.js";

const DAY = 86_400_000;
const WEEK = 7 * DAY;
const SWEEP = { retentionSweepMs: 20, retentionPaceMs: 0, settledMemoryMs: 1 };
const BIG = JSON.stringify("x".repeat(300_000));

const started: TestBroker[] = [];
afterEach(async () => {
  await Promise.all(started.splice(0).map((broker) => broker.stop()));
});

interface Scene {
  readonly site: Site;
  readonly lines: ReturnType<typeof recordedLog>["lines"];
  /** Days that went by since the scene began. */
  days: number;
  broker(parts?: BrokerParts, site?: Site, figures?: Record<string, number>): Promise<TestBroker>;
  /** Runs a call to its end. */
  settle(broker: TestBroker, runner: ScriptedRunner, key?: string, resultJson?: string): Promise<string>;
  stored(callId: string): number;
}

function scene(): Scene {
  const { log, lines } = recordedLog();
  const site = createSite(log);
  const made: Scene = {
    site,
    lines,
    days: 0,
    async broker(parts = {}, at = site, figures = {}) {
      const broker = await startBroker(
        at,
        { ...SWEEP, ...figures },
        { retentionMs: WEEK, now: () => Date.now() + made.days * DAY, ...parts },
      );
      started.push(broker);
      return broker;
    },
    async settle({ wire }, runner, key, resultJson) {
      const creating = wire.calls.create(AGENT, { ...CALL, ...(key === undefined ? {} : { idempotency_key: key }), wait_seconds: 5 }, {});
      runner.succeed(await runner.next(), resultJson);
      const call = await creating;
      expect(call.state).toBe("succeeded");
      return call.id;
    },
    stored: (callId) => site.store.entriesOfCall.get(callId)?.length ?? 0,
  };
  return made;
}

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };

async function refusal(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return "not refused";
  } catch (error) {
    return (error as { readonly code: string }).code;
  }
}

describe("retention (X12, L6)", () => {
  it("removes a call with its entries and its value when its time is over, and no other", async () => {
    const world = scene();
    const one = await world.broker();
    const runner = await connectRunner(one.wire);
    const old = await world.settle(one, runner, undefined, BIG);
    expect(world.site.store.blobs.size).toBe(1);
    world.days = 6.9;
    const young = await world.settle(one, runner);
    world.days = 7.1;
    await until("the old call's removal", () => world.stored(old) === 0);
    expect(world.site.store.blobs.size).toBe(0);
    expect(world.stored(young)).toBe(2);
    expect(await refusal(one.wire.calls.get(AGENT, old, {}))).toBe("not_found");
    expect((await one.wire.calls.get(AGENT, young, {})).state).toBe("succeeded");
    const swept = await until("the log line", () => world.lines.find(({ event }) => event === "retention_swept"));
    expect(swept.fields).toMatchObject({ calls: 1, values: 1, unreadable: 0 });
  });

  it("never touches an open call, however old, and goes on behind it", async () => {
    const world = scene();
    const one = await world.broker();
    const open = await one.wire.calls.create(AGENT, { ...CALL, tool: "asked" }, {});
    const runner = await connectRunner(one.wire);
    const old = await world.settle(one, runner);
    world.days = 400;
    await until("the removal of what is settled", () => world.stored(old) === 0);
    expect(world.stored(open.id)).toBe(1);
    expect((await one.wire.calls.get(AGENT, open.id, {})).state).toBe("awaiting_confirmation");
  });

  it("removes nothing when it is told to keep calls for ever", async () => {
    const world = scene();
    const looks = { count: 0 };
    const one = await world.broker({
      retentionMs: "never",
      ledger: (inner) =>
        withLedger(inner, {
          places(from, signal) {
            looks.count += 1;
            return inner.places(from, signal);
          },
        }),
    });
    const old = await world.settle(one, await connectRunner(one.wire));
    world.days = 4_000;
    let sweeps = 0;
    await until("three sweeps", async () => {
      sweeps += 1;
      await new Promise((resolve) => setTimeout(resolve, 30));
      return sweeps >= 3;
    });
    expect([world.stored(old), looks.count]).toEqual([2, 0]);
  });

  it("makes a new call of a key whose call was removed, with the same id and higher versions (X2, L3)", async () => {
    const world = scene();
    const one = await world.broker();
    const runner = await connectRunner(one.wire);
    const first = await world.settle(one, runner, "key-1");
    const fence = runner.grants[0]?.fence ?? 0;
    world.days = 8;
    await until("the removal", () => world.stored(first) === 0);
    const again = await world.settle(one, runner, "key-1", '"second"');
    expect(again).toBe(first);
    expect((await one.wire.calls.get(AGENT, again, {})).result).toBe("second");
    expect(runner.grants).toHaveLength(2);
    expect(runner.grants[1]?.fence).toBeGreaterThan(fence);
  });

  it("answers receipts of a removed call with expired, and stores nothing (G5)", async () => {
    const world = scene();
    const one = await world.broker();
    const runner = await connectRunner(one.wire);
    const callId = await world.settle(one, runner);
    const [grant] = runner.grants;
    world.days = 8;
    await until("the removal", () => world.stored(callId) === 0);
    const entries = world.site.store.entries.length;
    if (grant === undefined) throw new Error("no grant");
    runner.succeed(grant, BIG);
    const acks = () => runner.received.filter((frame) => frame.$case === "receiptAck");
    await until("the second acknowledgement", () => acks().length === 2);
    expect(acks()[1]?.value).toMatchObject({ callId, disposition: ReceiptDisposition.EXPIRED });
    expect([world.site.store.entries.length, world.site.store.blobs.size]).toEqual([entries, 0]);
  });

  it("is told to the other brokers, which forget the call as well", async () => {
    const world = scene();
    const dropped: RemovedCall[][] = [[], []];
    const [one, two] = (await Promise.all(
      dropped.map((heard) =>
        world.broker({
          index: { list: async () => ({ data: [], next_page: null }), dropped: (calls) => void heard.push(...calls) },
        }),
      ),
    )) as [TestBroker, TestBroker];
    await until("both to see each other", () => one.wire.readings().liveBrokers === 2 && two.wire.readings().liveBrokers === 2);
    const callId = await world.settle(one, await connectRunner(one.wire));
    world.days = 8;
    await until("both indexes", () => dropped.every((heard) => heard.length > 0));
    for (const heard of dropped) expect(heard[0]).toEqual({ callId, opened: 1 });
  });

  it("goes on at its next sweep when the ledger failed in the middle", async () => {
    const world = scene();
    let fails = true;
    const one = await world.broker({
      ledger: (inner) =>
        withLedger(inner, {
          remove: async (callId, versions) => {
            if (fails) throw new Error("the disk is full");
            await inner.remove(callId, versions);
          },
        }),
    });
    const callId = await world.settle(one, await connectRunner(one.wire));
    world.days = 8;
    await until("the failure", () => world.lines.some(({ event }) => event === "retention_failed"));
    expect(world.stored(callId)).toBe(2);
    fails = false;
    await until("the removal", () => world.stored(callId) === 0);
  });

  it("takes its time: calls go no faster than the pace", async () => {
    const world = scene();
    const first = await world.broker({ retentionMs: "never" });
    const runner = await connectRunner(first.wire);
    const calls: string[] = [];
    for (let number = 0; number < 70; number += 1) calls.push(await world.settle(first, runner));
    world.days = 8;
    await first.stop();
    const begunAt = performance.now();
    await world.broker({}, world.site, { retentionPaceMs: 5 });
    await until("all removals", () => calls.every((callId) => world.stored(callId) === 0));
    // The last of three batches begins when two of 32 have had their time.
    expect(performance.now() - begunAt).toBeGreaterThan(64 * 5);
  });
});

describe("a call whose removal was cut off", () => {
  /** A settled call of key `key-1` of which only the last entry is left. */
  async function halfRemoved(world: Scene) {
    const one = await world.broker({ retentionMs: undefined });
    const runner = await connectRunner(one.wire);
    const callId = await world.settle(one, runner, "key-1");
    await until("the driver to be forgotten", () => one.wire.inspect().drivers === 0);
    await createMemoryLedger({ store: world.site.store }).remove(callId, [1]);
    return { one, runner, callId };
  }

  it("is expired for its application, and unknown to any other (A2)", async () => {
    const world = scene();
    const { one, callId } = await halfRemoved(world);
    const { calls } = one.wire;
    const asked = (who: typeof AGENT): Promise<unknown>[] => [
      calls.get(who, callId, { wait_seconds: 1 }),
      calls.cancel(who, callId, {}),
      calls.confirm(who, callId, { decision: "allow" }),
      calls.reconcile(who, callId, { outcome: "abandon" }),
      calls.readResult(who, callId, {}),
      calls.listEvents(who, callId, 0),
    ];
    expect(await Promise.all(asked(AGENT).map(refusal))).toEqual(Array.from({ length: 6 }, () => "call_expired"));
    expect(await Promise.all(asked({ ...AGENT, application: "other" }).map(refusal))).toEqual(Array.from({ length: 6 }, () => "not_found"));
    expect(world.lines.filter(({ event }) => event === "entry_rejected")).toEqual([]);
  });

  it("is not adopted by a broker that starts, and the next sweep finishes it", async () => {
    const world = scene();
    const { one, callId } = await halfRemoved(world);
    await one.stop();
    const two = await world.broker();
    await until("the rest to go", () => world.stored(callId) === 0);
    expect(world.lines.filter(({ event }) => event === "call_adopted")).toEqual([]);
    expect(await refusal(two.wire.calls.get(AGENT, callId, {}))).toBe("not_found");
  });

  it("gives way to a new call of its key, at any number of brokers at once", async () => {
    const world = scene();
    const { one, runner, callId } = await halfRemoved(world);
    const two = await world.broker({ retentionMs: undefined });
    const body = { ...CALL, idempotency_key: "key-1", wait_seconds: 5 };
    const answers = [one, two, one, two].map(({ wire }) => wire.calls.create(AGENT, body, {}));
    runner.succeed(await runner.next(), '"second"');
    expect((await Promise.all(answers)).map(({ id, result }) => [id, result])).toEqual(Array.from({ length: 4 }, () => [callId, "second"]));
    expect(runner.grants).toHaveLength(2);
    expect(world.stored(callId)).toBeGreaterThan(1);
  });

  it("takes no receipt (G5)", async () => {
    const world = scene();
    const { runner, callId } = await halfRemoved(world);
    const [grant] = runner.grants;
    if (grant === undefined) throw new Error("no grant");
    runner.succeed(grant, BIG, "b".repeat(64));
    const ack = await until("the acknowledgement", () => runner.received.filter((frame) => frame.$case === "receiptAck")[1]);
    expect(ack.value).toMatchObject({ callId, disposition: ReceiptDisposition.EXPIRED });
    expect([world.stored(callId), world.site.store.blobs.size]).toEqual([1, 0]);
  });
});

describe("a broker that dies while it removes a call", () => {
  it("leaves it whole or expired at each step, and another one finishes (L6)", async () => {
    for (let steps = 0, isDone = false; !isDone; steps += 1) {
      const world = scene();
      const left = { steps };
      const one = await world.broker({ ledger: (inner) => dyingAfter(inner, left) });
      const runner = await connectRunner(one.wire);
      const callId = await world.settle(one, runner, "key-1", BIG);
      world.days = 8;
      await until("the last step", () => left.steps < 0 || world.stored(callId) === 0);
      isDone = left.steps >= 0;
      const two = await world.broker({ retentionMs: undefined });
      const seen = await two.wire.calls.get(AGENT, callId, {}).then(
        ({ state }) => state,
        (error: unknown) => (error as { readonly code: string }).code,
      );
      expect(["succeeded", "call_expired", "not_found"], `after ${steps} steps`).toContain(seen);
      expect(runner.grants, `after ${steps} steps`).toHaveLength(1);
      one.kill();
      started.splice(started.indexOf(one), 1);
      await two.stop();
      await world.broker();
      await until(`the rest to go after ${steps} steps`, () => world.stored(callId) === 0 && world.site.store.blobs.size === 0);
      expect(steps).toBeLessThan(10);
    }
  });
});

describe("two brokers that both think it is theirs to remove calls", () => {
  it("do no harm to each other, nor to a call that has the same id again", async () => {
    const world = scene();
    // They do not see each other: each has a bus of its own.
    const apart: Site = { ...world.site, hub: createLocalBusHub() };
    const first = await world.broker({ retentionMs: "never" });
    const runner = await connectRunner(first.wire);
    const calls: string[] = [];
    for (let number = 0; number < 40; number += 1)
      calls.push(await world.settle(first, runner, `key-${number}`, number % 4 === 0 ? BIG : undefined));
    world.days = 8;
    await Promise.all([world.broker(), world.broker({}, apart)]);
    await until("all removals", () => calls.every((callId) => world.stored(callId) === 0));
    const again: string[] = [];
    for (let number = 0; number < 40; number += 1)
      again.push(await world.settle(first, runner, `key-${number}`, number % 4 === 0 ? BIG : undefined));
    expect(again).toEqual(calls);
    for (const callId of again) expect((await first.wire.calls.get(AGENT, callId, {})).state).toBe("succeeded");
    expect(world.site.store.blobs.size).toBe(10);
    expect(world.lines.filter(({ event }) => event === "retention_failed")).toEqual([]);
  });
});

/** A ledger that removes so many things, one at a time, and then answers nothing that would remove more. */
function dyingAfter(inner: Ledger, left: { steps: number }): Ledger {
  const never = new Promise<never>(() => undefined);
  const step = async <T>(work: () => Promise<T>): Promise<T> => {
    left.steps -= 1;
    return left.steps < 0 ? never : work();
  };
  return withLedger(inner, {
    remove: async (callId, versions) => {
      for (const version of versions) await step(() => inner.remove(callId, [version]));
    },
    blobs: {
      put: (name, text) => inner.blobs.put(name, text),
      get: (name) => inner.blobs.get(name),
      places: (from, signal) => inner.blobs.places(from, signal),
      placeOf: (name) => inner.blobs.placeOf(name),
      remove: (blob) => step(() => inner.blobs.remove(blob)),
    },
  });
}
