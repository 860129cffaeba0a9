import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { LOCAL_CLAIM } from "./placement.js";
import { AGENT, connectRunner, createSite, type Site, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

async function broker(site: Site, figures = {}) {
  const started = await startBroker(site, figures);
  stops.push(() => started.stop());
  return started;
}

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };
const SAFE = { ...CALL, tool: "safe" };

describe("one broker", () => {
  it("grants a call on the fast path with two ledger writes", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const pending = one.wire.calls.create(AGENT, { ...CALL, wait_seconds: 5 }, {});
    runner.succeed(await runner.next());
    const call = await pending;
    expect(call).toMatchObject({ state: "succeeded", result: "done", receipt: { outcome: "succeeded" } });
    expect(site.store.entries.length).toBe(2);
  });

  it("answers a repeated receipt with repeated, and another one after settlement with evidence (G5)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const pending = one.wire.calls.create(AGENT, { ...CALL, wait_seconds: 5 }, {});
    const grant = await runner.next();
    runner.succeed(grant);
    const call = await pending;
    runner.succeed(grant);
    runner.succeed(grant, '"other"', "b".repeat(64));
    await until("three acknowledgements", () => runner.frames.filter((kind) => kind === "receiptAck").length === 3);
    const events = await one.wire.calls.listEvents(AGENT, call.id, 0);
    expect(events.map(({ event }) => event)).toEqual(["requested", "queued", "granted", "started", "settled", "late_receipt"]);
    expect((await one.wire.calls.get(AGENT, call.id, {})).result).toBe("done");
  });

  it("revokes a grant whose runner no longer lists it, and gives the call to another once it certainly never started (G1)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, { leaseMs: 60_000 });
    const forgetful = await connectRunner(one.wire, { runnerId: "forgetful" });
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await forgetful.next();
    // It answers pings without the grant, then says durably that it never started it.
    forgetful.forget(grant);
    await until("the revoke", () => forgetful.frames.includes("revoke"));
    forgetful.send({ $case: "claim", value: { slots: 0 } });
    forgetful.send({
      $case: "revokeAnswer",
      value: { callId: grant.callId, grantId: grant.grantId, fence: grant.fence, journalId: "journal_1", phase: 1 },
    });
    const other = await connectRunner(one.wire, { runnerId: "other", journalId: "journal_2" });
    const second = await other.next();
    expect(second.callId).toBe(call.id);
    expect(second.attempt).toBe(1);
    expect(second.fence).toBeGreaterThan(grant.fence);
  });

  it("puts a call that is not safe to repeat up for reconciliation when its lease is over, and repeats one that is", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const unsafe = await one.wire.calls.create(AGENT, CALL, {});
    const safe = await one.wire.calls.create(AGENT, SAFE, {});
    await runner.next();
    await runner.next();
    runner.close();
    expect((await one.wire.calls.get(AGENT, unsafe.id, { wait_seconds: 5 })).state).toBe("needs_reconciliation");
    const other = await connectRunner(one.wire, { runnerId: "other", journalId: "journal_2" });
    const grant = await other.next();
    expect(grant).toMatchObject({ callId: safe.id, attempt: 2 });
    other.succeed(grant);
    expect((await one.wire.calls.get(AGENT, safe.id, { wait_seconds: 5 })).state).toBe("succeeded");
    expect(other.grants.length).toBe(1);
  });

  it("keeps the lease of a runner that lists its grants for as long as it does", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    await until("thrice the lease in pings", () => runner.frames.filter((kind) => kind === "ping").length > 24);
    expect((await one.wire.calls.get(AGENT, call.id, {})).state).toBe("running");
    runner.succeed(grant);
    expect((await one.wire.calls.get(AGENT, call.id, { wait_seconds: 5 })).state).toBe("succeeded");
  });

  it("holds a call that a person has to confirm, and runs or denies it by the answer", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const yes = await one.wire.calls.create(AGENT, { ...CALL, tool: "asked" }, {});
    const no = await one.wire.calls.create(AGENT, { ...CALL, tool: "asked" }, {});
    expect(yes).toMatchObject({ state: "awaiting_confirmation", waiting_for: "confirmation", deadline_at: null });
    expect(await one.wire.calls.confirm(AGENT, no.id, { decision: "deny" })).toMatchObject({
      state: "denied",
      error: { code: "confirmation_denied" },
    });
    await one.wire.calls.confirm(AGENT, yes.id, { decision: "allow" });
    const grant = await runner.next();
    expect(grant.callId).toBe(yes.id);
    runner.succeed(grant);
    expect((await one.wire.calls.get(AGENT, yes.id, { wait_seconds: 5 })).state).toBe("succeeded");
    await expect(one.wire.calls.confirm(AGENT, yes.id, { decision: "deny" })).rejects.toMatchObject({ code: "not_awaiting_confirmation" });
  });

  it("leaves a runner that declines alone for a while and routes elsewhere, without using up an attempt", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const busy = await connectRunner(one.wire, { runnerId: "busy" });
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await busy.next();
    const other = await connectRunner(one.wire, { runnerId: "other", journalId: "journal_2" });
    busy.send({ $case: "decline", value: { callId: call.id, grantId: grant.grantId, fence: grant.fence, reason: 1, message: "not now" } });
    expect(await other.next()).toMatchObject({ callId: call.id, attempt: 1 });
  });

  it("answers a frame that it does not know by type and goes on", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    runner.send(undefined);
    await until("the fault", () => runner.frames.includes("protocolFault"));
    const pending = one.wire.calls.create(AGENT, { ...CALL, wait_seconds: 5 }, {});
    runner.succeed(await runner.next());
    expect((await pending).state).toBe("succeeded");
  });

  it("drives the calls of its earlier incarnation: queued ones run, running ones settle from the runner that lived on", async () => {
    const site = createSite(silentLog);
    const first = await startBroker(site);
    const runner = await connectRunner(first.wire, { slots: 1 });
    const running = await first.wire.calls.create(AGENT, CALL, {});
    const queued = await first.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    first.kill();
    const second = await broker(site);
    const held = [{ callId: grant.callId, grantId: grant.grantId, fence: grant.fence, phase: 2 }];
    const back = await connectRunner(second.wire, { slots: 1, held });
    back.succeed(grant, '"lived on"');
    expect(await second.wire.calls.get(AGENT, running.id, { wait_seconds: 5 })).toMatchObject({
      state: "succeeded",
      result: "lived on",
      attempt: 1,
    });
    back.succeed(await back.next());
    expect(await second.wire.calls.get(AGENT, queued.id, { wait_seconds: 5 })).toMatchObject({ state: "succeeded", attempt: 1 });
  });
});

describe("a grant that is asked to be sent again (G1)", () => {
  const ref = (epoch: number, brokerId: string) => ({
    brokerId,
    application: "default",
    binding: "shop",
    runnerId: "runner_1",
    sessionEpoch: epoch,
  });
  const grant = (grantId: string) => ({
    driver: "broker_gone",
    offerId: LOCAL_CLAIM,
    callId: "call_aaaaaaaaaaaaaaaaaaaaaaaaaa",
    grantId,
    fence: 1,
    attempt: 1,
    tool: "echo",
    version: "1",
    toolset: "shop",
    toolsetVersion: 1,
    argumentsJson: "{}",
    subject: null,
    agent: null,
    session: null,
    deadlineAtMs: Date.now() + 30_000,
    scopes: [],
    traceparent: null,
  });
  const send = (wire: Awaited<ReturnType<typeof broker>>["wire"], epoch: number, id: string, brokerId: string) =>
    wire.sessions.onSession(ref(epoch, brokerId), { op: "grant", grant: grant(id) });

  it("is sent once, and never called unsent once it may have reached a runner", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const { data } = await one.wire.runners.list(AGENT, {});
    const epoch = data[0]?.session_epoch ?? 0;
    expect(send(one.wire, epoch, "entry_1", one.id)).toBe("sent");
    expect(send(one.wire, epoch, "entry_1", one.id)).toBe("sent");
    await until("the grant", () => runner.grants.length === 1);
    // A newer session of the same runner takes over at once: the old one may have got the grant.
    await connectRunner(one.wire);
    expect(send(one.wire, epoch, "entry_1", one.id)).toBe("gone");
    expect(runner.grants.length).toBe(1);
  });

  it("is never sent once it was called unsent", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    expect(send(one.wire, 1, "entry_2", one.id)).toBe("never_sent");
    const runner = await connectRunner(one.wire);
    const { data } = await one.wire.runners.list(AGENT, {});
    expect(send(one.wire, data[0]?.session_epoch ?? 0, "entry_2", one.id)).toBe("never_sent");
    expect(send(one.wire, data[0]?.session_epoch ?? 0, "entry_3", one.id)).toBe("sent");
    await until("the other grant", () => runner.grants.length === 1);
    expect(runner.grants[0]?.grantId).toBe("entry_3");
  });

  it("counts for nothing when another journal speaks of it", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const granted = await runner.next();
    const held = [{ callId: call.id, grantId: granted.grantId, fence: granted.fence, phase: 1 }];
    await connectRunner(one.wire, { runnerId: "liar", journalId: "journal_of_a_liar", held });
    await until("three pings", () => runner.frames.filter((kind) => kind === "ping").length >= 3);
    expect((await one.wire.calls.get(AGENT, call.id, {})).state).toBe("running");
    runner.succeed(granted);
    expect((await one.wire.calls.get(AGENT, call.id, { wait_seconds: 5 })).state).toBe("succeeded");
  });
});

describe("two brokers", () => {
  it("run a call of an agent at one on a runner at the other (B3)", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const runner = await connectRunner(b.wire);
    const pending = a.wire.calls.create(AGENT, { ...CALL, wait_seconds: 5 }, {});
    runner.succeed(await runner.next());
    expect((await pending).state).toBe("succeeded");
  });

  it("wake each other up when a runner connects after the call (B3)", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site, { offerRepeatMs: 60_000 }), await broker(site)];
    const call = await a.wire.calls.create(AGENT, CALL, {});
    const runner = await connectRunner(b.wire);
    const grant = await runner.next();
    expect(grant.callId).toBe(call.id);
    runner.succeed(grant);
    expect((await b.wire.calls.get(AGENT, call.id, { wait_seconds: 5 })).state).toBe("succeeded");
  });

  it("repeat open offers, so that a lost wake-up costs time only (B3)", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const runner = await connectRunner(b.wire, { slots: 0 });
    const call = await a.wire.calls.create(AGENT, CALL, {});
    await until("the call to wait", async () =>
      (await a.wire.calls.listEvents(AGENT, call.id, 0)).some(({ event }) => event === "waiting"),
    );
    // A claim that grows on a session with no slot wakes this broker's calls only when a frame is handled: the offer is repeated anyway.
    runner.send({ $case: "claim", value: { slots: 1 } });
    expect((await runner.next()).callId).toBe(call.id);
  });

  it("show live events and answer waits at the broker that does not drive the call", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const runner = await connectRunner(a.wire);
    const call = await a.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    const told: string[] = [];
    const watching = (async () => {
      for await (const { event } of b.wire.calls.watchEvents(AGENT, call.id, 0, new AbortController().signal)) {
        told.push(event);
      }
    })();
    runner.send({ $case: "started", value: { callId: call.id, grantId: grant.grantId, fence: grant.fence, atUnixMs: Date.now() } });
    runner.send({
      $case: "progress",
      value: { callId: call.id, grantId: grant.grantId, fence: grant.fence, text: "half", percentage: 50, dataJson: "" },
    });
    await until("progress at the other broker", () => told.includes("progress"));
    const waiting = b.wire.calls.get(AGENT, call.id, { wait_seconds: 5 });
    runner.succeed(grant);
    expect((await waiting).state).toBe("succeeded");
    await watching;
    expect(told).toEqual(["requested", "queued", "granted", "started", "progress", "settled"]);
  });

  it("take over the calls of one that died, and settle them from its runners (B1, I9)", async () => {
    const site = createSite(silentLog);
    const a = await startBroker(site);
    const b = await broker(site);
    const runner = await connectRunner(a.wire, { slots: 1 });
    const running = await a.wire.calls.create(AGENT, CALL, {});
    const queued = await a.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    a.kill();
    const back = await connectRunner(b.wire, {
      slots: 1,
      held: [{ callId: grant.callId, grantId: grant.grantId, fence: grant.fence, phase: 2 }],
    });
    back.succeed(grant);
    expect((await b.wire.calls.get(AGENT, running.id, { wait_seconds: 5 })).state).toBe("succeeded");
    back.succeed(await back.next());
    expect((await b.wire.calls.get(AGENT, queued.id, { wait_seconds: 5 })).state).toBe("succeeded");
  });

  it("adopt a call for a command when its driver does not answer, before it counts as gone", async () => {
    const site = createSite(silentLog);
    const a = await startBroker(site);
    const b = await broker(site, { goneAfterMs: 60_000 });
    const call = await a.wire.calls.create(AGENT, CALL, {});
    a.kill();
    expect(await b.wire.calls.cancel(AGENT, call.id, {})).toMatchObject({ answered: true, call: { state: "cancelled" } });
  });

  it("make one call of creations with the same key at both (X2)", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const runner = await connectRunner(b.wire);
    const body = { ...CALL, idempotency_key: "same", wait_seconds: 5 };
    const pending = Promise.all(Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? a : b).wire.calls.create(AGENT, body, {})));
    runner.succeed(await runner.next());
    const calls = await pending;
    expect(new Set(calls.map(({ id }) => id)).size).toBe(1);
    expect(runner.grants.length).toBe(1);
  });

  it("supersede a session when its runner id connects at the other broker (B2)", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const first = await connectRunner(a.wire);
    await connectRunner(b.wire, { journalId: "journal_2" });
    expect((await first.closed).code).toBe(4409);
  });

  it("let a runner dial again whose session was superseded by a hello of its own that came late (B2)", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    const present = await connectRunner(a.wire);
    await connectRunner(b.wire);
    expect((await present.closed).code).toBe(4500);
  });

  it("list the runners of both", async () => {
    const site = createSite(silentLog);
    const [a, b] = [await broker(site), await broker(site)];
    await connectRunner(a.wire, { runnerId: "one" });
    await connectRunner(b.wire, { runnerId: "two" });
    const page = await a.wire.runners.list(AGENT, { limit: 1 });
    expect(page.data.map(({ runner_id }) => runner_id)).toEqual(["two"]);
    const rest = await b.wire.runners.list(AGENT, { limit: 1, page: page.next_page ?? "" });
    expect(rest.data.map(({ runner_id }) => runner_id)).toEqual(["one"]);
  });
});
