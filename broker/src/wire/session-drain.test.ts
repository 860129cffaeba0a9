import { createMemoryChannelPair } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { manualClock } from "./manual-clock.test.kit.js";
import { closeInTurn, type DrainedSession, drainSessions } from "./session-drain.js";
import { SessionGrants } from "./session-grants.js";
import { createTimerWheel } from "./timer-wheel.js";

/** What the drain looks at, and what the runners were told when. */
function scene(count: number) {
  const clock = manualClock();
  const timers = createTimerWheel(clock, (error) => {
    throw error;
  });
  const told: { readonly atMs: number; readonly deadlineMs: number }[] = [];
  const startedAt = clock.monotonic();
  const sessions = Array.from({ length: count }, () => {
    const { broker } = createMemoryChannelPair();
    const session: DrainedSession & { closed: boolean } = {
      draining: false,
      closed: false,
      grants: new SessionGrants(() => undefined),
      channel: {
        ...broker,
        bufferedBytes: 0,
        send({ frame }) {
          if (frame?.$case === "drain") told.push({ atMs: clock.monotonic() - startedAt, deadlineMs: frame.value.deadlineMs });
        },
      },
    };
    return session;
  });
  let over = false;
  const drain = (drainMs: number): void => {
    void drainSessions({ timers, clock, sessions: () => sessions.filter(({ closed }) => !closed) }, drainMs).then(() => {
      over = true;
    });
  };
  /** Goes on in steps, so that what awaits a timer has its turn. */
  const pass = async (ms: number): Promise<void> => {
    for (let step = 0; step < ms; step += 10) {
      clock.advance(10);
      await Promise.resolve();
      await Promise.resolve();
    }
  };
  return { sessions, timers, told, drain, pass, isOver: () => over };
}

describe("a broker that drains (interface, Runner session 5)", () => {
  it("tells its runners one after the other, and those that wait for it take calls meanwhile", async () => {
    const { sessions, told, drain, pass, isOver } = scene(2_000);
    drain(30_000);
    await pass(2_000);
    expect(sessions.filter(({ draining }) => draining).length).toBeGreaterThan(700);
    expect(sessions.filter(({ draining }) => !draining).length).toBeGreaterThan(700);
    await pass(4_000);
    expect(told).toHaveLength(2_000);
    const inSecond = [0, 1, 2, 3].map((second) => told.filter(({ atMs }) => Math.floor(atMs / 1_000) === second).length);
    for (const count of inSecond) expect(count).toBeGreaterThan(300);
    await pass(100);
    expect(isOver()).toBe(true);
  });

  it("tells all of them within a quarter of its time, with the time that is left", async () => {
    const { told, drain, pass } = scene(2_000);
    drain(1_000);
    await pass(400);
    expect(told).toHaveLength(2_000);
    expect(told.at(-1)?.atMs).toBeLessThanOrEqual(300);
    expect(told[0]?.deadlineMs).toBe(1_000);
    expect(told.at(-1)?.deadlineMs).toBeLessThanOrEqual(850);
  });

  it("waits for grants, and no longer than its time", async () => {
    const { sessions, drain, pass, isOver } = scene(1);
    const [session] = sessions;
    session?.grants.add({ callId: "call", grantId: "grant", fence: 1, driver: undefined, listedFromPing: 1 });
    drain(500);
    await pass(400);
    expect(isOver()).toBe(false);
    await pass(200);
    expect(isOver()).toBe(true);
  });

  it("without time tells all at once and waits for nothing", async () => {
    const { sessions, told, drain, pass, isOver } = scene(300);
    sessions[0]?.grants.add({ callId: "call", grantId: "grant", fence: 1, driver: undefined, listedFromPing: 1 });
    drain(0);
    await pass(10);
    expect(told).toHaveLength(300);
    expect(isOver()).toBe(true);
  });

  it("says nothing to a runner that left meanwhile", async () => {
    const { sessions, told, drain, pass } = scene(1_000);
    drain(30_000);
    for (const session of sessions.slice(500)) session.closed = true;
    await pass(3_000);
    expect(told).toHaveLength(500);
  });
});

describe("a broker whose ledger is away", () => {
  it("closes its sessions one after the other, and keeps those that are left when it is back", async () => {
    const { sessions, timers, pass } = scene(2_000);
    const closed: DrainedSession[] = [];
    let away = true;
    const closing = closeInTurn(
      { timers, sessions: () => sessions },
      (session) => closed.push(session),
      () => !away,
    );
    await pass(1_000);
    expect(closed.length).toBeGreaterThan(300);
    expect(closed.length).toBeLessThan(700);
    away = false;
    const before = closed.length;
    await pass(3_000);
    await closing;
    expect(closed).toHaveLength(before);
  });
});
