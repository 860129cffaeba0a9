import { GrantPhase, ReceiptDisposition } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import {
  applied,
  defineTool,
  type Journal,
  memoryJournal,
  notApplied,
  type ReconcileContext,
  type Reconciliation,
  type ToolOptions,
  unknown,
} from "./index.js";
import { deferred, serve, stopRunners, until } from "./runner.test.kit.js";

afterEach(stopRunners);

const STARTED = { callId: "call_pay", grantId: "grant_pay", fence: 3 };
const BEGAN_AT = Date.now() - 60_000;
const CLOCK = { now: Date.now, monotonic: () => performance.now(), schedule: () => ({ cancel() {} }) };

/** A journal in which an earlier process started `pay` and did not come back from it. */
async function crashedJournal(starts: readonly { readonly callId: string; readonly grantId: string }[] = [STARTED]): Promise<Journal> {
  const journal = memoryJournal();
  const opened = await journal.open({ clock: CLOCK });
  for (const { callId, grantId } of starts) {
    await opened.append({ kind: "granted", callId, grantId, fence: 3, attempt: 1, tool: "pay", version: "1", at: Date.now() });
    await opened.append({ kind: "started", grantId, at: BEGAN_AT });
  }
  await opened.close();
  return journal;
}

function pay(reconcile: ToolOptions["reconcile"], more: Partial<ToolOptions> = {}) {
  return defineTool({ name: "pay", description: "Pay.", run: () => "paid", ...more, ...(reconcile === undefined ? {} : { reconcile }) });
}

describe("a reconcile handler (G4)", () => {
  it("is declared in the hello, and is asked about a start of an earlier process with what that was given", async () => {
    const seen: ReconcileContext[] = [];
    const tools = [
      pay((ctx) => {
        seen.push(ctx);
        return applied({ paid: 7 });
      }),
      defineTool({ name: "look", description: "", run: () => null }),
    ];
    const { session } = await serve({ journal: await crashedJournal(), tools });
    const hello = await session.hello();
    expect(hello.handlers.map(({ tool, reconciles }) => [tool, reconciles])).toEqual([
      ["pay", true],
      ["look", false],
    ]);
    expect(hello.held).toEqual([{ ...STARTED, phase: GrantPhase.OUTCOME_UNKNOWN }]);
    const grant = session.reconcile(STARTED, { tool: "pay", fence: 9, attempt: 1, argumentsJson: '{"order":"A1"}', remainingMs: 5_000 });
    expect(await session.next("reconcileAnswer")).toEqual({
      callId: STARTED.callId,
      grantId: grant.grantId,
      fence: 9,
      outcome: { $case: "applied", value: { resultJson: '{"paid":7}' } },
    });
    expect(seen).toHaveLength(1);
    expect(seen[0]).toMatchObject({
      callId: STARTED.callId,
      fence: 9,
      attempt: 1,
      tool: "pay",
      idempotencyKey: `key_${STARTED.callId}`,
      arguments: { order: "A1" },
      startedAt: new Date(BEGAN_AT),
    });
  });

  const ANSWERS: readonly [string, () => unknown, unknown][] = [
    ["not applied", () => notApplied(), { $case: "notApplied", value: {} }],
    ["nobody can tell", () => unknown(), { $case: "unknown", value: { message: "the reconcile handler cannot tell" } }],
    ["applied without a result", () => applied(undefined), { $case: "applied", value: { resultJson: "null" } }],
    [
      "applied with what JSON cannot hold",
      () => applied({ at: Number.NaN }),
      { $case: "unknown", value: { message: expect.stringContaining('it was applied, but tool "pay" returned what JSON cannot hold') } },
    ],
    [
      "applied with too large a result",
      () => applied("x".repeat(2_000)),
      { $case: "unknown", value: { message: expect.stringContaining('it was applied, but tool "pay" returned 2002 bytes') } },
    ],
    [
      "a throw",
      () => {
        throw new TypeError("the shop is closed");
      },
      { $case: "unknown", value: { message: "TypeError: the shop is closed" } },
    ],
    ["a rejection", () => Promise.reject(new Error("no")), { $case: "unknown", value: { message: "Error: no" } }],
    ...[undefined, null, true, "applied", {}, { kind: "applied" }, { kind: "perhaps" }].map((value): [string, () => unknown, unknown] => [
      `${JSON.stringify(value) ?? "nothing"}, which is no answer`,
      () => value,
      { $case: "unknown", value: { message: expect.stringContaining("must return applied(result), notApplied() or unknown()") } },
    ]),
  ];
  it.each(ANSWERS)("is heard when it says: %s", async (_name, answer, outcome) => {
    const { session } = await serve({ journal: await crashedJournal(), tools: [pay(answer as () => Reconciliation)] });
    session.reconcile(STARTED, { tool: "pay", maxResultBytes: 1_024 });
    expect((await session.next("reconcileAnswer")).outcome).toEqual(outcome);
  });

  it("that does not answer in its time is aborted, and counts as one that cannot tell", async () => {
    const reasons: unknown[] = [];
    const never = pay(
      (ctx) =>
        new Promise(() => {
          ctx.signal.addEventListener("abort", () => reasons.push((ctx.signal.reason as { code?: string }).code));
        }),
    );
    const { session } = await serve({ journal: await crashedJournal(), tools: [never] });
    session.reconcile(STARTED, { tool: "pay", remainingMs: 30 });
    expect((await session.next("reconcileAnswer")).outcome).toEqual({
      $case: "unknown",
      value: { message: "the reconcile handler did not answer in time" },
    });
    expect(reasons).toEqual(["deadline"]);
  });

  it("is not asked while a grant of the call still runs here: what it does not find may be done the next moment", async () => {
    const hold = deferred();
    let looked = 0;
    const tool = defineTool({
      name: "pay",
      description: "",
      run: () => hold.promise,
      reconcile: () => {
        looked += 1;
        return notApplied();
      },
    });
    const { session } = await serve({ tools: [tool] });
    const grant = session.grant({ tool: "pay" });
    await session.next("started");
    session.reconcile(grant, { tool: "pay" });
    expect((await session.next("reconcileAnswer")).outcome).toEqual({
      $case: "unavailable",
      value: { message: "the handler still runs in this process" },
    });
    // Its lease is lost, it is aborted and goes on all the same: it is still at it.
    session.send({ $case: "revoke", value: { ...grant, reason: "lease lost" } });
    expect((await session.next("revokeAnswer")).phase).toBe(GrantPhase.RUNNING);
    session.reconcile(grant, { tool: "pay" });
    expect((await session.next("reconcileAnswer")).outcome?.$case).toBe("unavailable");
    hold.resolve();
    const receipt = await session.next("receipt");
    session.reconcile(grant, { tool: "pay" });
    // It returned: what it left is its receipt, and that says more than a look.
    expect((await session.next("reconcileAnswer")).outcome).toEqual({
      $case: "unavailable",
      value: { message: "the handler finished: its receipt is sent again" },
    });
    expect((await session.next("receipt")).digest).toBe(receipt.digest);
    expect(looked).toBe(0);
  });

  it("is not asked about what the journal says never began: that was not applied, and never will be (G1)", async () => {
    const journal = memoryJournal();
    const opened = await journal.open({ clock: CLOCK });
    await opened.append({ kind: "granted", ...STARTED, attempt: 1, tool: "pay", version: "1", at: Date.now() });
    await opened.close();
    let ran = 0;
    const tool = defineTool({
      name: "pay",
      description: "",
      run: () => {
        ran += 1;
      },
      reconcile: () => applied(1),
    });
    const { session } = await serve({ journal, tools: [tool] });
    session.reconcile(STARTED, { tool: "pay" });
    expect((await session.next("reconcileAnswer")).outcome).toEqual({ $case: "notApplied", value: {} });
    session.grant({ tool: "pay", ...STARTED });
    expect(await session.next("decline")).toMatchObject({ grantId: STARTED.grantId });
    expect(ran).toBe(0);
  });

  it("is not asked about a grant that the journal does not know: records are dropped, so that says nothing (G1)", async () => {
    const { session } = await serve({ tools: [pay(() => notApplied())] });
    session.reconcile(STARTED, { tool: "pay" });
    expect((await session.next("reconcileAnswer")).outcome).toEqual({
      $case: "unavailable",
      value: { message: "the journal does not know the grant" },
    });
  });

  it("is not asked for another session, without a handler, of another version, with arguments that are no JSON, or under another call's name", async () => {
    const { session } = await serve({
      journal: await crashedJournal(),
      tools: [pay(() => notApplied()), defineTool({ name: "other", description: "", run: () => null })],
    });
    const said = async (started: typeof STARTED, grant: Parameters<typeof session.reconcile>[1]) => {
      session.reconcile(started, grant);
      return (await session.next("reconcileAnswer")).outcome;
    };
    const unavailable = (message: string) => ({ $case: "unavailable", value: { message } });
    expect(await said(STARTED, { tool: "pay", sessionEpoch: 77 })).toEqual(
      unavailable("the question is for session 77, this is session 1"),
    );
    expect(await said(STARTED, { tool: "other" })).toEqual(unavailable('no reconcile handler for tool "other" version "1"'));
    expect(await said(STARTED, { tool: "pay", version: "2" })).toEqual(unavailable('no reconcile handler for tool "pay" version "2"'));
    expect(await said(STARTED, { tool: "pay", argumentsJson: "{" })).toEqual(unavailable("the arguments are not JSON"));
    expect(await said({ ...STARTED, callId: "call_other" }, { tool: "pay" })).toEqual(unavailable("the journal does not know the grant"));
  });

  it("gets a typed fault for a question without its ids or without a grant, and the session goes on", async () => {
    const { session } = await serve({ journal: await crashedJournal(), tools: [pay(() => notApplied())] });
    session.reconcile(STARTED, { tool: "pay", callId: "" });
    expect(await session.next("protocolFault")).toMatchObject({ code: "frame_invalid" });
    session.reconcile({ ...STARTED, grantId: "" }, { tool: "pay", grantId: "g" });
    expect(await session.next("protocolFault")).toMatchObject({ code: "frame_invalid", callId: STARTED.callId });
    session.send({ $case: "reconcile", value: { grant: undefined, startedGrantId: "a", startedFence: 1 } });
    expect(await session.next("protocolFault")).toMatchObject({ code: "frame_unknown" });
    session.reconcile(STARTED, { tool: "pay" });
    expect((await session.next("reconcileAnswer")).outcome?.$case).toBe("notApplied");
  });

  it("answers the same question once, and a newer one about the call in place of the older", async () => {
    const looks: ReconcileContext[] = [];
    const answers = [deferred<Reconciliation>(), deferred<Reconciliation>()];
    const tool = pay((ctx) => {
      looks.push(ctx);
      return answers[looks.length - 1]?.promise ?? unknown();
    });
    const { session } = await serve({ journal: await crashedJournal(), tools: [tool] });
    const first = session.reconcile(STARTED, { tool: "pay", grantId: "asked_1" });
    session.reconcile(STARTED, { tool: "pay", grantId: "asked_1", fence: first.fence });
    await until("the first look", () => looks.length === 1);
    await session.settleFrames();
    expect(looks).toHaveLength(1);
    session.reconcile(STARTED, { tool: "pay", grantId: "asked_2" });
    await until("the second look", () => looks.length === 2);
    expect(looks[0]?.signal.aborted).toBe(true);
    answers[0]?.resolve(notApplied());
    answers[1]?.resolve(applied(1));
    expect(await session.next("reconcileAnswer")).toMatchObject({ grantId: "asked_2", outcome: { $case: "applied" } });
    await session.settleFrames();
    expect(session.all("reconcileAnswer")).toHaveLength(1);
  });

  it("is aborted when the question is taken back, and says nothing then", async () => {
    const answer = deferred<Reconciliation>();
    const looks: ReconcileContext[] = [];
    const { session } = await serve({
      journal: await crashedJournal(),
      tools: [
        pay((ctx) => {
          looks.push(ctx);
          return answer.promise;
        }),
      ],
    });
    const { callId, grantId, fence } = session.reconcile(STARTED, { tool: "pay" });
    await until("the look", () => looks.length === 1);
    session.send({ $case: "revoke", value: { callId, grantId, fence, reason: "a person said" } });
    await until("the abort", () => looks[0]?.signal.aborted);
    answer.resolve(notApplied());
    await session.settleFrames();
    expect(session.all("reconcileAnswer")).toEqual([]);
    expect(session.all("revokeAnswer")).toEqual([]);
  });

  it("says nothing on a later session than the one that asked; the next hello tells of the start again", async () => {
    const answer = deferred<Reconciliation>();
    let looks = 0;
    const { session, broker } = await serve({
      journal: await crashedJournal(),
      tools: [
        pay(() => {
          looks += 1;
          return looks === 1 ? answer.promise : notApplied();
        }),
      ],
    });
    session.reconcile(STARTED, { tool: "pay" });
    await until("the look", () => looks === 1);
    session.sever();
    const second = await broker.nextSession();
    expect((await second.welcome()).held).toEqual([{ ...STARTED, phase: GrantPhase.OUTCOME_UNKNOWN }]);
    answer.resolve(applied(1));
    await second.settleFrames();
    expect(second.all("reconcileAnswer")).toEqual([]);
    second.reconcile(STARTED, { tool: "pay" });
    expect((await second.next("reconcileAnswer")).outcome?.$case).toBe("notApplied");
    second.acknowledge(STARTED, ReceiptDisposition.EXPIRED);
    await second.settleFrames();
    second.sever();
    expect((await (await broker.nextSession()).welcome()).held).toEqual([]);
  });

  it("looks for as many calls at once as may run; the others wait, and whose turn does not come in time was not asked", async () => {
    const starts = Array.from({ length: 5 }, (_, index) => ({ callId: `call_${index}`, grantId: `grant_${index}`, fence: 3 }));
    const open: ((answer: Reconciliation) => void)[] = [];
    let most = 0;
    let now = 0;
    const { session } = await serve({
      journal: await crashedJournal(starts),
      concurrency: 2,
      tools: [
        pay(async () => {
          now += 1;
          most = Math.max(most, now);
          const answer = await new Promise<Reconciliation>((resolve) => open.push(resolve));
          now -= 1;
          return answer;
        }),
      ],
    });
    for (const started of starts) {
      session.reconcile(started, { tool: "pay", remainingMs: started.callId === "call_4" ? 50 : 60_000 });
    }
    expect(await session.next("reconcileAnswer")).toMatchObject({
      callId: "call_4",
      outcome: { $case: "unavailable", value: { message: expect.stringContaining("its turn did not come in time") } },
    });
    for (let answered = 0; answered < 4; answered += 1) {
      await until("a look", () => open.length > answered);
      open[answered]?.(notApplied());
      expect((await session.next("reconcileAnswer")).callId).toBe(`call_${answered}`);
    }
    expect(most).toBe(2);
    expect(open).toHaveLength(4);
  });

  it("is aborted, and says that it was not asked, when the runner stops", async () => {
    const looks: ReconcileContext[] = [];
    const { session, runner } = await serve({
      journal: await crashedJournal(),
      tools: [
        pay((ctx) => {
          looks.push(ctx);
          return new Promise(() => {});
        }),
      ],
    });
    session.reconcile(STARTED, { tool: "pay" });
    await until("the look", () => looks.length === 1);
    await runner.stop();
    expect(looks[0]?.signal.reason).toMatchObject({ code: "draining" });
    expect((await session.next("reconcileAnswer")).outcome?.$case).toBe("unavailable");
  });

  it("leaves its call to be run again: a new grant with a newer fence runs here after it said not applied", async () => {
    let ran = 0;
    const tool = defineTool({
      name: "pay",
      description: "",
      run: () => {
        ran += 1;
        return "paid";
      },
      reconcile: () => notApplied(),
    });
    const { session } = await serve({ journal: await crashedJournal(), tools: [tool] });
    session.reconcile(STARTED, { tool: "pay" });
    await session.next("reconcileAnswer");
    const receipt = await session.call({ tool: "pay", callId: STARTED.callId, grantId: "grant_again", fence: 20, attempt: 2 });
    expect(receipt.outcome).toMatchObject({ $case: "succeeded" });
    // And never under the old one.
    session.grant({ tool: "pay", ...STARTED });
    expect((await session.next("revokeAnswer")).phase).toBe(GrantPhase.OUTCOME_UNKNOWN);
    expect(ran).toBe(1);
  });

  it("keeps `this` of a tool written as an object", async () => {
    const options = {
      name: "pay",
      description: "",
      found: 42,
      run: () => null,
      reconcile(): Reconciliation {
        return applied(this.found);
      },
    };
    const { session } = await serve({ journal: await crashedJournal(), tools: [defineTool(options)] });
    session.reconcile(STARTED, { tool: "pay" });
    expect((await session.next("reconcileAnswer")).outcome).toEqual({ $case: "applied", value: { resultJson: "42" } });
  });
});
