/** Pages that are left, hidden, frozen, and come back, as the runner's core sees it; a real browser does the same in `test/`. */
import { DeclineReason, GrantPhase } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { allow, type Journal, JournalError, type JournalRecord, memoryJournal, type RunnerOptions, type Tool } from "./index.js";
import { createPlace } from "./place.test.kit.js";
import { deferred, makeRunner, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker, createManualClock } from "./testing.js";

afterEach(stopRunners);

interface FlushedBody {
  readonly credential: string;
  readonly runner_id: string;
  readonly receipts: readonly {
    readonly grant_id: string;
    readonly digest: string;
    readonly succeeded?: { readonly result_json: string };
  }[];
}

/** A journal whose openings and closings are counted, and which may refuse to open or be slow to write. */
function watchedJournal() {
  const inner = memoryJournal();
  const counts = { opened: 0, closed: 0 };
  let refusal: Error | null = null;
  let hold: { readonly kind: JournalRecord["kind"]; readonly until: Promise<void> } | null = null;
  const journal: Journal = {
    kind: "memory",
    durable: true,
    async open(options) {
      if (refusal !== null) throw refusal;
      const opened = await inner.open(options);
      counts.opened++;
      return {
        journalId: opened.journalId,
        view: opened.view,
        note: (record) => opened.note(record),
        async append(record) {
          if (hold?.kind === record.kind) await hold.until;
          await opened.append(record);
        },
        async close() {
          counts.closed++;
          await opened.close();
        },
      };
    },
  };
  return {
    journal,
    counts,
    refuse: (error: Error | null) => {
      refusal = error;
    },
    holdBack: (kind: JournalRecord["kind"], end: Promise<void>) => {
      hold = { kind, until: end };
    },
  };
}

async function servePage(tools: readonly Tool[], more: Partial<RunnerOptions> = {}) {
  const page = createPlace("tab_one");
  const watched = watchedJournal();
  const broker = createFakeBroker();
  const flushed: FlushedBody[] = [];
  const transport = { ...broker.transport, place: page.place, flush: (body: string) => void flushed.push(JSON.parse(body) as FlushedBody) };
  const { runner, events } = makeRunner({ tools, transport, journal: watched.journal, token: "key", subject: "user_1", ...more }, broker);
  const started = runner.start();
  const session = await broker.nextSession();
  await session.welcome();
  await started;
  return { page, broker, session, runner, events, flushed, ...watched };
}

describe("a page that is put away (R4, R5)", () => {
  it("gives its session and its journal back when nothing runs, dials nowhere, and serves again when it is back", async () => {
    const { page, broker, session, runner, counts, flushed } = await servePage([work(() => 1)]);
    page.leave();
    await session.ended;
    expect((await session.channel.closed).code).toBe(4501);
    expect(counts).toEqual({ opened: 1, closed: 1 });
    expect(flushed).toEqual([]);
    page.leave();
    await until("the next attempt to wait", () => runner.state.kind === "connecting");
    expect(counts).toEqual({ opened: 1, closed: 1 });
    page.comeBack();
    const next = await broker.nextSession();
    await next.welcome();
    expect(counts).toEqual({ opened: 2, closed: 1 });
    expect((await next.call({ tool: "work" })).outcome?.$case).toBe("succeeded");
  });

  it("hands back what has not begun before its session is closed, and never begins it, also when it comes back", async () => {
    const asked = deferred();
    const go = deferred();
    let runs = 0;
    const { page, broker, session, counts } = await servePage([work(() => ++runs)], {
      async authorize() {
        asked.resolve();
        await go.promise;
        return allow();
      },
    });
    const grant = session.grant({ tool: "work" });
    await asked.promise;
    page.leave();
    expect(await session.next("decline")).toMatchObject({ grantId: grant.grantId, reason: DeclineReason.UNAVAILABLE });
    await session.ended;
    expect(counts.closed).toBe(1);
    go.resolve();
    page.comeBack();
    const next = await broker.nextSession();
    // The decline may have been lost with the page: it is said again.
    expect((await next.welcome()).held).toMatchObject([{ grantId: grant.grantId, phase: GrantPhase.NOT_STARTED }]);
    await next.settleFrames();
    expect(runs).toBe(0);
  });

  it("takes back a start that is being written, keeps its journal until that is done, and says never started afterwards (G1)", async () => {
    const written = deferred();
    let runs = 0;
    const { page, broker, session, counts, holdBack } = await servePage([work(() => ++runs)]);
    holdBack("started", written.promise);
    const grant = session.grant({ tool: "work" });
    await session.settleFrames();
    page.leave();
    await session.ended;
    expect(session.all("decline")).toEqual([]);
    expect(counts.closed).toBe(0);
    written.resolve();
    page.comeBack();
    const next = await broker.nextSession();
    expect((await next.welcome()).held).toMatchObject([{ grantId: grant.grantId, phase: GrantPhase.NOT_STARTED }]);
    expect(runs).toBe(0);
  });

  it("keeps its journal while something runs, so that nobody takes it for that of a dead process; the result waits there (G4, I7)", async () => {
    const end = deferred<number>();
    const { page, broker, session, counts, flushed } = await servePage([work(() => end.promise)]);
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    page.leave();
    await session.ended;
    expect(counts).toEqual({ opened: 1, closed: 0 });
    end.resolve(7);
    page.comeBack();
    const next = await broker.nextSession();
    await next.welcome();
    expect(await next.next("receipt")).toMatchObject({ grantId: grant.grantId, outcome: { value: { resultJson: "7" } } });
    expect(counts).toEqual({ opened: 1, closed: 0 });
    expect(flushed).toEqual([]);
  });

  it("flushes receipts that are not acknowledged, marks nothing for that, and sends them again on its next session (G5)", async () => {
    const { page, broker, session, flushed, events } = await servePage([work(() => 1)]);
    const [first, second] = [session.grant({ tool: "work" }), session.grant({ tool: "work" })];
    await session.next("receipt");
    await session.next("receipt");
    session.acknowledge(second);
    await session.settleFrames();
    page.leave();
    expect(flushed).toMatchObject([
      {
        credential: "key",
        runner_id: "tab_one",
        binding: "shop",
        subject: "user_1",
        receipts: [{ grant_id: first.grantId, succeeded: { result_json: "1" } }],
      },
    ]);
    expect(events.find(({ event }) => event === "receipts_flushed")?.fields).toEqual({ level: "info", count: 1 });
    page.comeBack();
    const next = await broker.nextSession();
    expect((await next.welcome()).held).toMatchObject([{ grantId: first.grantId, phase: GrantPhase.FINISHED }]);
    expect(await next.next("receipt")).toMatchObject({ grantId: first.grantId });
  });

  it("flushes what is still being written when it is left, since nobody is there when it is, and delivers it again afterwards (I7)", async () => {
    const written = deferred();
    const { page, broker, session, flushed, counts, holdBack } = await servePage([work(() => 5)]);
    holdBack("finished", written.promise);
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    await session.settleFrames();
    page.become({ visibility: "visible", focused: true });
    page.become({ visibility: "hidden", focused: false });
    expect([flushed.length, session.all("receipt").length]).toEqual([0, 0]);
    page.leave();
    expect(flushed).toMatchObject([{ receipts: [{ grant_id: grant.grantId, succeeded: { result_json: "5" } }] }]);
    expect(counts.closed).toBe(0);
    written.resolve();
    page.comeBack();
    const next = await broker.nextSession();
    await next.welcome();
    expect((await next.next("receipt")).digest).toBe(flushed[0]?.receipts[0]?.digest);
  });

  it("flushes when it is hidden, too, and goes on serving", async () => {
    const { page, session, flushed } = await servePage([work(() => 1)]);
    session.grant({ tool: "work" });
    await session.next("receipt");
    page.become({ visibility: "visible", focused: true });
    page.become({ visibility: "visible", focused: false });
    expect(flushed).toHaveLength(0);
    page.become({ visibility: "hidden", focused: false });
    expect(flushed).toHaveLength(1);
    expect((await session.call({ tool: "work" })).outcome?.$case).toBe("succeeded");
  });

  it("survives a last request that cannot be made", async () => {
    const { page, broker, session, events } = await servePage([work(() => 1)], {});
    const failing = { ...broker.transport };
    expect(failing.flush).toBeUndefined();
    session.grant({ tool: "work" });
    await session.next("receipt");
    page.leave();
    page.comeBack();
    const next = await broker.nextSession();
    await next.welcome();
    await next.next("receipt");
    expect(events.some(({ event }) => event === "page_left")).toBe(true);
  });

  it("that is left again while it takes its journal back takes it the next time (G2)", async () => {
    const { page, broker, session, counts, runner } = await servePage([work(() => 1)]);
    page.leave();
    await session.ended;
    page.comeBack();
    page.leave();
    await until("an attempt", () => runner.state.kind === "connecting" || runner.state.kind === "retrying");
    page.comeBack();
    page.leave();
    page.comeBack();
    const next = await broker.nextSession();
    await next.welcome();
    expect((await next.call({ tool: "work" })).outcome?.$case).toBe("succeeded");
    expect(counts.opened - counts.closed).toBe(1);
  });

  it("that does not get its journal back says why, and tries until it does", async () => {
    const { page, broker, session, runner, refuse } = await servePage([work(() => 1)]);
    page.leave();
    await session.ended;
    refuse(new JournalError("journal_unwritable", "no room"));
    page.comeBack();
    const state = await until("the reason", () => runner.state.kind === "retrying" && runner.state.reason === "no room" && runner.state);
    expect(state.nextTryAt.getTime()).toBeGreaterThan(Date.now() - 1_000);
    refuse(null);
    await (await broker.nextSession()).welcome();
    await until("ready", () => runner.state.kind === "ready");
  });

  it("can be stopped while it is away, and leaves nobody listening", async () => {
    const { page, session, runner, counts } = await servePage([work(() => 1)]);
    page.leave();
    await session.ended;
    await runner.stop();
    expect(await runner.closed).toEqual({ kind: "stopped" });
    expect([counts.opened - counts.closed, page.listeners()]).toEqual([0, 0]);
  });
});

describe("a page that wakes (R3, R8)", () => {
  it("dials at once, and not before the time that the broker asked for", async () => {
    const page = createPlace("tab_one");
    const clock = createManualClock();
    const broker = createFakeBroker();
    broker.failConnects(new Error("no network"));
    const { runner } = makeRunner(
      { tools: [work(() => 1)], transport: { ...broker.transport, place: page.place }, clock, random: () => 0 },
      broker,
    );
    const started = runner.start();
    for (let failures = 0; failures < 8; failures++) {
      await until("a failed attempt", () => runner.state.kind === "retrying");
      clock.advance(60_000);
      await until("the next", () => runner.state.kind === "connecting" || runner.state.kind === "retrying");
    }
    await until("a failed attempt", () => runner.state.kind === "retrying");
    broker.failConnects(null);
    page.wake();
    // Without a step of the clock: the wait was for up to a minute.
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(0);
    const session = await broker.nextSession();
    await session.welcome();
    await started;
  });

  it("does not trust its socket: it is dialled anew when the broker's next ping does not come", async () => {
    const page = createPlace("tab_one");
    const clock = createManualClock();
    const broker = createFakeBroker();
    const { runner, events } = makeRunner({ tools: [work(() => 1)], transport: { ...broker.transport, place: page.place }, clock }, broker);
    const started = runner.start();
    const session = await broker.nextSession();
    await session.welcome({ pingIntervalMs: 5_000 });
    await started;
    clock.jumpWall(8 * 3_600_000);
    page.wake();
    clock.advance(5_900);
    expect(events.some(({ event }) => event === "broker_silent")).toBe(false);
    clock.advance(200);
    await session.ended;
    expect((await session.channel.closed).code).toBe(4502);
    await until("the redial", () => runner.state.kind === "retrying");
    clock.advance(500);
    await (await broker.nextSession()).welcome();
  });

  it("keeps the session of a broker that pings", async () => {
    const page = createPlace("tab_one");
    const clock = createManualClock();
    const broker = createFakeBroker();
    const { runner, events } = makeRunner({ tools: [work(() => 1)], transport: { ...broker.transport, place: page.place }, clock }, broker);
    const started = runner.start();
    const session = await broker.nextSession();
    await session.welcome({ pingIntervalMs: 5_000 });
    await started;
    for (let hour = 0; hour < 10; hour++) {
      clock.jumpWall(3_600_000);
      page.wake();
      page.wake();
      clock.advance(4_000);
      await session.ping(hour + 1);
      clock.advance(4_000);
      await session.ping(hour + 1_000);
    }
    expect(events.some(({ event }) => event === "broker_silent")).toBe(false);
    expect(runner.state.kind).toBe("ready");
  });
});
