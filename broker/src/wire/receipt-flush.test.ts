import { Failed, type Grant, Receipt, Succeeded } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { BrokerError } from "../domain/broker-error.js";
import type { RunnerPrincipal } from "../domain/ports/access.js";
import type { FlushRequest } from "./operations.js";
import { AGENT, type BrokerParts, connectRunner, createSite, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

const CALL = { toolset: "shop", tool: "echo", arguments: {} };
const DIGEST = "a".repeat(64);
const receiptOf = ({ callId, grantId, fence, attempt }: Grant, resultJson = "1", digest = DIGEST): Receipt =>
  Receipt.create({
    callId,
    grantId,
    fence,
    attempt,
    digest,
    finishedAtUnixMs: 1,
    outcome: { $case: "succeeded", value: Succeeded.create({ resultJson }) },
  });
const request = (receipts: readonly Receipt[], more: Partial<FlushRequest> = {}): FlushRequest => ({
  credential: "key",
  binding: "shop",
  subject: "",
  runnerId: "runner_1",
  receipts,
  ...more,
});

async function stage(parts: BrokerParts = {}) {
  const site = createSite(silentLog);
  const broker = await startBroker(site, {}, parts);
  stops.push(() => broker.stop());
  return { site, ...broker };
}

/** A call that runs on a runner that is gone by now. */
async function running(wire: Awaited<ReturnType<typeof stage>>["wire"]) {
  const runner = await connectRunner(wire, { runnerId: "runner_1", journalId: "jrn_1" });
  const { id } = await wire.calls.create(AGENT, CALL, {});
  const grant = await runner.next();
  return { id, grant, runner };
}

const view = (wire: Awaited<ReturnType<typeof stage>>["wire"], id: string) => wire.calls.get(AGENT, id, {});

describe("receipts of a page that closes (R4, G5)", () => {
  it("settle their calls as receipts of a session do, once, and are repeats when they come again on either way", async () => {
    const { wire } = await stage();
    const { id, grant, runner } = await running(wire);
    runner.close();
    expect(await wire.flush.flush(request([receiptOf(grant)]))).toEqual([{ kind: "taken", disposition: "settled" }]);
    expect(await view(wire, id)).toMatchObject({ state: "succeeded", result: 1, receipt: { runner_id: "runner_1", digest: DIGEST } });
    expect(await wire.flush.flush(request([receiptOf(grant)]))).toEqual([{ kind: "taken", disposition: "repeated" }]);
    const back = await connectRunner(wire, { runnerId: "runner_1", journalId: "jrn_1" });
    back.succeed(grant, "1", DIGEST);
    await until("the acknowledgement", () => back.received.some((frame) => frame.$case === "receiptAck" && frame.value.disposition === 2));
    expect(await wire.flush.flush(request([receiptOf(grant, "2", "b".repeat(64))]))).toEqual([{ kind: "taken", disposition: "evidence" }]);
    expect(await view(wire, id)).toMatchObject({ result: 1 });
  });

  it("settle a call once when the same receipt comes on both ways at once, many times", async () => {
    const { wire } = await stage();
    const { id, grant, runner } = await running(wire);
    const flushes = Array.from({ length: 20 }, () => wire.flush.flush(request([receiptOf(grant), receiptOf(grant)])));
    runner.succeed(grant, "1", DIGEST);
    const taken = (await Promise.all(flushes)).flat();
    expect(taken.filter((one) => one.kind === "taken" && one.disposition === "settled").length).toBeLessThanOrEqual(1);
    expect(taken.every((one) => one.kind === "taken")).toBe(true);
    expect((await wire.calls.listEvents(AGENT, id, 0)).filter(({ event }) => event === "settled")).toHaveLength(1);
    expect((await wire.calls.listEvents(AGENT, id, 0)).filter(({ event }) => event === "late_receipt")).toHaveLength(0);
  });

  it("settle a call whose outcome had been unknown", async () => {
    const { wire } = await stage();
    const { id, grant, runner } = await running(wire);
    runner.close();
    await until("the question", async () => (await view(wire, id)).state === "needs_reconciliation");
    expect(await wire.flush.flush(request([receiptOf(grant)]))).toEqual([{ kind: "taken", disposition: "settled" }]);
    expect(await view(wire, id)).toMatchObject({ state: "succeeded" });
  });

  it("are refused one by one where they are not well-formed, and expired where there is no such call", async () => {
    const { wire } = await stage();
    const { grant, runner } = await running(wire);
    const good = receiptOf(grant);
    const failed = { $case: "failed", value: Failed.create({ code: "no", message: "no" }) } as const;
    expect(
      await wire.flush.flush(
        request([
          { ...good, digest: "short" },
          { ...good, outcome: undefined },
          { ...good, callId: "../x" },
          { ...good, outcome: { $case: "succeeded", value: Succeeded.create({ resultJson: "{" }) } },
          { ...good, callId: "call_unknown" },
          { ...good, grantId: "entry_unknown", outcome: failed },
          good,
        ]),
      ),
    ).toEqual([
      { kind: "refused", message: expect.stringContaining("digest") },
      { kind: "refused", message: expect.stringContaining("outcome") },
      { kind: "refused", message: expect.stringContaining("call_id") },
      { kind: "refused", message: expect.stringContaining("not JSON") },
      { kind: "taken", disposition: "expired" },
      { kind: "taken", disposition: "expired" },
      { kind: "taken", disposition: "settled" },
    ]);
    runner.close();
  });

  it("are refused to who may not be that runner: by key, binding and subject, and nothing is registered for them (A2, I8)", async () => {
    const principal: RunnerPrincipal = { kind: "runner", keyId: "key_runner", application: "default", binding: "*", mayNameSubject: true };
    let who: Partial<RunnerPrincipal> | undefined = {};
    const registered: string[] = [];
    const { wire } = await stage({
      runner: async (credential) => (credential === "key" && who !== undefined ? { ...principal, ...who } : undefined),
      catalog: {
        getBinding: async (_application, id) => {
          if (id === "gone") throw new BrokerError("not_found", "no");
          return { id, name: id, kind: id === "tabs" ? "browser" : "backend", created_at: "2026-01-01T00:00:00.000Z" };
        },
        putBinding: async (_application, id) => {
          registered.push(id);
          throw new Error("not to be registered");
        },
      },
    });
    const { id, grant, runner } = await running(wire);
    const receipt = receiptOf(grant);
    const refusals: readonly (readonly [string, Partial<FlushRequest>, Partial<RunnerPrincipal>])[] = [
      ["key_invalid", { credential: "other" }, {}],
      ["not_found", {}, { binding: "other" }],
      ["not_found", { binding: "gone" }, {}],
      ["body_invalid", { binding: "No" }, {}],
      ["body_invalid", { runnerId: "a b" }, {}],
      ["not_found", { binding: "tabs" }, {}],
      ["not_found", { binding: "tabs", subject: "user_1" }, { mayNameSubject: false }],
      ["not_found", { binding: "tabs", subject: "user_1" }, { subject: "user_2" }],
    ];
    for (const [code, more, principalOf] of refusals) {
      who = principalOf;
      await expect(wire.flush.flush(request([receipt], more)), JSON.stringify([more, principalOf])).rejects.toMatchObject({ code });
    }
    // Another binding, subject or application of its own: the call is none of its business.
    for (const [more, principalOf] of [
      [{ binding: "other" }, {}],
      [{ binding: "tabs", subject: "user_1" }, {}],
      [{}, { application: "other" }],
    ] as const) {
      who = principalOf;
      expect(await wire.flush.flush(request([receipt], more))).toEqual([{ kind: "taken", disposition: "expired" }]);
    }
    expect(registered).toEqual([]);
    expect(await view(wire, id)).toMatchObject({ state: "running" });
    runner.close();
  });

  it("may be given again when the ledger did not take them", async () => {
    let broken = false;
    const { wire } = await stage({
      ledger: (inner) =>
        new Proxy(inner, {
          get(target, name) {
            if (name === "append" && broken) return () => Promise.reject(new Error("no ledger"));
            const value: unknown = Reflect.get(target, name);
            return typeof value === "function" ? value.bind(target) : value;
          },
        }),
    });
    const { grant, runner } = await running(wire);
    broken = true;
    expect(await wire.flush.flush(request([receiptOf(grant)]))).toEqual([{ kind: "failed", error: expect.any(Error) }]);
    broken = false;
    await until("the receipt to be taken", async () => {
      const [taken] = await wire.flush.flush(request([receiptOf(grant)]));
      return taken?.kind === "taken" && taken.disposition === "settled";
    });
    runner.close();
  });
});
