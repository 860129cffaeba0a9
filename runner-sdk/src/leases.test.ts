import { DeclineReason, GrantPhase } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { type AbortReason, allow, type ToolContext } from "./index.js";
import { abortOf, deferred, serve, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker, createManualClock } from "./testing.js";

afterEach(stopRunners);

/** A handler that runs until its signal aborts, and the reason it aborted with. */
function waiting() {
  const started = deferred<ToolContext>();
  const aborted = deferred<string>();
  const tool = work(
    async (_args, ctx) => {
      started.resolve(ctx);
      await abortOf(ctx.signal).catch((reason: AbortReason) => {
        aborted.resolve(reason.code);
        throw reason;
      });
    },
    { idempotent: true, cancellable: true },
  );
  return { tool, started: started.promise, aborted: aborted.promise, ctx: () => started.promise };
}

describe("the lease as the runner counts it (G3, R8)", () => {
  it("runs from when the hello was sent for a grant that knows no pong, and ends what runs with lease_lost", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const { session } = await serve({ clock, tools: [handler.tool] });
    clock.advance(10_000);
    session.grant({ tool: "work", pongNumber: 0, leaseMs: 15_000 });
    const ctx = await handler.started;
    clock.advance(4_999);
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1);
    expect(await handler.aborted).toBe("lease_lost");
    const { outcome } = await session.next("receipt");
    expect(outcome).toMatchObject({ $case: "failed", value: { code: "handler_error", retryable: true } });
  });

  it("keeps and sends the result of a handler that goes on after its lease", async () => {
    const clock = createManualClock();
    const { session } = await serve({ clock, tools: [work((_args, ctx) => abortOf(ctx.signal).catch(() => "result"))] });
    session.grant({ tool: "work" });
    await session.next("started");
    clock.advance(15_000);
    expect((await session.next("receipt")).outcome).toEqual({ $case: "succeeded", value: { resultJson: '"result"' } });
  });

  it("runs from the pong that the grant names, not from when the grant is read", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const { session } = await serve({ clock, tools: [handler.tool] });
    clock.advance(6_000);
    await session.ping(1);
    clock.advance(6_000);
    session.grant({ tool: "work", pongNumber: 1, leaseMs: 10_000 });
    const ctx = await handler.started;
    clock.advance(3_999);
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1);
    expect(await handler.aborted).toBe("lease_lost");
  });

  it.each<[string, (clock: ReturnType<typeof createManualClock>) => void]>([
    ["the machine's time went on", (clock) => clock.stall(15_000)],
    ["only the wall clock went on, as after a sleep", (clock) => clock.jumpWall(15_000)],
  ])("refuses to start a grant that sat in a buffer until %s", async (_name, pass) => {
    const clock = createManualClock();
    let ran = false;
    const { session } = await serve({
      clock,
      tools: [
        work(() => {
          ran = true;
        }),
      ],
    });
    pass(clock);
    session.grant({ tool: "work", pongNumber: 0, leaseMs: 15_000 });
    expect((await session.next("decline")).reason).toBe(DeclineReason.UNAVAILABLE);
    expect(ran).toBe(false);
  });

  it("does not get longer when the wall clock is set back", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const { session } = await serve({ clock, tools: [handler.tool] });
    session.grant({ tool: "work" });
    await handler.started;
    clock.jumpWall(-3_600_000);
    clock.advance(15_000);
    expect(await handler.aborted).toBe("lease_lost");
  });

  it("declines a grant that names an answer which this session did not give", async () => {
    const { session } = await serve({ clock: createManualClock(), tools: [work(() => 1)] });
    session.grant({ tool: "work", pongNumber: 9 });
    expect((await session.next("decline")).message).toContain("answer 9");
  });

  it("is renewed by a ping that acknowledges an answer listing the grant, from when that answer was sent", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const { session } = await serve({ clock, tools: [handler.tool] });
    session.grant({ tool: "work" });
    const ctx = await handler.started;
    clock.advance(5_000);
    await session.ping(1, 0);
    clock.advance(5_000);
    await session.ping(2, 1);
    clock.advance(9_999);
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1);
    expect(await handler.aborted).toBe("lease_lost");
  });

  it("is not renewed by pings that acknowledge nothing newer, nor by an answer from before the grant", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const { session } = await serve({ clock, tools: [handler.tool] });
    clock.advance(2_000);
    await session.ping(1, 0);
    session.grant({ tool: "work", pongNumber: 0 });
    const ctx = await handler.started;
    clock.advance(5_000);
    await session.ping(2, 1);
    await session.ping(3, 1);
    clock.advance(7_999);
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1);
    expect(await handler.aborted).toBe("lease_lost");
  });

  it("runs on while the runner is disconnected, and a new hello alone does not renew it", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const broker = createFakeBroker();
    const { session, runner } = await serve({ clock, tools: [handler.tool] }, {}, broker);
    const grant = session.grant({ tool: "work" });
    const ctx = await handler.started;
    clock.advance(8_000);
    session.sever();
    await session.channel.closed;
    const second = await redialled(clock, broker);
    await second.welcome();
    await until("ready", () => runner.state.kind === "ready");
    clock.advance(14_999 - clock.monotonic());
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1);
    expect(await handler.aborted).toBe("lease_lost");
    expect((await second.next("receipt")).grantId).toBe(grant.grantId);
  });

  it("is renewed from a hello that listed the grant once a ping of that session came", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const broker = createFakeBroker();
    const { session } = await serve({ clock, tools: [handler.tool] }, {}, broker);
    const grant = session.grant({ tool: "work" });
    const ctx = await handler.started;
    clock.advance(10_000);
    session.sever();
    const second = await redialled(clock, broker);
    const helloAt = clock.monotonic();
    const hello = await second.welcome();
    expect(hello.held).toMatchObject([{ grantId: grant.grantId, phase: GrantPhase.RUNNING }]);
    clock.advance(2_000);
    await second.ping(1, 0);
    clock.advance(helloAt + 14_999 - clock.monotonic());
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1);
    expect(await handler.aborted).toBe("lease_lost");
  });

  it("stops an authorize that outlasts it: declined, never run", async () => {
    const clock = createManualClock();
    let ran = false;
    const { session } = await serve({
      clock,
      tools: [
        work(() => {
          ran = true;
        }),
      ],
      authorize: () => new Promise(() => allow()),
    });
    session.grant({ tool: "work" });
    await session.settleFrames();
    clock.advance(15_000);
    expect((await session.next("decline")).reason).toBe(DeclineReason.UNAVAILABLE);
    expect(ran).toBe(false);
  });

  it("reads the sockets once more before it aborts after the event loop stood still", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const { session } = await serve({ clock, tools: [handler.tool] });
    session.grant({ tool: "work" });
    const ctx = await handler.started;
    clock.advance(5_000);
    await session.ping(1, 0);
    // The loop stands still past the first lease end; the ping that renews it waits in the socket.
    clock.stall(11_000);
    clock.runDue();
    expect(ctx.signal.aborted).toBe(false);
    await session.ping(2, 1);
    clock.advance(3_000);
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1_000);
    expect(await handler.aborted).toBe("lease_lost");
  });
});

describe("the deadline", () => {
  it("aborts with reason deadline when the call's time is up, by what was left when the grant was read", async () => {
    const clock = createManualClock();
    const handler = waiting();
    const { session } = await serve({ clock, tools: [handler.tool] });
    session.grant({ tool: "work", remainingMs: 7_000, deadlineUnixMs: 1 });
    const ctx = await handler.started;
    clock.advance(6_999);
    expect(ctx.signal.aborted).toBe(false);
    clock.advance(1);
    expect(await handler.aborted).toBe("deadline");
    expect((await session.next("receipt")).outcome).toMatchObject({ $case: "failed", value: { retryable: false } });
  });

  it("keeps a grant without time left from starting", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    session.grant({ tool: "work", remainingMs: 0 });
    expect((await session.next("decline")).message).toContain("time was up");
  });
});

/** Moves the clock until the runner has dialled again. */
async function redialled(clock: ReturnType<typeof createManualClock>, broker: ReturnType<typeof createFakeBroker>) {
  const next = broker.nextSession();
  let found = false;
  void next.then(() => {
    found = true;
  });
  await until("redialled", () => {
    if (!found) clock.advance(100);
    return found;
  });
  return next;
}
