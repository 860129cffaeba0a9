import { DeclineReason, GrantPhase } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { allow, type Journal, memoryJournal } from "./index.js";
import { abortOf, deferred, serve, stopRunners, work } from "./runner.test.kit.js";

afterEach(stopRunners);

const revoke = (grant: { callId: string; grantId: string; fence: number }) => ({
  $case: "revoke" as const,
  value: { ...grant, reason: "moved" },
});
const nameOf = ({ callId, grantId, fence }: { callId: string; grantId: string; fence: number }) => ({ callId, grantId, fence });

/** A journal whose appends of one kind wait until they are let through. */
function gated(kind: string): { journal: Journal; arrived: Promise<void>; open: () => void } {
  const inner = memoryJournal();
  const gate = deferred();
  const arrived = deferred();
  return {
    arrived: arrived.promise,
    open: () => gate.resolve(),
    journal: {
      ...inner,
      async open(options) {
        const opened = await inner.open(options);
        return {
          journalId: opened.journalId,
          view: opened.view,
          note: (record) => opened.note(record),
          close: () => opened.close(),
          async append(record) {
            if (record.kind === kind) {
              arrived.resolve();
              await gate.promise;
            }
            await opened.append(record);
          },
        };
      },
    },
  };
}

describe("a grant is run once", () => {
  it("however often it arrives: while it runs, it is said to have started; when it ended, the receipt comes again", async () => {
    let runs = 0;
    const end = deferred();
    const { session } = await serve({
      tools: [
        work(async () => {
          runs++;
          await end.promise;
        }),
      ],
    });
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    session.grant(grant);
    await session.next("started");
    end.resolve();
    const receipt = await session.next("receipt");
    session.grant(grant);
    expect((await session.next("receipt")).digest).toBe(receipt.digest);
    session.acknowledge(receipt);
    session.grant(grant);
    expect((await session.next("receipt")).digest).toBe(receipt.digest);
    expect(runs).toBe(1);
  });

  it("not at all when it is of another session's epoch (G2)", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    const grant = session.grant({ tool: "work", sessionEpoch: session.epoch + 1 });
    expect(await session.next("decline")).toMatchObject({ grantId: grant.grantId, reason: DeclineReason.UNAVAILABLE });
    expect(session.all("started")).toEqual([]);
  });

  it("not at all by a runner without its handler, which says what it has instead", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    session.grant({ tool: "work", version: "2" });
    expect((await session.next("decline")).message).toContain("this runner has 1");
    session.grant({ tool: "other" });
    expect((await session.next("decline")).reason).toBe(DeclineReason.UNAVAILABLE);
  });

  it("not at all when its arguments are not JSON or it has no ids", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    session.grant({ tool: "work", argumentsJson: "{" });
    expect((await session.next("receipt")).outcome).toMatchObject({ $case: "failed", value: { code: "arguments_invalid" } });
    session.grant({ tool: "work", grantId: "" });
    expect(await session.next("protocolFault")).toMatchObject({ code: "frame_invalid" });
    expect(session.all("started")).toEqual([]);
  });

  it("not a second time when the handler is not repeatable and finished an earlier grant of the call: its outcome is the answer (D4, G5)", async () => {
    let runs = 0;
    const { session } = await serve({ tools: [work(() => ++runs)] });
    const first = session.grant({ tool: "work" });
    session.acknowledge(await session.next("receipt"));
    const second = session.grant({ tool: "work", callId: first.callId, grantId: "second", fence: first.fence + 1, attempt: 2 });
    expect(await session.next("receipt")).toMatchObject({
      grantId: second.grantId,
      fence: second.fence,
      attempt: 2,
      outcome: { $case: "succeeded", value: { resultJson: "1" } },
    });
    expect(runs).toBe(1);
  });

  it("not beside an earlier grant of the call that still runs here, when the handler is not repeatable (G4)", async () => {
    const { session } = await serve({ tools: [work(() => new Promise(() => {}))] });
    const first = session.grant({ tool: "work" });
    await session.next("started");
    session.grant({ tool: "work", callId: first.callId, grantId: "second", fence: first.fence + 1 });
    expect(await session.next("decline")).toMatchObject({ grantId: "second", reason: DeclineReason.UNAVAILABLE });
  });

  it("not beside an earlier grant of the call whose start is still being journaled, when the handler is not repeatable (D4)", async () => {
    const { journal, arrived, open } = gated("started");
    let runs = 0;
    const { session } = await serve({ journal, tools: [work(() => ++runs)] });
    const first = session.grant({ tool: "work" });
    await arrived;
    session.grant({ tool: "work", callId: first.callId, grantId: "second", fence: first.fence + 1 });
    expect((await session.next("decline")).grantId).toBe("second");
    open();
    await session.next("receipt");
    expect(runs).toBe(1);
  });

  it("but again under a new grant when the handler is repeatable", async () => {
    let runs = 0;
    const { session } = await serve({ tools: [work(() => ++runs, { idempotent: true })] });
    const first = session.grant({ tool: "work" });
    await session.next("receipt");
    session.grant({ tool: "work", callId: first.callId, grantId: "second", fence: first.fence + 1 });
    await session.next("receipt");
    expect(runs).toBe(2);
  });
});

describe("revoke (G1)", () => {
  it("of a grant that never came answers not started with the journal's id, and refuses that fence and older ones for good", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    const { journalId } = await session.hello();
    session.send(revoke({ callId: "call_x", grantId: "g5", fence: 5 }));
    expect(await session.next("revokeAnswer")).toMatchObject({
      callId: "call_x",
      grantId: "g5",
      fence: 5,
      journalId,
      phase: GrantPhase.NOT_STARTED,
    });
    session.grant({ tool: "work", callId: "call_x", grantId: "g5", fence: 5 });
    expect((await session.next("decline")).grantId).toBe("g5");
    session.grant({ tool: "work", callId: "call_x", grantId: "g4", fence: 4 });
    expect((await session.next("decline")).grantId).toBe("g4");
    session.grant({ tool: "work", callId: "call_x", grantId: "g6", fence: 6 });
    expect((await session.next("receipt")).grantId).toBe("g6");
  });

  it("is answered only after the refusal is durable", async () => {
    const { journal, arrived, open } = gated("refused");
    const { session } = await serve({ tools: [work(() => 1)], journal });
    session.send(revoke({ callId: "call_x", grantId: "g5", fence: 5 }));
    await arrived;
    session.grant({ tool: "work", callId: "call_x", grantId: "g5", fence: 5 });
    await session.next("decline");
    expect(session.all("revokeAnswer")).toEqual([]);
    open();
    await session.next("revokeAnswer");
  });

  it("keeps a grant that waits for authorize from starting", async () => {
    const ask = deferred();
    let ran = false;
    const { session } = await serve({
      tools: [
        work(() => {
          ran = true;
        }),
      ],
      authorize: async () => {
        await ask.promise;
        return allow();
      },
    });
    const grant = session.grant({ tool: "work" });
    await session.settleFrames();
    session.send(revoke(nameOf(grant)));
    expect((await session.next("revokeAnswer")).phase).toBe(GrantPhase.NOT_STARTED);
    ask.resolve();
    await session.settleFrames();
    expect(ran).toBe(false);
    expect(session.all("decline")).toEqual([]);
  });

  it("keeps a grant whose start is being journaled from running, and says so only when that is durable (E2)", async () => {
    const { journal, arrived, open } = gated("started");
    let ran = false;
    const { session } = await serve({
      tools: [
        work(() => {
          ran = true;
        }),
      ],
      journal,
    });
    const grant = session.grant({ tool: "work" });
    await arrived;
    session.send(revoke(nameOf(grant)));
    await session.settleFrames();
    expect(session.all("revokeAnswer")).toEqual([]);
    open();
    expect((await session.next("revokeAnswer")).phase).toBe(GrantPhase.NOT_STARTED);
    expect(ran).toBe(false);
    expect(session.all("started")).toEqual([]);
  });

  it("of a running grant aborts it with reason revoked and says running; its receipt still comes", async () => {
    const { session } = await serve({ tools: [work((_args, ctx) => abortOf(ctx.signal), { idempotent: true })] });
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    session.send(revoke(nameOf(grant)));
    expect((await session.next("revokeAnswer")).phase).toBe(GrantPhase.RUNNING);
    const { outcome } = await session.next("receipt");
    expect(outcome).toMatchObject({ $case: "failed", value: { code: "handler_error", retryable: true } });
  });

  it("of a finished grant says finished and sends the receipt again", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    const grant = session.grant({ tool: "work" });
    const receipt = await session.next("receipt");
    session.acknowledge(receipt);
    session.send(revoke(nameOf(grant)));
    expect((await session.next("revokeAnswer")).phase).toBe(GrantPhase.FINISHED);
    expect((await session.next("receipt")).digest).toBe(receipt.digest);
  });
});
