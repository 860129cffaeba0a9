import { afterEach, describe, expect, it } from "vitest";
import { createRunner, defineTool, type Runner } from "./index.js";
import { createFakeBroker } from "./testing.js";

const running: Runner[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((runner) => runner.stop()));
});

const echo = defineTool({ name: "echo", description: "Echo.", input: { type: "object" }, run: (args) => args });

describe("a runner and a broker", () => {
  it("says hello, runs a grant and has its receipt acknowledged", async () => {
    const broker = createFakeBroker();
    const runner = createRunner({ transport: broker.transport, binding: "shop", token: "key", tools: [echo] });
    running.push(runner);
    const started = runner.start();
    const session = await broker.nextSession();
    const hello = await session.welcome();
    await started;
    expect(hello).toMatchObject({ protocolVersions: [1], binding: "shop", credential: "key", slots: 16, held: [] });
    expect(runner.state).toEqual({ kind: "ready", fault: null });
    const grant = session.grant({ tool: "echo", argumentsJson: '{"a":1}' });
    const receipt = await session.next("receipt");
    expect(receipt).toMatchObject({ callId: grant.callId, grantId: grant.grantId, fence: grant.fence, attempt: 1 });
    expect(receipt.outcome).toEqual({ $case: "succeeded", value: { resultJson: '{"a":1}' } });
    session.acknowledge(receipt);
    const drained = runner.drain();
    await session.next("drain");
    await drained;
    expect((await session.channel.closed).code).toBe(1000);
    expect(runner.state).toEqual({ kind: "stopped" });
  });
});
