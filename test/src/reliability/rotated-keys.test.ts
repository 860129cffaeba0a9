import { createRunner, defineTool, type Runner } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket } from "@toolrunner/runner-sdk/node";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { type InProcessBroker, startInProcessBroker } from "./in-process-broker.test.kit.js";

let site: InProcessBroker;
const runners: Runner[] = [];
beforeAll(async () => {
  site = await startInProcessBroker({ bindings: ["shop", "warehouse"] });
});
afterAll(() => site.stop());
afterEach(() => Promise.all(runners.splice(0).map((runner) => runner.stop())));

describe.each(["websocket", "grpc"])("a runner key that is rotated, over %s", (transport) => {
  const connect = () =>
    transport === "grpc" ? connectGrpc(String(site.broker.addresses.grpc)) : connectWebSocket(site.broker.addresses.ws);

  async function serve(token: string) {
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const runner = createRunner({
      transport: connect(),
      binding: "shop",
      token,
      tools: [defineTool({ name: "charge", description: "Waits.", run: () => gate.then(() => "paid") })],
    });
    runners.push(runner);
    const states: string[] = [];
    runner.onState(({ kind }) => states.push(kind));
    await runner.start();
    states.length = 0;
    return { runner, states, open };
  }

  it("may be revoked once the session has the new one: session and running call survive, and the new one counts", async () => {
    const [old, next] = [await site.runnerKey("shop"), await site.runnerKey("shop")];
    const { runner, states, open } = await serve(old.key);
    const made = await site.http("POST", "/v1/calls", { toolset: "shop", tool: "charge", arguments: {} });
    expect(await runner.refreshCredential(next.key)).toBe("accepted");
    expect((await site.http("DELETE", `/v1/bindings/shop/keys/${old.id}`)).status).toBe(200);
    open();
    const settled = await site.http("GET", `/v1/calls/${String(made.body.id)}?wait_seconds=10`);
    expect(settled.body).toMatchObject({ state: "succeeded", attempt: 1, result: "paid" });
    expect(states).toEqual([]);
    expect((await site.http("DELETE", `/v1/bindings/shop/keys/${next.id}`)).status).toBe(200);
    await eventually("the refusal", () => runner.state.kind === "refused" && runner.state.code === "credential_invalid");
  });

  it("is refused in band when it is of another binding, unknown or revoked, and nothing else happens (I8)", async () => {
    const [own, foreign, revoked] = [await site.runnerKey("shop"), await site.runnerKey("warehouse"), await site.runnerKey("shop")];
    await site.http("DELETE", `/v1/bindings/shop/keys/${revoked.id}`);
    const { runner, states, open } = await serve(own.key);
    open();
    await expect(runner.refreshCredential(foreign.key)).rejects.toMatchObject({ code: "credential_not_permitted" });
    await expect(runner.refreshCredential(revoked.key)).rejects.toMatchObject({ code: "credential_invalid" });
    await expect(runner.refreshCredential(`${own.key}x`)).rejects.toMatchObject({ code: "credential_invalid" });
    const called = await site.http("POST", "/v1/calls", { toolset: "shop", tool: "charge", arguments: {}, wait_seconds: 10 });
    expect(called.body).toMatchObject({ state: "succeeded" });
    expect(states).toEqual([]);
  });
});
