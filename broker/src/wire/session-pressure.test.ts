import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import type { RunnerChannel } from "./operations.js";
import { CONGESTED_BYTES, FULL_BYTES } from "./session-pressure.js";
import { AGENT, connectRunner, createSite, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };

/** A channel whose unread bytes the test decides. */
function slowChannel() {
  let bytes = 0;
  let waiting: (() => void)[] = [];
  return {
    unread(now: number): void {
      bytes = now;
      if (now === 0) for (const resolve of waiting.splice(0)) resolve();
    },
    wrap(channel: RunnerChannel): RunnerChannel {
      void channel.closed.then(() => {
        for (const resolve of waiting.splice(0)) resolve();
        waiting = [];
      });
      return {
        transport: channel.transport,
        closed: channel.closed,
        get bufferedBytes() {
          return bytes;
        },
        drained: () => (bytes === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
        send: (frame) => channel.send(frame),
        close: (code, reason) => channel.close(code, reason),
        [Symbol.asyncIterator]: () => channel[Symbol.asyncIterator](),
      };
    },
  };
}

async function scene() {
  const { wire } = await startBroker(createSite(silentLog), { pingIntervalMs: 5_000 }).then((broker) => {
    stops.push(() => broker.stop());
    return broker;
  });
  const channel = slowChannel();
  const runner = await connectRunner(wire, { wrap: channel.wrap, slots: 8 });
  return { wire, channel, runner };
}

describe("a runner that reads slowly", () => {
  it("gets no grant while too much waits for it, and what waited is granted when it has read", async () => {
    const { wire, channel, runner } = await scene();
    channel.unread(CONGESTED_BYTES + 1);
    const first = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    const grant = await runner.next();
    const second = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    await until("the second to wait", () => wire.inspect().waiting === 1);
    expect(runner.grants).toHaveLength(1);
    channel.unread(0);
    runner.succeed(await runner.next());
    runner.succeed(grant);
    expect([(await first).state, (await second).state]).toEqual(["succeeded", "succeeded"]);
  });

  it("is left to another runner that reads", async () => {
    const { wire, channel, runner } = await scene();
    channel.unread(CONGESTED_BYTES + 1);
    void wire.calls.create(AGENT, CALL, {});
    await runner.next();
    const other = await connectRunner(wire, { runnerId: "runner_2", journalId: "journal_2" });
    for (let index = 0; index < 3; index += 1) {
      const call = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
      other.succeed(await other.next());
      expect((await call).state).toBe("succeeded");
    }
    expect(runner.grants).toHaveLength(1);
  });

  it("is sent nothing of what was on its way when even more waits: the grant is given back, once, and made again later", async () => {
    const { wire, channel, runner } = await scene();
    channel.unread(FULL_BYTES + 1);
    const call = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    await until("the grant to come back", () => wire.inspect().waiting === 1);
    expect(runner.grants).toEqual([]);
    expect(wire.inspect()).toMatchObject({ grants: 0, reserved: 0 });
    channel.unread(0);
    const grant = await runner.next();
    runner.succeed(grant);
    const settled = await call;
    expect(settled).toMatchObject({ state: "succeeded", attempt: 1 });
    const events = await wire.calls.listEvents(AGENT, settled.id, 0);
    expect(events.filter(({ event }) => event === "granted").length).toBeLessThanOrEqual(2);
  });

  it("is not read from while it does not read, so that a flood of frames causes no flood of answers", async () => {
    const { wire, channel, runner } = await scene();
    channel.unread(CONGESTED_BYTES + 1);
    for (let index = 0; index < 500; index += 1) runner.send({ $case: "pong", value: { number: 99, held: [] } });
    const call = await wire.calls.create(AGENT, CALL, {});
    await runner.next();
    expect(runner.frames.filter((kind) => kind === "protocolFault").length).toBe(0);
    channel.unread(0);
    await until("the answers", () => runner.frames.filter((kind) => kind === "protocolFault").length === 500);
    expect((await wire.calls.get(AGENT, call.id, {})).state).toBe("running");
  });

  it("leaves nothing behind when it goes meanwhile", async () => {
    const { wire, channel, runner } = await scene();
    channel.unread(CONGESTED_BYTES + 1);
    const call = wire.calls.create(AGENT, { ...CALL, tool: "safe", wait_seconds: 10 }, {});
    await runner.next();
    runner.close();
    await until("the end of the session", () => wire.inspect().sessions === 0);
    const other = await connectRunner(wire, { runnerId: "runner_2", journalId: "journal_2" });
    other.succeed(await other.next());
    expect((await call).state).toBe("succeeded");
  });
});
