import { afterEach, describe, expect, it } from "vitest";
import { deferred, serve, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker, createManualClock } from "./testing.js";

afterEach(stopRunners);

const EIGHT_HOURS_MS = 8 * 3_600_000;

describe("a laptop that sleeps for eight hours (R2, R8)", () => {
  it.each([
    ["whose monotonic clock stood still", (clock: ReturnType<typeof createManualClock>) => clock.jumpWall(EIGHT_HOURS_MS)],
    ["whose clocks went on", (clock: ReturnType<typeof createManualClock>) => clock.stall(EIGHT_HOURS_MS)],
  ])("%s: one new session, the result once, nothing started that came before the sleep", async (_, sleep) => {
    const clock = createManualClock();
    const broker = createFakeBroker();
    const gate = deferred<string>();
    let starts = 0;
    const tools = [
      work(() => {
        starts += 1;
        return gate.promise;
      }),
    ];
    const { session, runner, events } = await serve({ tools, clock }, { pingIntervalMs: 5_000 }, broker);
    const grant = session.grant({ tool: "work" });
    await session.next("started");
    sleep(clock);
    // In the socket's buffer since before the sleep.
    const stale = session.grant({ tool: "work" });
    clock.runDue();
    const declined = await session.next("decline");
    expect(declined.grantId).toBe(stale.grantId);
    gate.resolve("done in spite of it");
    await until("the receipt to be journaled", () => session.all("receipt").length > 0);
    // The socket is dead, and looks open: three intervals and a probe later it is given up.
    clock.advance(15_000);
    clock.advance(1_000);
    clock.advance(1_000);
    await session.channel.closed;
    await until("the pause", () => runner.state.kind === "retrying");
    clock.advance(501);
    const next = await broker.nextSession();
    const hello = await next.welcome();
    expect(hello.held.map(({ grantId }) => grantId)).toContain(grant.grantId);
    const receipt = await next.next("receipt");
    expect(receipt).toMatchObject({
      grantId: grant.grantId,
      outcome: { $case: "succeeded", value: { resultJson: '"done in spite of it"' } },
    });
    next.acknowledge(receipt);
    await next.settleFrames();
    expect(next.all("receipt")).toHaveLength(1);
    expect(starts).toBe(1);
    expect(events.filter(({ event }) => event === "session_welcomed")).toHaveLength(2);
    // And it stays: no storm of connections.
    clock.advance(3_000);
    expect(runner.state.kind).toBe("ready");
  });

  it("keeps a session that lived through it: the broker speaks up in time", async () => {
    const clock = createManualClock();
    const { session, runner } = await serve({ tools: [work(() => "done")], clock }, { pingIntervalMs: 5_000 });
    await session.ping(1);
    clock.jumpWall(EIGHT_HOURS_MS);
    clock.advance(10_000);
    await session.ping(2);
    for (let number = 3; number < 10; number += 1) {
      clock.advance(5_000);
      await session.ping(number);
    }
    expect(runner.state.kind).toBe("ready");
    clock.jumpWall(-2 * EIGHT_HOURS_MS);
    for (let number = 10; number < 16; number += 1) {
      clock.advance(5_000);
      await session.ping(number);
    }
    expect(runner.state.kind).toBe("ready");
    expect(await session.call({ tool: "work", pongNumber: 15 })).toMatchObject({ outcome: { $case: "succeeded" } });
  });
});
