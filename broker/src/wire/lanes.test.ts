import { Submitted } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { decodeEntry } from "../domain/call/entry-codec.js";
import type { LaneStore } from "../domain/ports/lanes.js";
import type { Ledger } from "../domain/ports/ledger.js";
import { laneOf } from "./lane-desk.js";
import type { CreateCallBody } from "./operations.js";
import {
  AGENT,
  type BrokerParts,
  connectRunner,
  createSite,
  recordedLog,
  type Site,
  startBroker,
  type TestBroker,
  until,
} from "./wire.test.kit.js";
import { withLedger } from "./with-ledger.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

async function broker(site: Site, figures = {}, parts: BrokerParts = {}): Promise<TestBroker> {
  const started = await startBroker(site, figures, parts);
  let dead = false;
  stops.push(() => (dead ? undefined : started.stop()));
  return {
    ...started,
    kill() {
      dead = true;
      started.kill();
    },
  };
}

const call = (n: number, key = "order_1"): CreateCallBody => ({ toolset: "shop", tool: "echo", arguments: { n }, ordering_key: key });
const nOf = (grant: { readonly argumentsJson: string }): number => (JSON.parse(grant.argumentsJson) as { n: number }).n;

/** A ledger whose lanes do as the test says. */
function withLanes(change: (lanes: LaneStore) => Partial<LaneStore>): (ledger: Ledger) => Ledger {
  return (inner) =>
    withLedger(inner, {
      lanes: {
        join: (lane, callId) => inner.lanes.join(lane, callId),
        first: (lane) => inner.lanes.first(lane),
        leave: (lane, member) => inner.lanes.leave(lane, member),
        ...change(inner.lanes),
      },
    });
}

const later = <T>(ms: number, value: T): Promise<T> => new Promise((resolve) => setTimeout(() => resolve(value), ms));

describe("calls with one ordering key", () => {
  it("run one at a time in the order in which they were acknowledged, however many slots are free (X10)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire, { slots: 16 });
    for (let n = 0; n < 12; n += 1) {
      await one.wire.calls.create(AGENT, call(n), {});
    }
    for (let n = 0; n < 12; n += 1) {
      const grant = await runner.next();
      expect(nOf(grant)).toBe(n);
      expect(runner.grants.length).toBe(n + 1);
      runner.succeed(grant);
    }
    await until("an empty lane", () => site.store.lanes.members.size === 0);
    expect(one.wire.inspect()["inLanes"]).toBe(0);
  });

  it("keep that order over brokers, whichever took which call and wherever the runner is (X10, B4)", async () => {
    const site = createSite(silentLog);
    const brokers = [await broker(site), await broker(site), await broker(site)];
    for (let n = 0; n < 15; n += 1) {
      await (brokers[n % 3] as TestBroker).wire.calls.create(AGENT, call(n), {});
    }
    const runner = await connectRunner((brokers[1] as TestBroker).wire, { slots: 8 });
    for (let n = 0; n < 15; n += 1) {
      const grant = await runner.next();
      expect(nOf(grant)).toBe(n);
      expect(runner.grants.length).toBe(n + 1);
      runner.succeed(grant);
    }
  });

  it("of other keys, and calls without one, are not held up", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire, { slots: 8 });
    await one.wire.calls.create(AGENT, call(0, "a"), {});
    await one.wire.calls.create(AGENT, call(1, "a"), {});
    await one.wire.calls.create(AGENT, call(2, "b"), {});
    await one.wire.calls.create(AGENT, { toolset: "shop", tool: "echo", arguments: { n: 3 } }, {});
    const granted = [nOf(await runner.next()), nOf(await runner.next()), nOf(await runner.next())];
    expect(granted.sort()).toEqual([0, 2, 3]);
  });

  it("say that they wait for their order, and are known by another lane in another application (X10, A2)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    await connectRunner(one.wire, { slots: 8 });
    const first = await one.wire.calls.create(AGENT, call(0), {});
    const second = await one.wire.calls.create(AGENT, call(1), {});
    expect(
      (await until("running", async () => (await one.wire.calls.get(AGENT, first.id, {})).state === "running")) && second,
    ).toMatchObject({
      state: "queued",
      waiting_for: "order",
    });
    await until("the event", async () =>
      (await one.wire.calls.listEvents(AGENT, second.id, 0)).some(
        ({ event, data }) => event === "waiting" && JSON.stringify(data).includes("order"),
      ),
    );
    const key = { orderingKey: "k" };
    expect(laneOf({ application: "a", ...key })).not.toBe(laneOf({ application: "b", ...key }));
    expect(laneOf({ application: "a", ...key })).toBe(laneOf({ application: "a", ...key }));
    expect(laneOf({ application: "a" })).toBeUndefined();
  });

  it("are held by one that needs reconciliation, until a person said what became of it (X10, B4)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const first = await one.wire.calls.create(AGENT, call(0), {});
    const second = await one.wire.calls.create(AGENT, call(1), {});
    const dying = await connectRunner(one.wire);
    await dying.next();
    dying.close();
    await until("needs_reconciliation", async () => (await one.wire.calls.get(AGENT, first.id, {})).state === "needs_reconciliation");
    const runner = await connectRunner(one.wire, { runnerId: "runner_2", journalId: "journal_2" });
    await later(300, undefined);
    expect(runner.grants).toEqual([]);
    expect(await one.wire.calls.get(AGENT, second.id, {})).toMatchObject({ state: "queued", waiting_for: "order" });
    await one.wire.calls.reconcile(AGENT, first.id, { outcome: "applied", result: 1 });
    expect(nOf(await runner.next())).toBe(1);
  });

  it("are held by one that was submitted, until its final receipt (X5, X10)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const first = await one.wire.calls.create(AGENT, call(0), {});
    await one.wire.calls.create(AGENT, call(1), {});
    const grant = await runner.next();
    const receipt = {
      callId: grant.callId,
      grantId: grant.grantId,
      fence: grant.fence,
      attempt: grant.attempt,
      startedAtUnixMs: 1,
      finishedAtUnixMs: 2,
    };
    const submitted = { $case: "submitted" as const, value: Submitted.create({ handleJson: '"job"' }) };
    runner.send({ $case: "receipt", value: { ...receipt, digest: "b".repeat(64), outcome: submitted } });
    await until("submitted", async () => (await one.wire.calls.get(AGENT, first.id, {})).state === "submitted");
    await later(250, undefined);
    expect(runner.grants.length).toBe(1);
    runner.succeed(grant);
    expect(nOf(await runner.next())).toBe(1);
  });

  it("close up when one in the middle is cancelled or runs out of time (X10, K1)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const ids: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      ids.push((await one.wire.calls.create(AGENT, call(n), {})).id);
    }
    await one.wire.calls.cancel(AGENT, ids[1] as string, {});
    const first = await runner.next();
    expect(nOf(first)).toBe(0);
    runner.succeed(first);
    expect(nOf(await runner.next())).toBe(2);
  });

  it("are acknowledged only when they stand in their lane, also when the request is repeated elsewhere (X10, B4)", async () => {
    const site = createSite(silentLog);
    let letJoin: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      letJoin = resolve;
    });
    const slow = withLanes((lanes) => ({ join: (lane, callId) => gate.then(() => lanes.join(lane, callId)) }));
    const stuck = await broker(site, {}, { ledger: slow });
    const other = await broker(site);
    const body = { ...call(0), idempotency_key: "k" };
    let acknowledged = false;
    const first = stuck.wire.calls.create(AGENT, body, {}).then((view) => {
      acknowledged = true;
      return view;
    });
    await until("the call", () => site.store.openCalls.size === 1);
    // The repeat puts it into the lane itself, and so it comes before what is sent after its answer.
    const repeated = await other.wire.calls.create(AGENT, body, {});
    await other.wire.calls.create(AGENT, call(1), {});
    expect(acknowledged).toBe(false);
    letJoin();
    expect((await first).id).toBe(repeated.id);
    const runner = await connectRunner(other.wire);
    const granted = await runner.next();
    expect(nOf(granted)).toBe(0);
    runner.succeed(granted);
    expect(nOf(await runner.next())).toBe(1);
  });

  it("go on after their broker died with the head granted, or between a creation and its place in the lane (B4, I1, I9)", async () => {
    const site = createSite(silentLog);
    const never = withLanes((lanes) => ({
      join: (lane, callId) => (dying ? new Promise<never>(() => undefined) : lanes.join(lane, callId)),
    }));
    let dying = false;
    const one = await broker(site, {}, { ledger: never });
    const two = await broker(site);
    const runner = await connectRunner(two.wire, { slots: 8 });
    await one.wire.calls.create(AGENT, call(0), {});
    await one.wire.calls.create(AGENT, call(1), {});
    await two.wire.calls.create(AGENT, call(2), {});
    const head = await runner.next();
    dying = true;
    void one.wire.calls.create(AGENT, call(3), {}).catch(() => undefined);
    await until("the fourth call", () => site.store.openCalls.size === 4);
    one.kill();
    runner.succeed(head);
    for (const n of [1, 2, 3]) {
      const grant = await runner.next();
      expect(nOf(grant)).toBe(n);
      expect(runner.grants.length).toBe(n + 1);
      runner.succeed(grant);
    }
  });

  it("go on when a broker died between settling the head and taking it out of the lane (B4)", async () => {
    const { log, lines } = recordedLog();
    const site = createSite(log);
    const one = await broker(site, {}, { ledger: withLanes(() => ({ leave: () => new Promise<never>(() => undefined) })) });
    const two = await broker(site);
    const runner = await connectRunner(two.wire);
    await one.wire.calls.create(AGENT, call(0), {});
    const left = await one.wire.calls.create(AGENT, call(1), {});
    await two.wire.calls.create(AGENT, call(2), {});
    await one.wire.calls.cancel(AGENT, left.id, {});
    runner.succeed(await runner.next());
    await until("the settlement", () => site.store.openCalls.size === 1);
    one.kill();
    expect(nOf(await runner.next())).toBe(2);
    expect(lines.filter(({ event }) => event === "lane_head_removed").map(({ fields }) => fields["reason"])).toEqual([
      "settled",
      "settled",
    ]);
  });

  it("find a place again when their lane was lost, as with a store that was restored without it", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire, { slots: 0 });
    await one.wire.calls.create(AGENT, call(0), {});
    await one.wire.calls.create(AGENT, call(1), {});
    site.store.lanes.members.clear();
    runner.send({ $case: "claim", value: { slots: 8 } });
    const first = await runner.next();
    site.store.lanes.members.clear();
    runner.succeed(first);
    expect(nOf(await runner.next())).toBe(1);
  });

  it("are stored in a form that a broker without lanes refuses to read, so that it never grants them", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { id } = await one.wire.calls.create(AGENT, call(0), {});
    const plain = await one.wire.calls.create(AGENT, { toolset: "shop", tool: "echo", arguments: {} }, {});
    const format = (callId: string): unknown => (JSON.parse(site.store.entriesOfCall.get(callId)?.[0]?.data ?? "{}") as { f?: unknown }).f;
    expect([format(id), format(plain.id)]).toEqual([2, 1]);
    const [entry] = (site.store.entriesOfCall.get(id) ?? []).map(decodeEntry);
    expect(entry).toMatchObject({ kind: "accepted", grant: null, request: { orderingKey: "order_1" } });
  });

  it("wait for the answer of a person in their place (A5, X10)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const asked = await one.wire.calls.create(AGENT, { ...call(0), tool: "asked" }, {});
    const denied = await one.wire.calls.create(AGENT, { ...call(1), tool: "asked" }, {});
    await one.wire.calls.create(AGENT, call(2), {});
    await one.wire.calls.confirm(AGENT, denied.id, { decision: "deny" });
    await later(150, undefined);
    expect(runner.grants).toEqual([]);
    await one.wire.calls.confirm(AGENT, asked.id, { decision: "allow" });
    const grant = await runner.next();
    expect(nOf(grant)).toBe(0);
    runner.succeed(grant);
    expect(nOf(await runner.next())).toBe(2);
  });
});
