import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { AGENT, connectRunner, createSite, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

const CALL = { toolset: "shop", tool: "safe", arguments: { x: 1 } };
const FINISHED = 4;

async function broker(figures = {}) {
  const started = await startBroker(createSite(silentLog), figures);
  stops.push(() => started.stop());
  return started.wire;
}

/** A repeatable call whose runner went away while it ran, and that waits for its next attempt. */
async function lostCall(wire: Awaited<ReturnType<typeof broker>>) {
  const runner = await connectRunner(wire);
  const { id } = await wire.calls.create(AGENT, CALL, {});
  const grant = await runner.next();
  runner.close();
  await until("the lease to end", async () => (await wire.calls.get(AGENT, id, {})).state === "queued");
  // Its back-off is over, so that whoever claims would get it.
  await until("the call to wait for a runner", () => wire.inspect().waiting === 1);
  return { id, grant };
}

describe("a runner that comes back with finished grants (R8, G5)", () => {
  it("brings its receipts before it is granted anything: the call settles by the result that is there", async () => {
    const wire = await broker({ leaseMs: 200 });
    const { id, grant } = await lostCall(wire);
    const { callId, grantId, fence } = grant;
    const back = await connectRunner(wire, { held: [{ callId, grantId, fence, phase: FINISHED }] });
    back.succeed(grant, '"of the first"');
    const settled = await wire.calls.get(AGENT, id, { wait_seconds: 5 });
    expect(settled).toMatchObject({ state: "succeeded", attempt: 1, result: "of the first" });
    expect(back.grants).toEqual([]);
    const next = wire.calls.create(AGENT, { ...CALL, wait_seconds: 5 }, {});
    back.succeed(await back.next());
    expect((await next).state).toBe("succeeded");
  });

  it("is granted calls after a while when it does not bring them", async () => {
    const wire = await broker({ leaseMs: 200 });
    const { id, grant } = await lostCall(wire);
    const { callId, grantId, fence } = grant;
    const back = await connectRunner(wire, { held: [{ callId, grantId, fence, phase: FINISHED }] });
    const again = await back.next();
    expect(again).toMatchObject({ callId: id, attempt: 2 });
    back.succeed(again);
    expect((await wire.calls.get(AGENT, id, { wait_seconds: 5 })).state).toBe("succeeded");
  });

  it("that announces what nobody knows of waits no longer than that, and leaves nothing behind when it goes", async () => {
    const wire = await broker();
    const held = Array.from({ length: 100 }, (_, index) => ({
      callId: `call_${index}`,
      grantId: `entry_${index}`,
      fence: 1,
      phase: FINISHED,
    }));
    const runner = await connectRunner(wire, { held });
    runner.close();
    await until("the end", () => wire.inspect().sessions === 0);
    expect(wire.inspect().work).toBe(0);
  });
});

describe("a runner that leaves pings unanswered", () => {
  it("is given nothing new after the second one, so that a handler that blocks its process uses up no attempts", async () => {
    const wire = await broker({ pingIntervalMs: 100, leaseMs: 60_000 });
    const runner = await connectRunner(wire, { silent: true });
    await until("two pings", () => runner.frames.filter((kind) => kind === "ping").length >= 2);
    const { id } = await wire.calls.create(AGENT, CALL, {});
    expect((await wire.calls.get(AGENT, id, {})).state).toBe("queued");
    const pings = runner.received.flatMap((frame) => (frame.$case === "ping" ? [frame.value.number] : []));
    runner.send({ $case: "pong", value: { number: Math.max(...pings), held: [] } });
    expect((await runner.next()).callId).toBe(id);
  });
});
