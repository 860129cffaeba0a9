import { afterEach, describe, expect, it } from "vitest";
import { RunnerStoppedError } from "./index.js";
import { abortOf, deferred, makeRunner, serve, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker } from "./testing.js";

afterEach(stopRunners);

const tools = [work(() => 1)];

describe("drain (R4)", () => {
  it("takes nothing new, lets what runs finish, waits for the acknowledgement, then closes with 1000", async () => {
    const end = deferred();
    const { session, runner } = await serve({ tools: [work(() => end.promise)] });
    session.grant({ tool: "work" });
    await session.next("started");
    const drained = runner.drain({ deadlineMs: 30_000 });
    expect(await session.next("drain")).toMatchObject({ deadlineMs: 30_000 });
    expect((await session.next("claim")).slots).toBe(0);
    expect(runner.state).toEqual({ kind: "draining" });
    session.grant({ tool: "work" });
    expect((await session.next("decline")).message).toContain("drains");
    end.resolve();
    const receipt = await session.next("receipt");
    await session.settleFrames();
    expect(runner.state.kind).toBe("draining");
    session.acknowledge(receipt);
    await drained;
    expect(await session.channel.closed).toMatchObject({ code: 1000, by: "remote" });
  });

  it("goes on over a lost connection: the new hello claims nothing, and the receipt is delivered there", async () => {
    const end = deferred();
    const broker = createFakeBroker();
    const { session, runner } = await serve({ tools: [work(() => end.promise)] }, {}, broker);
    session.grant({ tool: "work" });
    await session.next("started");
    const drained = runner.drain();
    session.sever();
    const second = await broker.nextSession();
    expect((await second.welcome()).slots).toBe(0);
    await second.next("drain");
    expect(runner.state.kind).toBe("draining");
    end.resolve();
    second.acknowledge(await second.next("receipt"));
    await drained;
  });

  it("ends at once when nothing is held, connected or not", async () => {
    const { runner } = await serve({ tools });
    await runner.drain();
    const broker = createFakeBroker();
    broker.failConnects(new Error("away"));
    const other = makeRunner({ tools }, broker).runner;
    const started = other.start();
    await until("retrying", () => other.state.kind === "retrying");
    await other.drain();
    await expect(started).rejects.toBeInstanceOf(RunnerStoppedError);
  });

  it("is cut short by stop, which aborts with reason draining", async () => {
    const reason = deferred<string>();
    const { session, runner } = await serve({
      tools: [
        work(async (_args, ctx) => {
          await abortOf(ctx.signal).catch((thrown: { code: string }) => reason.resolve(thrown.code));
          return "last";
        }),
      ],
    });
    session.grant({ tool: "work" });
    await session.next("started");
    const drained = runner.drain();
    const stopped = runner.stop();
    expect(await reason.promise).toBe("draining");
    expect((await session.next("receipt")).outcome).toEqual({ $case: "succeeded", value: { resultJson: '"last"' } });
    await Promise.all([drained, stopped]);
    expect(runner.state).toEqual({ kind: "stopped" });
  });

  it("asked for by the broker: the runner leaves when nothing runs any more, and comes back", async () => {
    const end = deferred();
    const broker = createFakeBroker();
    const { session } = await serve({ tools: [work(() => end.promise)] }, {}, broker);
    session.grant({ tool: "work" });
    await session.next("started");
    session.send({ $case: "drain", value: { reason: "upgrade", deadlineMs: 1_000 } });
    await session.settleFrames();
    end.resolve();
    session.acknowledge(await session.next("receipt"));
    expect((await session.channel.closed).code).toBe(4501);
    await (await broker.nextSession()).welcome();
  });
});

describe("stop and start", () => {
  it("stop is idempotent, works before start, while connecting and in a pause, and start then rejects", async () => {
    const { runner } = makeRunner({ tools });
    await Promise.all([runner.stop(), runner.stop()]);
    await expect(runner.start()).rejects.toBeInstanceOf(RunnerStoppedError);
    expect(await runner.closed).toEqual({ kind: "stopped" });

    const connecting = makeRunner({ tools });
    const first = connecting.runner.start();
    await (await connecting.broker.nextSession()).hello();
    await connecting.runner.stop();
    await expect(first).rejects.toBeInstanceOf(RunnerStoppedError);

    const broker = createFakeBroker();
    broker.failConnects(new Error("away"));
    const pausing = makeRunner({ tools }, broker);
    const second = pausing.runner.start();
    await until("retrying", () => pausing.runner.state.kind === "retrying");
    await pausing.runner.stop();
    await expect(second).rejects.toBeInstanceOf(RunnerStoppedError);

    const atOnce = makeRunner({ tools });
    const third = atOnce.runner.start();
    await atOnce.runner.stop();
    await expect(third).rejects.toBeInstanceOf(RunnerStoppedError);
  });

  it("starting twice is starting once", async () => {
    const { runner, broker } = makeRunner({ tools });
    const both = [runner.start(), runner.start()];
    await (await broker.nextSession()).welcome();
    await Promise.all(both);
  });

  it("stop does not wait longer than its grace for a handler that ignores its signal", async () => {
    const { session, runner, events } = await serve({ stopGraceMs: 30, tools: [work(() => new Promise(() => {}))] });
    session.grant({ tool: "work" });
    await session.next("started");
    const before = performance.now();
    await runner.stop();
    expect(performance.now() - before).toBeLessThan(2_000);
    expect(events.some(({ event, fields }) => event === "handlers_abandoned" && fields["count"] === 1)).toBe(true);
  });

  it("a listener or a log that throws costs nothing, and a listener can be taken off", async () => {
    const broker = createFakeBroker();
    const { runner } = makeRunner(
      {
        tools,
        log: () => {
          throw new Error("disk full");
        },
      },
      broker,
    );
    const seen: string[] = [];
    runner.onState(() => {
      throw new Error("mine");
    });
    const off = runner.onState(({ kind }) => seen.push(kind));
    const started = runner.start();
    await (await broker.nextSession()).welcome();
    await started;
    off();
    await runner.stop();
    expect(seen).toEqual(["connecting", "ready"]);
  });

  it("a runner id is stable for a journal, and the one that was given is used", async () => {
    const made = await serve({ tools });
    expect(made.runner.runnerId).toMatch(/^runner_[a-z2-7]{26}$/);
    expect((await made.session.hello()).runnerId).toBe(made.runner.runnerId);
    const given = await serve({ tools, runnerId: "desk-1" });
    expect((await given.session.hello()).runnerId).toBe("desk-1");
  });

  it("two runners on one memory journal: the second is told, and the first goes on", async () => {
    const { memoryJournal } = await import("./index.js");
    const journal = memoryJournal();
    const first = await serve({ tools, journal });
    const second = makeRunner({ tools, journal });
    await expect(second.runner.start()).rejects.toMatchObject({ code: "journal_in_use" });
    expect(await second.runner.closed).toEqual({ kind: "stopped" });
    expect(first.runner.state.kind).toBe("ready");
  });
});
