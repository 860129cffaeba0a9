import { type CloseCode, Refusal } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { ConnectError, RunnerRefusedError, type RunnerState } from "./index.js";
import { abortOf, deferred, makeRunner, serve, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker, createManualClock, type ManualClock } from "./testing.js";

afterEach(stopRunners);

const tools = [work(() => 1)];

describe("after a close, by its code (R3)", () => {
  it.each<CloseCode>([4408, 4500, 4501, 4502, 4503])("%i: the runner dials again", async (code) => {
    const broker = createFakeBroker();
    const { session, runner } = await serve({ tools }, {}, broker);
    const states: RunnerState["kind"][] = [];
    runner.onState(({ kind }) => states.push(kind));
    session.close(code, "come back");
    const second = await broker.nextSession();
    await second.welcome();
    await until("ready", () => runner.state.kind === "ready");
    expect(states).toEqual(["retrying", "connecting", "ready"]);
  });

  it.each<[CloseCode, string]>([
    [4409, "superseded"],
    [4403, "not_permitted"],
    [4400, "protocol_violation"],
    [4413, "frame_too_large"],
    [4426, "protocol_version_unsupported"],
  ])("%i: refused, and no redial", async (code, name) => {
    const { session, runner } = await serve({ tools });
    session.close(code, "for good");
    expect(await runner.closed).toEqual({ kind: "refused", code: name, message: "for good" });
    expect(runner.state.kind).toBe("refused");
  });

  it("a broken connection: dials again", async () => {
    const broker = createFakeBroker();
    const { session } = await serve({ tools }, {}, broker);
    session.sever();
    await (await broker.nextSession()).welcome();
  });

  it("1000 from the broker: stopped", async () => {
    const { session, runner } = await serve({ tools });
    session.close(1000);
    expect(await runner.closed).toEqual({ kind: "stopped" });
  });

  it("4409 while a handler runs: it is told lease_lost, its result is journaled, and closed waits for that", async () => {
    const code = deferred<string>();
    const { session, runner } = await serve({
      stopGraceMs: 5_000,
      tools: [
        work(async (_args, ctx) => {
          await abortOf(ctx.signal).catch((reason: { code: string }) => code.resolve(reason.code));
          return "kept";
        }),
      ],
    });
    session.grant({ tool: "work" });
    await session.next("started");
    session.close(4409);
    expect((await runner.closed).kind).toBe("refused");
    expect(await code.promise).toBe("lease_lost");
  });
});

describe("credentials (4401)", () => {
  it("a fixed one that is refused ends the runner: start rejects with the code", async () => {
    const { runner, broker } = makeRunner({ tools, token: "old" });
    const started = runner.start();
    const session = await broker.nextSession();
    await session.hello();
    session.send({ $case: "refusal", value: Refusal.create({ code: "credential_invalid", message: "the key was revoked" }) });
    session.close(4401);
    await expect(started).rejects.toBeInstanceOf(RunnerRefusedError);
    await expect(started).rejects.toMatchObject({ code: "credential_invalid" });
    expect(runner.state).toEqual({ kind: "refused", code: "credential_invalid", message: "the key was revoked" });
  });

  it("a renewed one is tried: the function is asked again", async () => {
    const keys = ["old", "new"];
    let key = 0;
    const broker = createFakeBroker();
    const { runner } = makeRunner({ tools, token: () => keys[key] ?? "" }, broker);
    const started = runner.start();
    const first = await broker.nextSession();
    expect(first.credential).toBe("old");
    key = 1;
    first.close(4401, "expired");
    const second = await broker.nextSession();
    expect((await second.welcome()).credential).toBe("new");
    await started;
  });

  it("the same one from a function is not tried for ever", async () => {
    let asked = 0;
    const { runner, broker } = makeRunner({
      tools,
      token: () => {
        asked++;
        return "same";
      },
    });
    const started = runner.start();
    (await broker.nextSession()).close(4401);
    await expect(started).rejects.toMatchObject({ code: "credential_invalid" });
    expect(asked).toBe(2);
  });

  it("a function that fails is asked again later", async () => {
    let asked = 0;
    const { runner, broker } = makeRunner({
      tools,
      token: () => {
        asked++;
        if (asked === 1) throw new Error("vault away");
        return "key";
      },
    });
    const started = runner.start();
    await (await broker.nextSession()).welcome();
    await started;
  });
});

describe("refusals", () => {
  it.each(["protocol_version_unsupported", "hello_invalid", "binding_not_permitted", "subject_token_required", "hello_expected"])(
    "%s is final, even when the connection then just breaks",
    async (code) => {
      const { runner, broker } = makeRunner({ tools });
      const started = runner.start();
      const session = await broker.nextSession();
      await session.hello();
      session.send({ $case: "refusal", value: Refusal.create({ code, message: "no" }) });
      // A ping before the welcome is refused: when that is heard, the refusal was read.
      session.send({ $case: "ping", value: { number: 1, acknowledged: 0 } });
      await session.next("protocolFault");
      session.sever();
      await expect(started).rejects.toMatchObject({ code });
    },
  );

  it("a welcome in a protocol version that the runner does not speak is final on its side", async () => {
    const { runner, broker } = makeRunner({ tools });
    const started = runner.start();
    const session = await broker.nextSession();
    await session.welcome({ protocolVersion: 9 });
    await expect(started).rejects.toMatchObject({ code: "protocol_version_unsupported" });
    expect((await session.channel.closed).code).toBe(4426);
  });

  it("ledger_away is retried, not before its retry_after", async () => {
    const clock = createManualClock();
    const { runner, broker } = makeRunner({ tools, clock });
    void runner.start().catch(() => undefined);
    const session = await broker.nextSession();
    await session.hello();
    session.send({ $case: "refusal", value: Refusal.create({ code: "ledger_away", message: "wait", retryAfterMs: 7_000 }) });
    session.close(4503);
    const state = await until("retrying", () => (runner.state.kind === "retrying" ? runner.state : null));
    expect(state.nextTryAt.getTime() - clock.now()).toBe(7_000);
    expect(state.reason).toBe("ledger_away: wait");
  });
});

describe("redials (R3)", () => {
  it("wait longer after every failure, up to a minute, jittered by half", async () => {
    for (const [random, factor] of [
      [0, 1],
      [0.999_999, 0.5],
    ] as const) {
      const clock = createManualClock();
      const broker = createFakeBroker();
      broker.failConnects(new Error("refused"));
      const { runner } = makeRunner({ tools, clock, random: () => random }, broker);
      void runner.start().catch(() => undefined);
      const delays: number[] = [];
      for (let attempt = 0; attempt < 10; attempt++) delays.push(await nextDelay(clock, runner));
      const full = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000];
      for (const [index, delay] of delays.entries()) expect(delay / ((full[index] ?? 0) * factor)).toBeCloseTo(1, 2);
      await runner.stop();
    }
  });

  it("begin small again only after a session that was up for 5 s", async () => {
    const clock = createManualClock();
    const broker = createFakeBroker();
    const { runner } = makeRunner({ tools, clock }, broker);
    void runner.start().catch(() => undefined);
    const upFor = async (ms: number): Promise<number> => {
      const session = await broker.nextSession();
      await session.welcome();
      await until("ready", () => runner.state.kind === "ready");
      clock.advance(ms);
      session.close(4500);
      return nextDelay(clock, runner);
    };
    expect(await upFor(100)).toBe(500);
    expect(await upFor(100)).toBe(1_000);
    expect(await upFor(4_999)).toBe(2_000);
    expect(await upFor(5_000)).toBe(500);
  });

  it("obey a transport that knows the rule: 403 is final, 429 waits", async () => {
    const broker = createFakeBroker();
    broker.failConnects(new ConnectError("answered 403", 4403));
    await expect(makeRunner({ tools }, broker).runner.start()).rejects.toMatchObject({ code: "not_permitted" });
    const clock = createManualClock();
    const other = createFakeBroker();
    other.failConnects(new ConnectError("answered 429", 4429, 30_000));
    const { runner } = makeRunner({ tools, clock }, other);
    void runner.start().catch(() => undefined);
    expect(await nextDelay(clock, runner)).toBe(30_000);
  });

  it("give up a connection that does not come up, and close it when it comes late", async () => {
    const clock = createManualClock();
    const broker = createFakeBroker();
    const late = deferred();
    let attempts = 0;
    const transport = {
      ...broker.transport,
      async connect(options: { credential: string; signal: AbortSignal }) {
        attempts++;
        if (attempts === 1) await late.promise;
        return broker.transport.connect(options);
      },
    };
    const { runner } = makeRunner({ tools, clock, transport }, broker);
    void runner.start().catch(() => undefined);
    await until("the first attempt", () => attempts === 1);
    clock.advance(15_000);
    await nextDelay(clock, runner);
    const served = await broker.nextSession();
    await served.welcome();
    late.resolve();
    const unwanted = await broker.nextSession();
    expect((await unwanted.channel.closed).code).toBe(1000);
    expect(unwanted.frames).toEqual([]);
  });

  it("give up a broker that never welcomes", async () => {
    const clock = createManualClock();
    const broker = createFakeBroker();
    const { runner } = makeRunner({ tools, clock }, broker);
    void runner.start().catch(() => undefined);
    const session = await broker.nextSession();
    await session.hello();
    clock.advance(10_000);
    await session.channel.closed;
    expect(await nextDelay(clock, runner)).toBe(500);
  });

  it("leave a broker that fell silent, but not one whose pings wait behind a loop that stood still", async () => {
    const clock = createManualClock();
    const broker = createFakeBroker();
    const { session, runner } = await serve({ tools, clock }, { pingIntervalMs: 5_000 }, broker);
    clock.advance(14_000);
    await session.ping(1);
    clock.stall(20_000);
    clock.runDue();
    await session.ping(2);
    clock.advance(1_000);
    await session.ping(3);
    expect(runner.state.kind).toBe("ready");
    clock.advance(15_000);
    clock.advance(1_000);
    await session.channel.closed;
    expect(await nextDelay(clock, runner)).toBe(500);
  });
});

/** The delay of the pause that the runner is in or comes to next; moves the clock to its end. */
async function nextDelay(clock: ManualClock, runner: { readonly state: RunnerState }): Promise<number> {
  const state = await until("retrying", () => (runner.state.kind === "retrying" ? runner.state : null));
  const delay = state.nextTryAt.getTime() - clock.now();
  // The time that is shown is in whole milliseconds.
  clock.advance(delay + 1);
  await until("dialled again", () => runner.state !== state);
  return delay;
}
