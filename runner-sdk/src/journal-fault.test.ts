import { DeclineReason, GrantPhase } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { type Journal, JournalError, type JournalRecord, memoryJournal } from "./index.js";
import { deferred, makeRunner, serve, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker } from "./testing.js";

afterEach(stopRunners);

/** A journal that refuses records while `failing` says so. */
function flaky(): { journal: Journal; failing: (kinds: readonly JournalRecord["kind"][]) => void; written: JournalRecord[] } {
  const inner = memoryJournal();
  let refused: readonly JournalRecord["kind"][] = [];
  const written: JournalRecord[] = [];
  return {
    written,
    failing: (kinds) => {
      refused = kinds;
    },
    journal: {
      ...inner,
      async open(options) {
        const opened = await inner.open(options);
        return {
          journalId: opened.journalId,
          view: opened.view,
          note: (record) => opened.note(record),
          close: () => opened.close(),
          append(record) {
            if (refused.includes(record.kind)) return Promise.reject(new JournalError("journal_unwritable", "no space left on device"));
            written.push(record);
            return opened.append(record);
          },
        };
      },
    },
  };
}

const ALL = ["granted", "started", "finished", "refused", "acknowledged"] as const;

describe("a journal that cannot be written", () => {
  it("stops claims, says so in the state, declines what comes, and takes calls again when it can be written", async () => {
    const { journal, failing } = flaky();
    let runs = 0;
    const { session, runner } = await serve({ journal, tools: [work(() => ++runs)] });
    failing(ALL);
    const first = session.grant({ tool: "work" });
    expect((await session.next("claim")).slots).toBe(0);
    expect(runner.state).toEqual({ kind: "ready", fault: { code: "journal_unwritable", message: "no space left on device" } });
    const second = session.grant({ tool: "work" });
    expect(await session.next("decline")).toMatchObject({ grantId: second.grantId, reason: DeclineReason.UNAVAILABLE });
    failing([]);
    expect(await session.next("decline")).toMatchObject({ grantId: first.grantId, reason: DeclineReason.UNAVAILABLE });
    expect((await session.next("claim")).slots).toBe(16);
    expect(runner.state).toEqual({ kind: "ready", fault: null });
    expect(runs).toBe(0);
    session.grant({ tool: "work" });
    await session.next("receipt");
    expect(runs).toBe(1);
  });

  it("does not lose what runs: the result is kept, and sent only after it was written (I7)", async () => {
    const { journal, failing, written } = flaky();
    const end = deferred();
    const { session, runner } = await serve({ journal, tools: [work(() => end.promise)] });
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    failing(ALL);
    end.resolve();
    await until("the fault shows", () => runner.state.kind === "ready" && runner.state.fault !== null);
    expect(await session.ping(1)).toMatchObject([{ grantId: grant.grantId, phase: GrantPhase.RUNNING }]);
    expect(session.all("receipt")).toEqual([]);
    failing([]);
    expect((await session.next("receipt")).grantId).toBe(grant.grantId);
    expect(written.at(-1)?.kind).toBe("finished");
  });

  it("does not keep the runner from redialling, and its hello claims nothing and reports no refusal that is not durable", async () => {
    const { journal, failing } = flaky();
    const broker = createFakeBroker();
    let ran = false;
    const { session } = await serve(
      {
        journal,
        tools: [
          work(() => {
            ran = true;
          }),
        ],
      },
      {},
      broker,
    );
    failing(ALL);
    const grant = session.grant({ tool: "work" });
    await session.next("claim");
    session.sever();
    const second = await broker.nextSession();
    expect(await second.welcome()).toMatchObject({ slots: 0, held: [] });
    second.send({ $case: "revoke", value: { callId: grant.callId, grantId: grant.grantId, fence: grant.fence, reason: "asked" } });
    await second.settleFrames();
    expect(second.all("revokeAnswer")).toEqual([]);
    failing([]);
    expect(await second.next("revokeAnswer")).toMatchObject({ phase: GrantPhase.NOT_STARTED });
    expect((await second.next("claim")).slots).toBe(16);
    expect(ran).toBe(false);
  });

  it("does not keep stop from ending; the log says which result was not kept", async () => {
    const { journal, failing } = flaky();
    const end = deferred();
    const { session, runner, events } = await serve({ journal, tools: [work(() => end.promise)] });
    session.grant({ tool: "work" });
    await session.next("started");
    failing(ALL);
    end.resolve();
    await until("the fault shows", () => runner.state.kind === "ready" && runner.state.fault !== null);
    await runner.stop();
    await until("the log says so", () => events.some(({ event }) => event === "receipt_not_journaled"));
  });

  it("that cannot be opened rejects start with its own error", async () => {
    const journal: Journal = { kind: "test", durable: true, open: () => Promise.reject(new JournalError("journal_corrupt", "unreadable")) };
    const { runner } = makeRunner({ journal, tools: [work(() => 1)] });
    await expect(runner.start()).rejects.toMatchObject({ code: "journal_corrupt" });
    expect(await runner.closed).toEqual({ kind: "stopped" });
  });
});

describe("the order of records (J1, I7)", () => {
  it("is granted, started before the handler's first line, finished before the receipt", async () => {
    const { journal, written } = flaky();
    const seen: string[] = [];
    const { session } = await serve({
      journal,
      tools: [
        work(() => {
          seen.push(...written.map(({ kind }) => kind), "handler");
        }),
      ],
    });
    session.grant({ tool: "work" });
    await session.next("receipt");
    expect(seen).toEqual(["started", "handler"]);
    expect(written.map(({ kind }) => kind)).toEqual(["started", "finished"]);
  });

  it("says in the log that a memory journal does not protect anything (R2)", async () => {
    const { events } = await serve({ tools: [work(() => 1)] });
    expect(events.find(({ event }) => event === "journal_not_durable")?.fields).toMatchObject({ level: "warn", journal: "memory" });
  });
});
