import { UpdateDisposition } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { SIGNALS_KEPT_MAX, SubmissionSignals } from "./core/submission-signals.js";
import { UPDATES_WAITING_MAX } from "./core/update-desk.js";
import type { SubmissionEnd } from "./index.js";
import { type Served, serve, stopRunners, until, work } from "./runner.test.kit.js";
import type { FakeSession } from "./testing.js";

afterEach(stopRunners);

const submitting = work((_args, ctx) => ctx.submit(7), { resultSemantics: "submission" });
const { STORED, NOT_SUBMITTED, SETTLED, EXHAUSTED, UNKNOWN_CALL, CONFLICT } = UpdateDisposition;

async function submitted(served: Served) {
  const grant = served.session.grant({ tool: "work" });
  served.session.acknowledge(await served.session.next("receipt"));
  await served.session.settleFrames();
  return grant;
}

async function answer(session: FakeSession, disposition: UpdateDisposition): Promise<string> {
  const { callId, updateId } = await session.next("callUpdate");
  session.send({ $case: "updateAnswer", value: { callId, updateId, disposition } });
  return updateId;
}

describe("runner.update (X5)", () => {
  it("resolves when the broker stored it, and sends the next one of the call only then", async () => {
    const served = await serve({ tools: [submitting] });
    const { callId } = await submitted(served);
    const first = served.runner.update(callId, { text: "a", percentage: 1.5, data: { n: 1 } });
    const second = served.runner.update(callId, { percentage: 0 });
    const other = served.runner.update("call_other", { text: "b" });
    await served.session.settleFrames();
    expect(served.session.all("callUpdate").map(({ callId: of, text, percentage, dataJson }) => [of, text, percentage, dataJson])).toEqual([
      [callId, "a", 1.5, '{"n":1}'],
      ["call_other", "b", undefined, ""],
    ]);
    await answer(served.session, STORED);
    await first;
    await answer(served.session, STORED);
    await other;
    await answer(served.session, STORED);
    await second;
    expect(served.session.all("callUpdate").at(-1)).toMatchObject({ callId, percentage: 0 });
  });

  it("is sent again under its id in later sessions, until it is answered", async () => {
    const served = await serve({ tools: [submitting] });
    const update = served.runner.update("call_a", { text: "a" });
    const sent = await served.session.next("callUpdate");
    served.session.sever();
    const later = served.runner.update("call_a", { text: "b" });
    const next = await served.broker.nextSession();
    await next.welcome();
    expect(await answer(next, STORED)).toBe(sent.updateId);
    await update;
    expect(await answer(next, STORED)).not.toBe(sent.updateId);
    await later;
  });

  it.each([
    [SETTLED, "submission_settled"],
    [EXHAUSTED, "updates_exhausted"],
    [UNKNOWN_CALL, "submission_unknown"],
    [NOT_SUBMITTED, "submission_unknown"],
    [UpdateDisposition.UNSPECIFIED, "submission_unknown"],
  ])("rejects with all that follow it when the broker answers %s", async (disposition, code) => {
    const { session, runner } = await serve({ tools: [submitting] });
    const updates = [1, 2].map((number) => runner.update("call_a", { data: number }));
    const ends = Promise.allSettled(updates);
    await answer(session, disposition);
    for (const outcome of await ends) expect(outcome).toMatchObject({ status: "rejected", reason: { code, callId: "call_a" } });
  });

  it("goes on after a conflict, and takes no notice of answers to what it did not ask", async () => {
    const { session, runner } = await serve({ tools: [submitting] });
    const updates = [1, 2].map((number) => runner.update("call_a", { data: number }));
    session.send({ $case: "updateAnswer", value: { callId: "call_a", updateId: "update_x", disposition: SETTLED } });
    session.send({ $case: "updateAnswer", value: { callId: "call_b", updateId: "update_x", disposition: SETTLED } });
    const ends = Promise.allSettled(updates);
    await answer(session, CONFLICT);
    await answer(session, STORED);
    expect((await ends).map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
  });

  it("waits while the handle of its call is on its way", async () => {
    const served = await serve({ tools: [submitting] });
    const grant = served.session.grant({ tool: "work" });
    const receipt = await served.session.next("receipt");
    const update = served.runner.update(grant.callId, { text: "fast" });
    const id = await answer(served.session, NOT_SUBMITTED);
    expect(await answer(served.session, NOT_SUBMITTED)).toBe(id);
    served.session.acknowledge(receipt);
    await answer(served.session, STORED);
    await update;
  });

  it("is checked before it is sent: nothing, what is not JSON, what is too large, too many at once", async () => {
    const { session, runner } = await serve({ tools: [submitting] });
    // Callers in JavaScript can give anything.
    const bad: readonly (readonly [object, string])[] = [
      [{}, "update_invalid"],
      [{ text: "" }, "update_invalid"],
      [{ text: 7 }, "update_invalid"],
      [{ percentage: 101 }, "update_invalid"],
      [{ percentage: Number.NaN }, "update_invalid"],
      [{ percentage: "50" }, "update_invalid"],
      [{ data: 1n }, "update_invalid"],
      [{ text: "x".repeat(16_385) }, "update_too_large"],
      [{ text: "x", data: "y".repeat(16_382) }, "update_too_large"],
    ];
    for (const [update, code] of bad)
      await expect(runner.update("call_a", update)).rejects.toMatchObject({ name: "SubmissionError", code });
    const waiting = Array.from({ length: UPDATES_WAITING_MAX }, (_, index) => runner.update(`call_${index}`, { text: "x".repeat(10) }));
    await expect(runner.update("call_more", { text: "x" })).rejects.toMatchObject({ code: "updates_waiting" });
    await session.settleFrames();
    expect(session.all("callUpdate")).toHaveLength(UPDATES_WAITING_MAX);
    const ends = Promise.allSettled(waiting);
    await runner.stop();
    for (const end of await ends) expect(end).toMatchObject({ status: "rejected", reason: { code: "runner_stopped" } });
    await expect(runner.update("call_a", { text: "x" })).rejects.toMatchObject({ code: "runner_stopped" });
  });

  it("is refused at once by an older broker, which would not know the frame", async () => {
    const { session, runner, broker } = await serve({ tools: [submitting] }, { takesCallUpdates: false });
    await expect(runner.update("call_a", { text: "x" })).rejects.toMatchObject({ code: "updates_unsupported" });
    session.sever();
    await until("the loss of the session", () => runner.state.kind !== "ready");
    const waiting = runner.update("call_a", { text: "x" });
    const next = await broker.nextSession();
    await Promise.all([expect(waiting).rejects.toMatchObject({ code: "updates_unsupported" }), next.welcome({ takesCallUpdates: false })]);
    expect([session.all("callUpdate"), next.all("callUpdate")]).toEqual([[], []]);
  });
});

describe("a submission that is taken back (X5, K1)", () => {
  const revoke = (session: FakeSession, { callId, grantId, fence }: { callId: string; grantId: string; fence: number }, reason: string) =>
    session.send({ $case: "revoke", value: { callId, grantId, fence, reason } });

  it.each([
    ["call_cancelled", "cancelled", "cancelled"],
    ["deadline", "timed_out", "deadline"],
    ["something newer", "revoked", "revoked"],
  ])("aborts the signal that its handler looked at, and is told once it is submitted: %s", async (reason, told, code) => {
    const ended: SubmissionEnd[] = [];
    let signal: AbortSignal | undefined;
    const tool = work(
      (_args, ctx) => {
        signal = ctx.signal;
        return ctx.submit(7);
      },
      { resultSemantics: "submission" },
    );
    const served = await serve({ tools: [tool], onSubmissionEnded: (end) => ended.push(end) });
    const grant = await submitted(served);
    expect(signal?.aborted).toBe(false);
    revoke(served.session, grant, reason);
    await served.session.next("revokeAnswer");
    expect(signal?.reason).toMatchObject({ name: "AbortError", code });
    expect(ended).toEqual([{ callId: grant.callId, tool: "work", reason: told }]);
  });

  it("is not told of a call that has its final outcome, or that was not submitted", async () => {
    const ended: SubmissionEnd[] = [];
    const plain = work(() => 1);
    const served = await serve({ tools: [submitting, { ...plain, name: "plain" }], onSubmissionEnded: (end) => ended.push(end) });
    const grant = await submitted(served);
    await served.runner.settle(grant.callId, { kind: "succeeded", result: 1 });
    revoke(served.session, grant, "call_cancelled");
    const other = served.session.grant({ tool: "plain" });
    await served.session.next("receipt");
    revoke(served.session, other, "call_cancelled");
    await served.session.settleFrames();
    expect(ended).toEqual([]);
  });

  it("harms nothing when the product's listener throws", async () => {
    const served = await serve({
      tools: [submitting],
      onSubmissionEnded: () => {
        throw new Error("the product's own");
      },
    });
    const grant = await submitted(served);
    revoke(served.session, grant, "call_cancelled");
    await served.session.next("revokeAnswer");
    expect(served.events.map(({ event }) => event)).toContain("submission_listener_threw");
    expect((await served.session.call({ tool: "work" })).outcome?.$case).toBe("submitted");
  });

  it("keeps no more signals than it may, the newest ones", () => {
    const signals = new SubmissionSignals();
    const made = Array.from({ length: SIGNALS_KEPT_MAX + 1 }, () => new AbortController());
    made.forEach((controller, index) => {
      signals.keep(`call_${index}`, controller);
    });
    signals.abort("call_0", "cancelled");
    signals.abort("call_1", "cancelled");
    signals.forget("call_2");
    signals.abort("call_2", "cancelled");
    expect(made.slice(0, 4).map(({ signal }) => signal.aborted)).toEqual([false, true, false, false]);
  });
});
