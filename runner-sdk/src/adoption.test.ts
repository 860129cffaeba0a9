/** Journals of runners that are gone, served beside a runner's own; a real browser does the same in `test/`. */
import { GrantPhase } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { systemClock } from "./core/clock.js";
import type { OrphanJournal } from "./core/journal.js";
import { type Journal, type JournalRecord, memoryJournal } from "./index.js";
import { createPlace } from "./place.test.kit.js";
import { makeRunner, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker, type FakeSession } from "./testing.js";

afterEach(stopRunners);

const at = Date.now();
const granted = (id: string): JournalRecord => ({
  kind: "granted",
  callId: `call_${id}`,
  grantId: id,
  fence: 1,
  attempt: 1,
  tool: "work",
  version: "1",
  at,
});
const started = (id: string): JournalRecord => ({ kind: "started", grantId: id, at });
const finished = (id: string): JournalRecord => ({
  kind: "finished",
  at,
  receipt: {
    callId: `call_${id}`,
    grantId: id,
    fence: 1,
    attempt: 1,
    digest: id,
    startedAtUnixMs: 1,
    finishedAtUnixMs: 2,
    outcome: { kind: "succeeded", resultJson: "1" },
  },
});

/** A journal whose orphans the test gives. */
function journalWithOrphans() {
  const own = memoryJournal();
  const waiting: OrphanJournal[] = [];
  const fates: string[] = [];
  let wake: () => void = () => {};
  let searches = 0;
  const journal: Journal = {
    kind: "memory",
    durable: true,
    open: (options) => own.open(options),
    async *orphans({ signal }) {
      searches++;
      const end = () => wake();
      signal.addEventListener("abort", end);
      while (!signal.aborted) {
        const next = waiting.shift();
        if (next !== undefined) yield next;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    },
  };
  return {
    journal,
    fates,
    searches: () => searches,
    async orphan(runnerId: string, records: readonly JournalRecord[], mayBeAsked = false) {
      const kept = memoryJournal();
      const before = await kept.open({ clock: systemClock });
      for (const record of records) await before.append(record);
      await before.close();
      const opened = await kept.open({ clock: systemClock });
      const close = () => {
        if (!fates.includes(`${runnerId} closed`)) fates.push(`${runnerId} closed`);
        return opened.close();
      };
      waiting.push({
        runnerId,
        mayBeAsked,
        journal: { journalId: opened.journalId, view: opened.view, append: opened.append, note: opened.note, close },
        async destroy() {
          fates.push(`${runnerId} destroyed`);
        },
      });
      wake();
      return opened.journalId;
    },
  };
}

async function serveWithOrphans() {
  const page = createPlace("tab_own");
  const orphans = journalWithOrphans();
  const broker = createFakeBroker();
  const made = makeRunner(
    {
      tools: [work(() => 1)],
      transport: { ...broker.transport, place: page.place },
      journal: orphans.journal,
      token: "key",
      subject: "user_1",
    },
    broker,
  );
  const begun = made.runner.start();
  const session = await broker.nextSession();
  await session.welcome({ leaseMs: 300 });
  await begun;
  return { page, session, ...made, ...orphans };
}

/** Acknowledges what comes, as a broker does. */
async function takeReceipts(session: FakeSession, count: number): Promise<readonly string[]> {
  const taken: string[] = [];
  for (let left = count; left > 0; left--) {
    const receipt = await session.next("receipt");
    session.acknowledge(receipt);
    taken.push(receipt.grantId);
  }
  return taken;
}

describe("the journal of a runner that is gone (R5, G1)", () => {
  it("is served by a session of its own: with its id and its runner's, what it holds, and no claim; then it is deleted", async () => {
    const { broker, page, fates, orphan, runner } = await serveWithOrphans();
    const journalId = await orphan("tab_gone", [finished("a"), granted("b"), finished("c")]);
    const session = await broker.nextSession();
    const hello = await session.welcome();
    expect(hello).toMatchObject({ runnerId: "tab_gone", journalId, slots: 0, binding: "shop", subject: "user_1", credential: "key" });
    expect(hello.handlers.map(({ tool }) => tool)).toEqual(["work"]);
    expect(hello.held.map(({ grantId, phase }) => [grantId, phase])).toEqual([
      ["a", GrantPhase.FINISHED],
      ["b", GrantPhase.NOT_STARTED],
      ["c", GrantPhase.FINISHED],
    ]);
    expect(await takeReceipts(session, 2)).toEqual(["a", "c"]);
    await session.ended;
    expect((await session.channel.closed).code).toBe(1000);
    await until("the end of the journal", () => fates.includes("tab_gone destroyed"));
    expect(page.released).toEqual(["tab_gone"]);
    expect(runner.state).toEqual({ kind: "ready", fault: null });
  });

  it("declines every grant, and answers a revoke for its own journal", async () => {
    const { broker, orphan } = await serveWithOrphans();
    const journalId = await orphan("tab_gone", [finished("a")], true);
    const session = await broker.nextSession();
    await session.welcome({ leaseMs: 60_000 });
    const grant = session.grant({ tool: "work" });
    expect(await session.next("decline")).toMatchObject({ grantId: grant.grantId });
    session.send({ $case: "revoke", value: { callId: "call_unread", grantId: "unread", fence: 9, reason: "is it still held?" } });
    expect(await session.next("revokeAnswer")).toMatchObject({ journalId, grantId: "unread", phase: GrantPhase.NOT_STARTED });
  });

  it("is kept, and served, while nobody knows what became of what it started", async () => {
    const { broker, fates, orphan, runner } = await serveWithOrphans();
    await orphan("tab_gone", [granted("a"), started("a"), finished("b")]);
    const session = await broker.nextSession();
    expect((await session.welcome({ leaseMs: 1 })).held).toMatchObject([{ grantId: "a", phase: GrantPhase.OUTCOME_UNKNOWN }, {}]);
    await takeReceipts(session, 1);
    // Others are not held up by it.
    for (let index = 0; index < 6; index++) {
      await orphan(`tab_${index}`, [granted("a"), started("a")]);
      await (await broker.nextSession()).welcome({ leaseMs: 1 });
    }
    expect(fates).toEqual([]);
    await runner.stop();
    expect([...fates].sort()).toEqual(["tab_0", "tab_1", "tab_2", "tab_3", "tab_4", "tab_5", "tab_gone"].map((id) => `${id} closed`));
  });

  it("has a random runner id where the old one is not to be had, and is deleted unserved when nothing can come of it", async () => {
    const { broker, fates, orphan } = await serveWithOrphans();
    await orphan("worker_7", [], false);
    await until("its end", () => fates.includes("worker_7 destroyed"));
    await orphan("worker_8", [finished("a")]);
    const session = await broker.nextSession();
    expect((await session.welcome()).runnerId).toMatch(/^orphan_[a-z2-7]{26}$/);
    await takeReceipts(session, 1);
    await until("its end", () => fates.includes("worker_8 destroyed"));
  });

  it("is delivered over as many sessions as it takes, and given back at once when the page is left; a page that is back looks again", async () => {
    const { broker, page, session: own, fates, orphan, searches } = await serveWithOrphans();
    await orphan("tab_gone", [finished("a"), finished("b")]);
    const first = await broker.nextSession();
    await first.welcome();
    await takeReceipts(first, 1);
    await first.settleFrames();
    first.sever();
    const second = await broker.nextSession();
    expect((await second.welcome()).held.map(({ grantId }) => grantId)).toEqual(["b"]);
    page.leave();
    expect(fates).toEqual(["tab_gone closed"]);
    expect(page.released).toEqual(["tab_gone"]);
    await Promise.all([own.ended, second.ended]);
    page.comeBack();
    await (await broker.nextSession()).welcome();
    await until("another look", () => searches() === 2);
    expect(fates).toEqual(["tab_gone closed"]);
  });

  it("of which there are many is delivered a few at a time, all of them in the end", async () => {
    const { broker, fates, orphan } = await serveWithOrphans();
    const sessions: FakeSession[] = [];
    for (let index = 0; index < 12; index++) await orphan(`tab_${index}`, [finished(`g${index}`)]);
    for (let index = 0; index < 4; index++) sessions.push(await broker.nextSession());
    let fifth = false;
    const next = broker.nextSession().then((session) => {
      fifth = true;
      return session;
    });
    for (const session of sessions) await session.welcome();
    expect(fifth).toBe(false);
    for (const session of sessions) await takeReceipts(session, 1);
    const later = await next;
    await later.welcome();
    await takeReceipts(later, 1);
    for (let left = 7; left > 0; left--) {
      const session = await broker.nextSession();
      await session.welcome();
      await takeReceipts(session, 1);
    }
    await until("all of them", () => fates.filter((fate) => fate.endsWith("destroyed")).length === 12);
  });
});
