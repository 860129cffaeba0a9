import { GrantPhase } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { type Journal, type JournalView, memoryJournal } from "./index.js";
import { makeRunner, serve, stopRunners, work } from "./runner.test.kit.js";
import { createFakeBroker } from "./testing.js";

afterEach(stopRunners);

/** A journal that dropped acknowledged records up to this fence. */
function forgetful(journal: Journal, forgottenFence: number): Journal {
  return {
    kind: journal.kind,
    durable: journal.durable,
    async open(options) {
      const opened = await journal.open(options);
      const view: JournalView = {
        get: (grantId) => opened.view.get(grantId),
        ofCall: (callId) => opened.view.ofCall(callId),
        unacknowledged: () => opened.view.unacknowledged(),
        refusedFence: (callId) => opened.view.refusedFence(callId),
        forgottenFence,
      };
      return {
        journalId: opened.journalId,
        view,
        append: (record) => opened.append(record),
        note: (record) => opened.note(record),
        close: () => opened.close(),
      };
    },
  };
}

const name = (fence: number, grantId = `grant_${fence}`) => ({ callId: "call_1", grantId, fence });

describe("a grant that was taken back (G1)", () => {
  it("is refused by every later process of the journal, with its fence or an older one; a newer grant of the call is run", async () => {
    const journal = memoryJournal();
    const ran: number[] = [];
    const tools = [
      work((_args, ctx) => {
        ran.push(ctx.fence);
      }),
    ];
    const first = await serve({ journal, tools });
    first.session.send({ $case: "revoke", value: { ...name(20), reason: "the lease is over" } });
    expect(await first.session.next("revokeAnswer")).toMatchObject({ ...name(20), phase: GrantPhase.NOT_STARTED });
    await first.runner.stop();

    const { session } = await serve({ journal, tools });
    for (const fence of [20, 19]) {
      session.grant({ tool: "work", ...name(fence, `late_${fence}`) });
      expect(await session.next("decline")).toMatchObject({ fence, message: expect.stringContaining("was refused") });
    }
    session.grant({ tool: "work", ...name(21) });
    expect(await session.next("receipt")).toMatchObject({ fence: 21 });
    expect(ran).toEqual([21]);
  });

  it("is written down before the answer goes out: no answer while the journal cannot be written", async () => {
    const journal = memoryJournal();
    let isBroken = false;
    const fragile: Journal = {
      kind: "fragile",
      durable: true,
      async open(options) {
        const opened = await journal.open(options);
        return {
          journalId: opened.journalId,
          view: opened.view,
          append: (record) => (isBroken ? Promise.reject(new Error("disk full")) : opened.append(record)),
          note: (record) => opened.note(record),
          close: () => opened.close(),
        };
      },
    };
    const { session } = await serve({ journal: fragile, tools: [work(() => null)] });
    isBroken = true;
    session.send({ $case: "revoke", value: { ...name(5), reason: "" } });
    await session.settleFrames();
    expect(session.all("revokeAnswer")).toEqual([]);
    isBroken = false;
    expect(await session.next("revokeAnswer")).toMatchObject({ phase: GrantPhase.NOT_STARTED });
  });

  it("has an unknown outcome where the journal may have dropped its records: that it is not known does not mean that it never began", async () => {
    const broker = createFakeBroker();
    const { session } = await serve({ journal: forgetful(memoryJournal(), 100), tools: [work(() => null)] }, {}, broker);
    session.send({ $case: "revoke", value: { ...name(100), reason: "the ledger went back in time" } });
    expect(await session.next("revokeAnswer")).toMatchObject({ ...name(100), phase: GrantPhase.OUTCOME_UNKNOWN });
    session.send({ $case: "revoke", value: { ...name(101), reason: "the lease is over" } });
    expect(await session.next("revokeAnswer")).toMatchObject({ ...name(101), phase: GrantPhase.NOT_STARTED });
    // It is reported so from then on, and a reconcile handler can be asked about it.
    session.sever();
    expect((await (await broker.nextSession()).welcome()).held).toEqual([{ ...name(100), phase: GrantPhase.OUTCOME_UNKNOWN }]);
  });
});

describe("a finished grant that a broker asks about once more (G5)", () => {
  it("is answered as finished with its receipt, though that was acknowledged: the ledger went back in time", async () => {
    const { session } = await serve({ tools: [work(() => "done")] });
    const receipt = await session.call({ tool: "work", ...name(7) });
    await session.settleFrames();
    session.send({ $case: "revoke", value: { ...name(7), reason: "is it still held?" } });
    expect(await session.next("revokeAnswer")).toMatchObject({ ...name(7), phase: GrantPhase.FINISHED });
    await session.next("receipt");
    expect((await session.next("receipt")).digest).toBe(receipt.digest);
  });

  it("is not run again when it is granted anew, in a later process too: the earlier receipt answers", async () => {
    const journal = memoryJournal();
    let ran = 0;
    const tools = [
      work(() => {
        ran += 1;
        return ran;
      }),
    ];
    const first = await serve({ journal, tools });
    await first.session.call({ tool: "work", ...name(7) });
    await first.session.settleFrames();
    await first.runner.stop();
    const second = makeRunner({ journal, tools });
    const started = second.runner.start();
    const session = await second.broker.nextSession();
    await session.welcome();
    await started;
    const again = await session.call({ tool: "work", ...name(8), attempt: 2 });
    expect(again).toMatchObject({ fence: 8, outcome: { $case: "succeeded", value: { resultJson: "1" } } });
    expect(ran).toBe(1);
  });
});
