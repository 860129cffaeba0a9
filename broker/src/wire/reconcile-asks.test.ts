import { ReceiptDisposition } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { INLINE_VALUE_BYTES_MAX } from "../domain/ports/ledger.js";
import {
  APPLIED,
  answer,
  crashed,
  entriesOf,
  eventsOf,
  kindsOf,
  NOT_APPLIED,
  OUTCOME_UNKNOWN,
  question,
  questionsOf,
  SHORT_TOOL,
  UNKNOWN,
  view,
} from "./reconcile.test.kit.js";
import { AGENT, type BrokerParts, connectRunner, createSite, type Site, startBroker, until } from "./wire.test.kit.js";

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

describe("a call whose runner's process is gone, with a reconcile handler (G4)", () => {
  it("is asked about in the entry that loses it, and settles by the answer: the turn gets that one answer (I6)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, lost, told, back } = await crashed(one);
    const runner = await back();
    const { grant, startedGrantId, startedFence } = await question(runner);
    expect({ startedGrantId, startedFence }).toEqual({ startedGrantId: lost.grantId, startedFence: lost.fence });
    // Same attempt, new fence, and what `run` was given.
    expect(grant).toMatchObject({ callId, attempt: 1, tool: "echo", argumentsJson: '{"x":1}', idempotencyKey: lost.idempotencyKey });
    expect(grant.fence).toBeGreaterThan(lost.fence);
    expect(grant.grantId).not.toBe(lost.grantId);
    answer(runner, { grant }, APPLIED);
    expect(await told).toMatchObject({ state: "succeeded", result: { paid: 7 }, attempt: 1 });
    expect(kindsOf(site, callId)).toEqual(["accepted", "reconcile_granted", "reconciled"]);
    expect(entriesOf(site, callId).at(-1)).toMatchObject({ by: "runner:runner_1", outcome: "applied", askId: grant.grantId });
    expect(await eventsOf(one, callId)).toEqual(["requested", "queued", "granted", "lease_lost", "needs_reconciliation", "settled"]);
    // The runner may forget the start: nobody will ask again.
    await until("the acknowledgement", () =>
      runner.received.some(
        (frame) =>
          frame.$case === "receiptAck" && frame.value.grantId === lost.grantId && frame.value.disposition === ReceiptDisposition.EXPIRED,
      ),
    );
  });

  it("is queued and granted again, with a newer fence, when it was not applied", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { told, back } = await crashed(one);
    const runner = await back();
    const asked = await question(runner);
    answer(runner, asked, NOT_APPLIED);
    const again = await runner.next();
    expect(again).toMatchObject({ attempt: 2, callId: asked.grant.callId });
    expect(again.fence).toBeGreaterThan(asked.grant.fence);
    runner.succeed(again);
    expect(await told).toMatchObject({ state: "succeeded", attempt: 2 });
  });

  it("fails as not_applied when no attempt is left", async () => {
    const one = await broker(createSite(silentLog));
    const { told, back } = await crashed(one, { max_attempts: 1 });
    const runner = await back();
    answer(runner, await question(runner), NOT_APPLIED);
    expect(await told).toMatchObject({ state: "failed", error: { code: "not_applied" } });
  });

  it("stays for a person when the handler cannot tell: the turn hears so at once, and the handler is asked again", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, { reconcileTurnMs: 60_000 });
    const { callId, told, back } = await crashed(one);
    const runner = await back();
    answer(runner, await question(runner), UNKNOWN);
    expect(await told).toMatchObject({ state: "needs_reconciliation" });
    expect(entriesOf(site, callId).at(-1)).toMatchObject({
      kind: "reconcile_unanswered",
      reason: "unknown",
      message: "the provider does not answer",
    });
    const second = await question(runner, 1);
    expect(second.grant.fence).toBeGreaterThan((await question(runner)).grant.fence);
    answer(runner, second, APPLIED);
    // An update of the call, no second answer of the turn.
    await until("the settlement", async () => (await view(one, callId)).state === "succeeded");
    expect(kindsOf(site, callId)).toEqual(["accepted", "reconcile_granted", "reconcile_unanswered", "reconcile_granted", "reconciled"]);
  });

  it("answers the turn after reconcileTurnMs when the handler takes longer, and is settled by it later", async () => {
    const one = await broker(createSite(silentLog), { reconcileTurnMs: 150 });
    const { callId, told, back } = await crashed(one);
    const runner = await back();
    const asked = await question(runner);
    const askedAt = performance.now();
    expect(await told).toMatchObject({ state: "needs_reconciliation" });
    expect(performance.now() - askedAt).toBeLessThan(2_000);
    answer(runner, asked, APPLIED);
    await until("the settlement", async () => (await view(one, callId)).state === "succeeded");
  });

  it("is asked about no more in time after five answers that are none, and again at the runner's next hello", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, { reconcileMs: 1, driverAnswerMs: 20 });
    const { callId, back } = await crashed(one);
    const runner = await back();
    await until("the first question's end", () => kindsOf(site, callId).includes("reconcile_unanswered"));
    expect(entriesOf(site, callId).at(-1)).toMatchObject({ reason: "timed_out", askAgainAtMs: expect.any(Number) });
    await until("the second question", () => questionsOf(runner).length === 2);
  });

  it("is not asked about a second time on the session that was asked, nor by a hello that comes too soon", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, lost, back } = await crashed(one);
    const runner = await back();
    await question(runner);
    const { grantId, fence } = lost;
    for (let round = 0; round < 3; round += 1) {
      runner.send({ $case: "revokeAnswer", value: { callId, grantId, fence, journalId: "journal_1", phase: OUTCOME_UNKNOWN } });
    }
    // The process dies of the question, and comes back at once.
    const second = await back();
    expect(questionsOf(runner)).toHaveLength(1);
    expect(kindsOf(site, callId)).toEqual(["accepted", "reconcile_granted"]);
    // After the pause it is asked.
    answer(second, await question(second), APPLIED);
    await until("the settlement", async () => (await view(one, callId)).state === "succeeded");
    expect(kindsOf(site, callId)).toEqual(["accepted", "reconcile_granted", "reconcile_granted", "reconciled"]);
  });
});

describe("what is not asked (G4)", () => {
  it("is a session whose handler does not reconcile, or that has another journal", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, lost, told } = await crashed(one);
    const held = [{ callId, grantId: lost.grantId, fence: lost.fence, phase: OUTCOME_UNKNOWN }];
    const other = await connectRunner(one.wire, { runnerId: "runner_2", journalId: "journal_2", reconciles: true, held });
    const older = await connectRunner(one.wire, { held });
    expect(await told).toMatchObject({ state: "needs_reconciliation" });
    expect(kindsOf(site, callId)).toEqual(["accepted", "lease_lost"]);
    older.close();
    // A release with a handler comes later.
    const newer = await connectRunner(one.wire, { reconciles: true, held });
    answer(newer, await question(newer), APPLIED);
    await until("the settlement", async () => (await view(one, callId)).state === "succeeded");
    expect(questionsOf(other)).toEqual([]);
    expect(questionsOf(older)).toEqual([]);
  });

  it("is a call that is safe to repeat: that is granted again", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { told, lost, back } = await crashed(one, { tool: "safe" });
    const runner = await back();
    const again = await runner.next();
    expect(again.attempt).toBe(2);
    runner.succeed(again);
    expect(await told).toMatchObject({ state: "succeeded" });
    expect(questionsOf(runner)).toEqual([]);
    // What became of the first is nobody's question any more.
    await until("the acknowledgement", () =>
      runner.received.some((frame) => frame.$case === "receiptAck" && frame.value.grantId === lost.grantId),
    );
  });

  it("is a call that settled meanwhile: its runner may forget the start", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, lost, told, back } = await crashed(one, { wait_seconds: 0 });
    await told;
    await until("the lost lease", async () => (await view(one, callId)).state === "needs_reconciliation");
    await one.wire.calls.reconcile(AGENT, callId, { outcome: "abandon" });
    const runner = await back();
    await until("the acknowledgement", () =>
      runner.received.some((frame) => frame.$case === "receiptAck" && frame.value.grantId === lost.grantId),
    );
    expect(questionsOf(runner)).toEqual([]);
  });
});

describe("an answer that comes beside something else", () => {
  it("is void after a person's word, and its handler is told to stop", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, back } = await crashed(one, { wait_seconds: 0 });
    const runner = await back();
    const asked = await question(runner);
    await one.wire.calls.reconcile(AGENT, callId, { outcome: "abandon" });
    await until("the revoke", () =>
      runner.received.some((frame) => frame.$case === "revoke" && frame.value.grantId === asked.grant.grantId),
    );
    const before = kindsOf(site, callId);
    answer(runner, asked, APPLIED);
    answer(runner, asked, NOT_APPLIED);
    expect(await view(one, callId)).toMatchObject({ state: "failed", error: { code: "outcome_unknown" } });
    expect(kindsOf(site, callId)).toEqual(before);
  });

  it("and of a person at the same moment leave one verdict", async () => {
    for (let round = 0; round < 10; round += 1) {
      const site = createSite(silentLog);
      const one = await startBroker(site);
      const { callId, back } = await crashed(one, { wait_seconds: 0 });
      const runner = await back();
      const asked = await question(runner);
      answer(runner, asked, APPLIED);
      const person = await one.wire.calls.reconcile(AGENT, callId, { outcome: "abandon" }).catch((error: unknown) => error);
      const { state } = await view(one, callId);
      expect(["succeeded", "failed"]).toContain(state);
      expect(state === "failed").toBe(!(person instanceof Error));
      expect(kindsOf(site, callId).filter((kind) => kind === "reconciled")).toHaveLength(1);
      await one.stop();
    }
  });

  it("is void after the receipt of the grant itself: that settles, and is acknowledged so (I5, G5)", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, lost, told, back } = await crashed(one);
    const runner = await back();
    const asked = await question(runner);
    runner.succeed(lost, '"by the receipt"');
    expect(await told).toMatchObject({ state: "succeeded", result: "by the receipt" });
    answer(runner, asked, NOT_APPLIED);
    await until("the acknowledgement", () =>
      runner.received.some((frame) => frame.$case === "receiptAck" && frame.value.disposition === ReceiptDisposition.SETTLED),
    );
    expect(runner.grants).toHaveLength(0);
    expect(kindsOf(site, callId)).toEqual(["accepted", "reconcile_granted", "receipt"]);
  });

  it("of an earlier question says nothing about a later grant of the call", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, back } = await crashed(one, { wait_seconds: 0 });
    const runner = await back();
    const asked = await question(runner);
    await one.wire.calls.reconcile(AGENT, callId, { outcome: "not_applied" });
    const again = await runner.next();
    expect(again.fence).toBeGreaterThan(asked.grant.fence);
    answer(runner, asked, NOT_APPLIED);
    answer(runner, asked, APPLIED);
    runner.succeed(again, '"the second run"');
    await until("the settlement", async () => (await view(one, callId)).state === "succeeded");
    expect(await view(one, callId)).toMatchObject({ result: "the second run" });
  });

  it("fails as not_applied when the call's time ran out while the handler looked; the question itself outlives that time", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, {}, { catalog: SHORT_TOOL });
    const { callId, told, back } = await crashed(one);
    const runner = await back();
    const asked = await question(runner);
    expect(await told).toMatchObject({ state: "needs_reconciliation" });
    await until("the deadline", async () => Date.parse((await view(one, callId)).deadline_at ?? "") < Date.now());
    answer(runner, asked, NOT_APPLIED);
    await until("the settlement", async () => (await view(one, callId)).state === "failed");
    expect(await view(one, callId)).toMatchObject({ error: { code: "not_applied" } });
  });
});

describe("answers that are none", () => {
  it("are refused by a typed fault, or not heard: without an outcome, with a result that is no JSON, of no question, of another runner", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, back } = await crashed(one, { wait_seconds: 0 });
    const runner = await back();
    const asked = await question(runner);
    const faults = () => runner.received.flatMap((frame) => (frame.$case === "protocolFault" ? [frame.value.message] : []));
    answer(runner, asked, undefined);
    answer(runner, asked, { $case: "applied", value: { resultJson: "{" } });
    answer(runner, { grant: { ...asked.grant, grantId: "" } }, APPLIED);
    answer(runner, { grant: { ...asked.grant, callId: "no/id" } }, APPLIED);
    await until("the faults", () => faults().length === 4);
    expect(faults()[0]).toContain("expected one of applied, not_applied, unknown, unavailable");
    expect(faults()[1]).toContain("not JSON");
    const stranger = await connectRunner(one.wire, { runnerId: "runner_2", journalId: "journal_2", reconciles: true });
    answer(stranger, asked, APPLIED);
    answer(runner, { grant: { ...asked.grant, grantId: "entry_of_nobody" } }, APPLIED);
    answer(runner, { grant: { ...asked.grant, callId: `call_${"a".repeat(26)}` } }, APPLIED);
    answer(runner, asked, UNKNOWN);
    await until("the heard one", () => kindsOf(site, callId).includes("reconcile_unanswered"));
    expect(kindsOf(site, callId)).toEqual(["accepted", "reconcile_granted", "reconcile_unanswered"]);
  });

  it("with a result that is too deep or too large leave the call to a person, who reads why", async () => {
    for (const [json, why] of [
      [`${"[".repeat(600)}${"]".repeat(600)}`, "nested deeper"],
      [JSON.stringify("x".repeat(983_040)), "over the limit of 983040"],
    ] as const) {
      const site = createSite(silentLog);
      const one = await broker(site);
      const { callId, back } = await crashed(one, { wait_seconds: 0 });
      const runner = await back();
      answer(runner, await question(runner), { $case: "applied", value: { resultJson: json } });
      await until("the answer", () => kindsOf(site, callId).includes("reconcile_unanswered"));
      expect(entriesOf(site, callId).at(-1)).toMatchObject({ reason: "unknown", message: expect.stringContaining(why) });
    }
  });

  it("cost one question each: a hello that tells of thousands of starts is asked about those that are calls of its own", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { callId, lost } = await crashed(one, { wait_seconds: 0 });
    const invented = Array.from({ length: 2_000 }, (_, index) => ({
      callId: `call_${String(index)
        .replace(/\d/g, (digit) => "abcdefghij"[Number(digit)] ?? "a")
        .padStart(26, "a")}`,
      grantId: `entry_${index}`,
      fence: index,
      phase: OUTCOME_UNKNOWN,
    }));
    const held = [...invented, { callId, grantId: lost.grantId, fence: lost.fence, phase: OUTCOME_UNKNOWN }];
    const runner = await connectRunner(one.wire, { reconciles: true, held });
    const asked = await question(runner);
    answer(runner, asked, APPLIED);
    await until("the settlement", async () => (await view(one, callId)).state === "succeeded");
    expect(questionsOf(runner)).toHaveLength(1);
  });
});

describe("a result that a handler found", () => {
  it("is stored as a blob when it is large, like any other", async () => {
    const site = createSite(silentLog);
    const one = await broker(site);
    const { told, back } = await crashed(one);
    const runner = await back();
    const large = "x".repeat(INLINE_VALUE_BYTES_MAX + 1);
    answer(runner, await question(runner), { $case: "applied", value: { resultJson: JSON.stringify(large) } });
    const { id, state } = (await told) as { id: string; state: string };
    expect(state).toBe("succeeded");
    const page = await one.wire.calls.readResult(AGENT, id, { offset: 0, max_bytes: 10 });
    expect(page.text).toBe('"xxxxxxxxx');
  });
});
