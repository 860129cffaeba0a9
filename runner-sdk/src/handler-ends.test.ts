import { CancelLevel, DeclineReason } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { allow, forbid, ToolError } from "./index.js";
import { abortOf, deferred, serve, stopRunners, until, work } from "./runner.test.kit.js";

afterEach(stopRunners);

const failed = (outcome: unknown) =>
  (outcome as { $case: "failed"; value: { code: string; message: string; retryable: boolean; retryAfterMs: number } }).value;

describe("authorize (R11)", () => {
  it("sees the call and lets it run", async () => {
    const asked = deferred<unknown>();
    const { session } = await serve({
      tools: [work(() => "ran")],
      authorize: (ctx) => {
        asked.resolve({ subject: ctx.subject, agent: ctx.agent, scopes: ctx.scopes, tool: ctx.tool, arguments: ctx.arguments });
        return allow();
      },
    });
    session.grant({ tool: "work", subject: "user_1", agent: "helper", scopes: ["a"], argumentsJson: '{"x":1}' });
    expect(await asked.promise).toEqual({ subject: "user_1", agent: "helper", scopes: ["a"], tool: "work", arguments: { x: 1 } });
    expect((await session.next("receipt")).outcome?.$case).toBe("succeeded");
  });

  it("forbids: declined with the reason, and the handler never counts as started", async () => {
    let ran = false;
    const { session } = await serve({
      tools: [
        work(() => {
          ran = true;
        }),
      ],
      authorize: async () => forbid("not your order"),
    });
    const grant = session.grant({ tool: "work" });
    expect(await session.next("decline")).toMatchObject({
      grantId: grant.grantId,
      reason: DeclineReason.FORBIDDEN,
      message: "not your order",
    });
    await session.settleFrames();
    expect(ran).toBe(false);
    expect(session.all("started")).toEqual([]);
    expect(session.all("receipt")).toEqual([]);
  });

  it.each<[string, () => never, string]>([
    [
      "throws",
      () => {
        throw new Error("directory away");
      },
      "directory away",
    ],
    ["answers true", () => true as never, "allow() or forbid(reason)"],
    ["answers nothing", () => undefined as never, "allow() or forbid(reason)"],
    ["forbids without a reason", () => ({ kind: "forbid" }) as never, "allow() or forbid(reason)"],
  ])("that %s settles as failed and starts nothing: it never lets a call through by accident", async (_name, authorize, message) => {
    let ran = false;
    const { session } = await serve({
      tools: [
        work(() => {
          ran = true;
        }),
      ],
      authorize,
    });
    session.grant({ tool: "work" });
    const receipt = await session.next("receipt");
    expect(failed(receipt.outcome)).toMatchObject({ code: "handler_error", retryable: false });
    expect(failed(receipt.outcome).message).toContain(message);
    expect(receipt.startedAtUnixMs).toBe(0);
    expect(ran).toBe(false);
    expect(session.all("started")).toEqual([]);
  });

  it("that never answers does not keep a cancel from settling the call", async () => {
    const { session } = await serve({ tools: [work(() => null)], authorize: () => new Promise(() => {}) });
    const grant = session.grant({ tool: "work" });
    await session.settleFrames();
    session.send({ $case: "cancel", value: { callId: grant.callId, grantId: grant.grantId, fence: grant.fence, reason: "" } });
    expect((await session.next("receipt")).outcome?.$case).toBe("cancelled");
  });
});

describe("cancel (K)", () => {
  const cancel = (grant: { callId: string; grantId: string; fence: number }) => ({
    $case: "cancel" as const,
    value: { ...grant, reason: "user left" },
  });

  it("aborts a cancellable handler; when it throws the receipt is cancelled and the cancel stopped it", async () => {
    const reasons: unknown[] = [];
    const { session } = await serve({
      tools: [
        work(
          async (_args, ctx) => {
            await abortOf(ctx.signal).catch((reason: unknown) => {
              reasons.push(reason);
              throw reason;
            });
          },
          { cancellable: true },
        ),
      ],
    });
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    session.send(cancel(grant));
    const receipt = await session.next("receipt");
    expect(receipt.outcome).toEqual({ $case: "cancelled", value: { message: "user left" } });
    expect(session.all("cancelAnswer").map(({ level }) => level)).toEqual([CancelLevel.DELIVERED, CancelLevel.STOPPED]);
    expect(reasons).toMatchObject([{ name: "AbortError", code: "cancelled" }]);
  });

  it("loses against a result: a handler that returns normally has succeeded, and the cancel was ignored", async () => {
    const { session } = await serve({
      tools: [work((_args, ctx) => abortOf(ctx.signal).catch(() => "finished anyway"), { cancellable: true })],
    });
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    session.send(cancel(grant));
    expect((await session.next("receipt")).outcome).toEqual({ $case: "succeeded", value: { resultJson: '"finished anyway"' } });
    expect(session.all("cancelAnswer").map(({ level }) => level)).toEqual([CancelLevel.DELIVERED, CancelLevel.IGNORED]);
  });

  it("is ignored by a handler that is not cancellable, whose signal stays quiet (K2)", async () => {
    const end = deferred();
    const reasons: unknown[] = [];
    const { session } = await serve({
      tools: [
        work(async (_args, ctx) => {
          ctx.signal.addEventListener("abort", () => reasons.push(ctx.signal.reason));
          await end.promise;
        }),
      ],
    });
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    session.send(cancel(grant));
    expect((await session.next("cancelAnswer")).level).toBe(CancelLevel.IGNORED);
    expect(reasons).toEqual([]);
    end.resolve();
    expect((await session.next("receipt")).outcome?.$case).toBe("succeeded");
    expect(reasons).toMatchObject([{ code: "ended" }]);
  });

  it("of a call that ended is ignored and gets the receipt again", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    const grant = session.grant({ tool: "work" });
    await session.next("receipt");
    session.send(cancel(grant));
    expect((await session.next("cancelAnswer")).level).toBe(CancelLevel.IGNORED);
    expect((await session.next("receipt")).grantId).toBe(grant.grantId);
  });
});

describe("submission (X5)", () => {
  const submitting = work((_args, ctx) => ctx.submit({ ticket: 7 }), { resultSemantics: "submission" });

  it("ends the turn with the handle, and settle sends the final receipt of the same grant", async () => {
    const { session, runner } = await serve({ tools: [submitting] });
    const grant = session.grant({ tool: "work" });
    const submitted = await session.next("receipt");
    expect(submitted.outcome).toEqual({ $case: "submitted", value: { handleJson: '{"ticket":7}' } });
    session.acknowledge(submitted);
    await session.settleFrames();
    await runner.settle(grant.callId, { kind: "succeeded", result: { paid: true } });
    const final = await session.next("receipt");
    expect(final).toMatchObject({
      grantId: grant.grantId,
      fence: grant.fence,
      outcome: { $case: "succeeded", value: { resultJson: '{"paid":true}' } },
    });
    await expect(runner.settle(grant.callId, { kind: "succeeded", result: 1 })).rejects.toMatchObject({ code: "submission_settled" });
  });

  it("does not take the acknowledgement of the submission for that of the final receipt", async () => {
    const { session, runner, broker } = await serve({ tools: [submitting] });
    const grant = session.grant({ tool: "work" });
    const submitted = await session.next("receipt");
    await runner.settle(grant.callId, { kind: "failed", error: new ToolError("refused_by_bank", "no") });
    await session.next("receipt");
    session.acknowledge(submitted);
    await session.settleFrames();
    session.sever();
    const again = await broker.nextSession();
    await again.welcome();
    expect(failed((await again.next("receipt")).outcome).code).toBe("refused_by_bank");
  });

  it("settles cancelled and refuses what it does not hold or JSON cannot", async () => {
    const { session, runner } = await serve({ tools: [submitting] });
    await expect(runner.settle("call_none", { kind: "succeeded", result: 1 })).rejects.toMatchObject({
      code: "submission_unknown",
      callId: "call_none",
    });
    const grant = session.grant({ tool: "work" });
    await session.next("receipt");
    await expect(runner.settle(grant.callId, { kind: "succeeded", result: 1n })).rejects.toMatchObject({ name: "NotJsonError" });
    await expect(runner.settle(grant.callId, { kind: "succeeded", result: "x".repeat(2_000_000) })).rejects.toMatchObject({
      code: "result_too_large",
    });
    await runner.settle(grant.callId, { kind: "cancelled", message: "withdrawn" });
    expect((await session.next("receipt")).outcome).toEqual({ $case: "cancelled", value: { message: "withdrawn" } });
  });

  it("lets one of two settlements at once win", async () => {
    const { session, runner } = await serve({ tools: [submitting] });
    const grant = session.grant({ tool: "work" });
    session.acknowledge(await session.next("receipt"));
    const results = await Promise.allSettled([1, 2].map((result) => runner.settle(grant.callId, { kind: "succeeded", result })));
    expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  });

  it("of a tool with completion semantics is the handler's fault", async () => {
    const { session } = await serve({ tools: [work((_args, ctx) => ctx.submit(1))] });
    session.grant({ tool: "work" });
    expect(failed((await session.next("receipt")).outcome).message).toContain('resultSemantics: "submission"');
  });
});

describe("concurrency", () => {
  it("runs as many as it claims, and declines one more than that without using it up", async () => {
    const end = deferred();
    const { session } = await serve({ tools: [work(() => end.promise)], concurrency: 2 });
    session.grant({ tool: "work" });
    session.grant({ tool: "work" });
    const third = session.grant({ tool: "work" });
    expect(await session.next("decline")).toMatchObject({ grantId: third.grantId, reason: DeclineReason.UNAVAILABLE });
    end.resolve();
    await session.next("receipt");
    await session.next("receipt");
    session.grant({ tool: "work" });
    await session.next("receipt");
  });

  it("keeps two handlers that never end from blocking the others", async () => {
    const { session, runner } = await serve({
      tools: [work((args) => ((args as { stuck?: boolean }).stuck === true ? new Promise(() => {}) : "free"))],
      concurrency: 3,
    });
    session.grant({ tool: "work", argumentsJson: '{"stuck":true}' });
    session.grant({ tool: "work", argumentsJson: '{"stuck":true}' });
    session.grant({ tool: "work" });
    await session.next("receipt");
    await runner.stop();
    await until("the runner stopped", () => runner.state.kind === "stopped");
  });
});
