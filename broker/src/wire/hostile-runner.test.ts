import { Failed, Succeeded } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { RESULT_DEPTH_MAX, SLOTS_MAX } from "../domain/limits.js";
import { AGENT, type BrokerParts, connectRunner, createSite, type ScriptedRunner, type Site, startBroker, until } from "./wire.test.kit.js";
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

/** A broker whose reads of the ledger are counted: together, and at once at most. */
async function counted(site: Site) {
  const reads = { all: 0, atOnce: 0, most: 0 };
  const one = await broker(
    site,
    { pingIntervalMs: 20 },
    {
      ledger: (inner) =>
        withLedger(inner, {
          async *read(callId, from) {
            reads.all += 1;
            reads.atOnce += 1;
            reads.most = Math.max(reads.most, reads.atOnce);
            yield* inner.read(callId, from);
            reads.atOnce -= 1;
          },
        }),
    },
  );
  return { one, reads };
}

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };
const count = (runner: ScriptedRunner, kind: string): number => runner.frames.filter((each) => each === kind).length;
const idOf = (index: number): string =>
  `call_${index
    .toString(36)
    .replace(/[^a-z2-7]/g, "a")
    .padStart(26, "a")}`;
const heldOf = (amount: number, phase: number) =>
  Array.from({ length: amount }, (_, index) => ({ callId: idOf(index), grantId: `entry_${index}`, fence: index, phase }));

function receipt(runner: ScriptedRunner, callId: string, grantId: string, resultJson: string, digest = "a".repeat(64)): void {
  runner.send({
    $case: "receipt",
    value: {
      callId,
      grantId,
      fence: 1,
      attempt: 1,
      digest,
      startedAtUnixMs: Number.MAX_SAFE_INTEGER,
      finishedAtUnixMs: 1,
      outcome: { $case: "succeeded", value: Succeeded.create({ resultJson }) },
    },
  });
}

describe("a hostile runner", () => {
  it("that lists ten thousand grants which are not its own costs bounded reads at once, and no memory or slots", async () => {
    const { one, reads } = await counted(createSite(silentLog));
    const runner = await connectRunner(one.wire, { silent: true, held: heldOf(10_000, 2) });
    await until("the grants to be revoked", () => count(runner, "revoke") >= 8_192 && one.wire.inspect()["grants"] === 0);
    expect(reads.all).toBeLessThanOrEqual(10_000);
    expect(reads.most).toBeLessThanOrEqual(64);
  });

  it("that answers one ping a thousand times is heard once", async () => {
    const { one, reads } = await counted(createSite(silentLog));
    const runner = await connectRunner(one.wire, { silent: true });
    await until("a ping", () => count(runner, "ping") > 0);
    for (let round = 0; round < 1_000; round += 1) {
      runner.send({ $case: "pong", value: { number: 1, held: heldOf(5, 2) } });
    }
    await until("the five revokes", () => count(runner, "revoke") >= 5);
    await until("rest", () => one.wire.inspect()["work"] === 0);
    expect(reads.all).toBe(5);
  });

  it("that answers pings which were never sent is told so, and keeps no lease alive by it", async () => {
    const one = await broker(createSite(silentLog), { leaseMs: 200, pingIntervalMs: 100 });
    const runner = await connectRunner(one.wire, { silent: true });
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    const held = [{ callId: call.id, grantId: grant.grantId, fence: grant.fence, phase: 2 }];
    runner.send({ $case: "pong", value: { number: 4_000_000_000, held } });
    await until("the fault", () => runner.frames.includes("protocolFault"));
    expect((await one.wire.calls.get(AGENT, call.id, { wait_seconds: 5 })).state).toBe("needs_reconciliation");
  });

  it("that reports finished grants by the thousand fills nothing", async () => {
    const { one } = await counted(createSite(silentLog));
    const runner = await connectRunner(one.wire, { silent: true, held: heldOf(10_000, 4) });
    await until("a ping", () => count(runner, "ping") > 0);
    expect(one.wire.inspect()).toMatchObject({ grants: 0, work: 0 });
  });

  it("that claims four billion slots gets as many as anybody", async () => {
    const one = await broker(createSite(silentLog));
    const runner = await connectRunner(one.wire, { slots: 4_294_967_295 });
    runner.send({ $case: "claim", value: { slots: 4_294_967_295 } });
    runner.send(undefined);
    await until("the frames to be read", () => runner.frames.includes("protocolFault"));
    expect((await one.wire.runners.list(AGENT, {})).data[0]?.slots).toBe(SLOTS_MAX);
  });

  it("that sends large receipts for calls which do not take them stores no blob, and the same one again stores one", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const runner = await connectRunner(one.wire);
    const large = JSON.stringify("x".repeat(400_000));
    receipt(runner, idOf(1), "entry_unknown", large);
    await until("its acknowledgement", () => count(runner, "receiptAck") === 1);
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    receipt(runner, call.id, "entry_of_another_call", large);
    await until("its acknowledgement", () => count(runner, "receiptAck") === 2);
    expect(site.store.blobs.size).toBe(0);
    runner.forget(grant);
    for (let round = 0; round < 5; round += 1) {
      receipt(runner, call.id, grant.grantId, large);
    }
    await until("all acknowledgements", () => count(runner, "receiptAck") === 7);
    expect(site.store.blobs.size).toBe(1);
    expect((await one.wire.calls.get(AGENT, call.id, {})).state).toBe("succeeded");
  });

  it("that sends one receipt many times while the ledger is slow is acknowledged as often (G5)", async () => {
    const site = createSite(silentLog);
    let go: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    const one = await broker(
      site,
      {},
      {
        ledger: (inner) =>
          withLedger(inner, {
            append: async (callId, expected, entry) => {
              await (expected === 0 ? undefined : gate);
              return inner.append(callId, expected, entry);
            },
          }),
      },
    );
    const runner = await connectRunner(one.wire);
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    for (let round = 0; round < 50; round += 1) {
      runner.succeed(grant);
    }
    runner.send(undefined);
    await until("the frames to be read", () => runner.frames.includes("protocolFault"));
    expect(one.wire.inspect()["work"]).toBeLessThanOrEqual(2);
    go();
    await until("the acknowledgements", () => count(runner, "receiptAck") === 50);
    expect((await one.wire.calls.get(AGENT, call.id, {})).state).toBe("succeeded");
    expect(site.store.entries.length).toBe(2);
  });

  it("whose result is nested so deep that nobody could be shown it fails its call, and the call can be looked at", async () => {
    const one = await broker(createSite(silentLog));
    const runner = await connectRunner(one.wire);
    for (const [levels, state] of [
      [RESULT_DEPTH_MAX, "succeeded"],
      [RESULT_DEPTH_MAX + 1, "failed"],
      [200_000, "failed"],
    ] as const) {
      const call = await one.wire.calls.create(AGENT, CALL, {});
      const grant = await runner.next();
      runner.succeed(grant, `${"[".repeat(levels)}${"]".repeat(levels)}`);
      const view = await one.wire.calls.get(AGENT, call.id, { wait_seconds: 5 });
      expect(view.state).toBe(state);
      expect(() => JSON.stringify(view)).not.toThrow();
      expect(view.error?.code ?? null).toBe(state === "failed" ? "result_invalid" : null);
    }
  });

  it("that says it began at the end of time leaves a call whose events can be read", async () => {
    const one = await broker(createSite(silentLog));
    const runner = await connectRunner(one.wire);
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    runner.send({
      $case: "started",
      value: { callId: call.id, grantId: grant.grantId, fence: grant.fence, atUnixMs: Number.MAX_SAFE_INTEGER },
    });
    receipt(runner, call.id, grant.grantId, "1");
    await one.wire.calls.get(AGENT, call.id, { wait_seconds: 5 });
    const started = (await one.wire.calls.listEvents(AGENT, call.id, 0)).find(({ event }) => event === "started");
    expect(Math.abs(Date.parse(started?.at ?? "") - Date.now())).toBeLessThan(60_000);
  });

  it("whose progress is no percentage, no JSON, too deep or too large is told so, and nothing of it is shown", async () => {
    const one = await broker(createSite(silentLog));
    const runner = await connectRunner(one.wire);
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const { grantId, fence } = await runner.next();
    const deep = "[".repeat(RESULT_DEPTH_MAX + 1) + "]".repeat(RESULT_DEPTH_MAX + 1);
    for (const bad of [
      { percentage: Number.NaN },
      { percentage: Number.POSITIVE_INFINITY },
      { percentage: -1 },
      { dataJson: "{" },
      { dataJson: deep },
      { text: "x".repeat(20_000) },
    ]) {
      const value = { callId: call.id, grantId, fence, text: "", percentage: undefined, dataJson: "", ...bad };
      runner.send({ $case: "progress", value });
    }
    await until("six faults", () => count(runner, "protocolFault") === 6);
    expect((await one.wire.calls.listEvents(AGENT, call.id, 0)).map(({ event }) => event)).not.toContain("progress");
  });

  it("that names grants and calls by anything but their ids is told so, and nothing is looked up or kept", async () => {
    const { one, reads } = await counted(createSite(silentLog));
    const runner = await connectRunner(one.wire);
    const long = "x".repeat(100_000);
    for (const id of [long, "", "*", "a.b", "a/b", "ü"]) {
      runner.send({ $case: "started", value: { callId: id, grantId: "entry_1", fence: 1, atUnixMs: 1 } });
      runner.send({ $case: "decline", value: { callId: idOf(1), grantId: id, fence: 1, reason: 2, message: "" } });
      runner.send({ $case: "cancelAnswer", value: { callId: id, grantId: id, level: 1 } });
      receipt(runner, idOf(1), id, "1");
    }
    await until("the faults", () => count(runner, "protocolFault") === 24);
    expect(reads.all).toBe(0);
    for (const frame of runner.received) {
      expect(JSON.stringify(frame).length).toBeLessThan(2_000);
    }
  });

  it("cannot change the catalog of a broker that did not ask for its tools", async () => {
    let merged = 0;
    const site = createSite(silentLog);
    const one = await broker(
      site,
      {},
      {
        catalog: {
          mergeTools: async () => {
            merged += 1;
            throw new Error("merged");
          },
        },
      },
    );
    const runner = await connectRunner(one.wire);
    runner.send({ $case: "toolDefinitions", value: { tools: [] } });
    await until("the fault", () => runner.frames.includes("protocolFault"));
    expect(merged).toBe(0);
  });

  it("that says between hellos that a grant has not begun keeps it: it may begin any moment (I3)", async () => {
    const one = await broker(createSite(silentLog), { pingIntervalMs: 30 });
    const runner = await connectRunner(one.wire, { silent: true });
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    const held = [{ callId: call.id, grantId: grant.grantId, fence: grant.fence, phase: 1 }];
    for (let number = 1; number <= 3; number += 1) {
      await until("a ping", () => count(runner, "ping") >= number);
      runner.send({ $case: "pong", value: { number, held } });
    }
    await until("rest", () => one.wire.inspect()["work"] === 0);
    expect((await one.wire.calls.get(AGENT, call.id, {})).state).toBe("running");
    expect(runner.grants.length).toBe(1);
    runner.succeed(grant);
    expect((await one.wire.calls.get(AGENT, call.id, { wait_seconds: 5 })).state).toBe("succeeded");
  });

  it("whose failure holds endless texts has them cut, and the call can be stored and read", async () => {
    const one = await broker(createSite(silentLog));
    const runner = await connectRunner(one.wire);
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    const text = "\u0000".repeat(9_000);
    const details = Array.from({ length: 20 }, () => ({ path: text, expected: text, actual: text }));
    runner.forget(grant);
    runner.send({
      $case: "receipt",
      value: {
        callId: call.id,
        grantId: grant.grantId,
        fence: grant.fence,
        attempt: 1,
        digest: "f".repeat(64),
        startedAtUnixMs: 1,
        finishedAtUnixMs: 1,
        outcome: { $case: "failed", value: Failed.create({ code: text, message: text, details }) },
      },
    });
    expect((await one.wire.calls.get(AGENT, call.id, { wait_seconds: 5 })).state).toBe("failed");
  });
});
