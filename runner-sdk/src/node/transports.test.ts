import { createServer } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { RunnerConfigError, type Transport } from "../index.js";
import { connectGrpc, connectWebSocket } from "../node.js";
import { makeRunner, stopRunners, until, work } from "../runner.test.kit.js";
import { grpcBroker, type SocketBroker, webSocketBroker } from "./socket-broker.test.kit.js";

const brokers: SocketBroker[] = [];
afterEach(async () => {
  await stopRunners();
  await Promise.all(brokers.splice(0).map((broker) => broker.stop()));
});

async function started(socket: SocketBroker): Promise<SocketBroker> {
  brokers.push(socket);
  return socket;
}

const tools = [work((args) => args)];

describe.each<[string, () => Promise<SocketBroker>, (url: string) => Transport]>([
  ["gRPC", grpcBroker, (url) => connectGrpc(url)],
  ["WebSocket, binary", () => webSocketBroker(), (url) => connectWebSocket(url)],
  ["WebSocket, JSON", () => webSocketBroker(), (url) => connectWebSocket(url, { encoding: "json" })],
])("over %s (R1)", (name, listen, connect) => {
  it("a call is run and answered; the credential travels in authorization, not in the hello", async () => {
    const { broker, url } = await started(await listen());
    const { runner } = makeRunner({ tools, transport: connect(url), token: "key_1" }, broker);
    const starting = runner.start();
    const session = await broker.nextSession();
    expect(session.credential).toBe("key_1");
    expect((await session.welcome()).credential).toBe("");
    await starting;
    if (name.includes("JSON")) expect(session.channel.transport).toBe("websocket_json");
    session.grant({ tool: "work", argumentsJson: '{"text":"ü \\u0000 \\ud83d\\ude00"}' });
    const receipt = await session.next("receipt");
    expect(receipt.outcome).toEqual({ $case: "succeeded", value: { resultJson: '{"text":"ü \\u0000 😀"}' } });
    session.acknowledge(receipt);
    await runner.drain();
    expect((await session.channel.closed).code).toBe(1000);
  });

  it("a close code arrives: 4409 ends the runner, 4500 makes it dial again", async () => {
    const { broker, url } = await started(await listen());
    const { runner } = makeRunner({ tools, transport: connect(url) }, broker);
    const starting = runner.start();
    const session = await broker.nextSession();
    await session.welcome();
    await starting;
    session.close(4500, "try again");
    const second = await broker.nextSession();
    await second.welcome();
    await until("ready", () => runner.state.kind === "ready");
    second.close(4409, "newer");
    expect(await runner.closed).toEqual({ kind: "refused", code: "superseded", message: "newer" });
  });

  it("a result at the limit arrives whole", async () => {
    const { broker, url } = await started(await listen());
    const text = "x".repeat(900_000);
    const { runner } = makeRunner({ tools: [work(() => text)], transport: connect(url) }, broker);
    void runner.start();
    const session = await broker.nextSession();
    await session.welcome();
    session.grant({ tool: "work" });
    const { outcome } = await session.next("receipt");
    expect(outcome).toEqual({ $case: "succeeded", value: { resultJson: JSON.stringify(text) } });
  });

  it("a broker that is not there is tried again, and stop ends that at once", async () => {
    const probe = createServer();
    await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
    const address = probe.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    await new Promise((resolve) => probe.close(resolve));
    const { runner } = makeRunner({ tools, transport: connect(name === "gRPC" ? `grpc://127.0.0.1:${port}` : `ws://127.0.0.1:${port}`) });
    void runner.start().catch(() => undefined);
    const state = await until("retrying", () => (runner.state.kind === "retrying" ? runner.state : null));
    expect(state.reason).toContain("cannot reach");
    const before = performance.now();
    await runner.stop();
    expect(performance.now() - before).toBeLessThan(1_000);
  });

  it("stop while the connection is being made ends at once", async () => {
    // Takes connections and says nothing.
    const silent = createServer();
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    const address = silent.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const { runner } = makeRunner({ tools, transport: connect(name === "gRPC" ? `grpc://127.0.0.1:${port}` : `ws://127.0.0.1:${port}`) });
    const starting = runner.start().catch((error: unknown) => error);
    await until("connecting", () => runner.state.kind === "connecting");
    await runner.stop();
    expect(await starting).toMatchObject({ code: "runner_stopped" });
    await new Promise((resolve) => silent.close(resolve));
  });
});

describe("a WebSocket upgrade that is refused", () => {
  it.each([
    [401, "credential_invalid"],
    [403, "not_permitted"],
  ])("with %i ends the runner as %s", async (status, code) => {
    const { broker, url } = await started(await webSocketBroker({ status }));
    const { runner } = makeRunner({ tools, transport: connectWebSocket(url), token: "wrong" }, broker);
    await expect(runner.start()).rejects.toMatchObject({ code });
  });

  it.each([
    [429, 7],
    [503, 0],
  ])("with %i is tried again, after %i s at the earliest", async (status, retryAfterSeconds) => {
    const { broker, url } = await started(await webSocketBroker({ status, retryAfterSeconds }));
    const { runner } = makeRunner({ tools, transport: connectWebSocket(url) }, broker);
    void runner.start().catch(() => undefined);
    const state = await until("retrying", () => (runner.state.kind === "retrying" ? runner.state : null));
    expect(state.reason).toContain(String(status));
    expect(state.nextTryAt.getTime() - Date.now()).toBeGreaterThan(retryAfterSeconds * 1_000 - 500);
  });
});

describe("addresses", () => {
  it.each(["", "127.0.0.1:1", "grpc://127.0.0.1:1", "ws://user:secret@127.0.0.1:1", "file:///x"])(
    "WebSocket refuses %j without repeating it",
    (url) => {
      expect(() => connectWebSocket(url)).toThrow(RunnerConfigError);
      try {
        connectWebSocket(url);
      } catch (error) {
        expect(String(error)).not.toContain("secret");
      }
    },
  );

  it.each(["", "127.0.0.1:1", "ws://127.0.0.1:1", "grpc://127.0.0.1", "grpc://u:p@127.0.0.1:1"])("gRPC refuses %j", (url) => {
    expect(() => connectGrpc(url)).toThrow(RunnerConfigError);
  });

  it("http means ws, and a path that is given is kept", async () => {
    const { broker, url } = await started(await webSocketBroker());
    const { runner } = makeRunner({ tools, transport: connectWebSocket(`${url.replace("ws:", "http:")}/v1/runner`) }, broker);
    void runner.start();
    await (await broker.nextSession()).welcome();
    await until("ready", () => runner.state.kind === "ready");
  });
});
