/** Peers over real sockets that do not read, or never stop writing: what a broker holds for them stays bounded. */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { GrantPhase, Hello, type RunnerFrame, runnerFrameCodec, SUBPROTOCOLS } from "@toolrunner/proto";
import { createRunner, defineTool, type Runner } from "@toolrunner/runner-sdk";
import { connectWebSocket } from "@toolrunner/runner-sdk/node";
import { afterEach, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { AGENT_KEY, type InProcessBroker, startInProcessBroker } from "./in-process-broker.test.kit.js";

const MIB = 1_048_576;
const undo: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function site(figures = {}): Promise<InProcessBroker> {
  const started = await startInProcessBroker({ bindings: ["shop"], figures });
  undo.push(() => started.stop());
  return started;
}

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** What sockets and frames hold outside the heap, after what can be collected was. */
function outsideHeap(): number {
  collect();
  return process.memoryUsage().external;
}

/** What the kernel may hold of one direction of a connection: the largest buffers of sender and receiver, in MiB. */
const KERNEL_MIB =
  ["tcp_rmem", "tcp_wmem"]
    .map((name) => Number(readFileSync(`/proc/sys/net/ipv4/${name}`, "utf8").trim().split(/\s+/)[2]))
    .reduce((sum, bytes) => sum + bytes, 0) / MIB;

/** A runner whose WebSocket is spoken by hand, so that nobody reads it unless the test does. */
async function rawRunner(broker: InProcessBroker, runnerId: string, slots: number) {
  const { key } = await broker.runnerKey("shop");
  const { port } = new URL(broker.broker.addresses.http);
  const socket: Socket = connect(Number(port), "127.0.0.1");
  undo.push(() => socket.destroy());
  socket.on("error", () => undefined);
  const outbound = runnerFrameCodec("binary");
  const send = (frame: RunnerFrame["frame"]): boolean => socket.write(masked(outbound.encode({ frame }) as Uint8Array));
  socket.write(
    [
      "GET /v1/runner HTTP/1.1",
      `Host: 127.0.0.1:${port}`,
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`,
      `Sec-WebSocket-Protocol: ${SUBPROTOCOLS.binary}`,
      `Authorization: Bearer ${key}`,
      "\r\n",
    ].join("\r\n"),
  );
  await new Promise<void>((resolve) => socket.once("data", () => resolve()));
  socket.pause();
  const handlers = ["echo", "charge"].map((tool) => ({ tool, version: "1", idempotent: true, cancellable: true, readOnly: false }));
  send({
    $case: "hello",
    value: Hello.create({ protocolVersions: [1], binding: "shop", runnerId, journalId: `journal_${runnerId}`, slots, handlers }),
  });
  await eventually("the session", () =>
    broker.events.some(({ event, fields }) => event === "session_opened" && fields.runner_id === runnerId),
  );
  return { socket, send };
}

/** One binary message, as a client sends it: masked, here with zeros. */
function masked(data: Uint8Array): Buffer {
  const head = data.length < 126 ? Buffer.from([0x82, 0x80 | data.length]) : Buffer.alloc(data.length < 65_536 ? 4 : 10);
  if (data.length >= 65_536) {
    head.set([0x82, 0xff]);
    head.writeBigUInt64BE(BigInt(data.length), 2);
  } else if (data.length >= 126) {
    head.set([0x82, 0xfe]);
    head.writeUInt16BE(data.length, 2);
  }
  return Buffer.concat([head, Buffer.alloc(4), data]);
}

async function goodRunner(broker: InProcessBroker): Promise<Runner> {
  const { key } = await broker.runnerKey("shop");
  const tools = [defineTool({ name: "echo", description: "Answers.", idempotent: true, run: () => "done" })];
  const runner = createRunner({ transport: connectWebSocket(broker.broker.addresses.ws), binding: "shop", token: key, tools });
  undo.push(() => runner.stop());
  await runner.start();
  return runner;
}

/** The most that was held outside the heap since `before`, looked at until `over`. */
async function mostHeld(before: number, over: () => boolean): Promise<number> {
  let most = 0;
  await eventually(
    "the end",
    async () => {
      most = Math.max(most, outsideHeap() - before);
      if (over()) return true;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return false;
    },
    40_000,
  );
  return most / MIB;
}

const closeOf = (broker: InProcessBroker, runnerId: string) =>
  broker.events.find(({ event, fields }) => event === "session_closed" && fields.runner_id === runnerId);

describe("a runner that never reads its socket", () => {
  it("is granted little and closed with 4502, and its calls run elsewhere", { timeout: 90_000 }, async () => {
    const broker = await site({ pingIntervalMs: 700, leaseMs: 2_200 });
    const text = "x".repeat(200_000);
    const calls: string[] = [];
    for (let count = 0; count < 100; count += 1) {
      const made = await broker.http("POST", "/v1/calls", { toolset: "shop", tool: "echo", arguments: { text } });
      expect(made.status, JSON.stringify(made.body)).toBe(202);
      calls.push(String(made.body.id));
    }
    const before = outsideHeap();
    await rawRunner(broker, "deaf", 1_000);
    const heldMib = await mostHeld(before, () => closeOf(broker, "deaf") !== undefined);
    expect(closeOf(broker, "deaf")?.fields).toMatchObject({ code: 4502, by: "local" });
    await goodRunner(broker);
    const settled = await Promise.all(calls.map((id) => broker.http("GET", `/v1/calls/${id}?wait_seconds=30`)));
    expect(settled.map(({ body }) => body.state)).toEqual(calls.map(() => "succeeded"));
    const granted = settled.filter(({ body }) => Number(body.attempt) > 1).length;
    console.log(
      `of 100 calls of 200 kB, ${granted} were granted to a runner that does not read; at most ${heldMib.toFixed(1)} MiB outside the heap`,
    );
    // What the kernel takes counts as read: some MiB on loopback.
    expect(granted).toBeGreaterThan(0);
    expect(granted).toBeLessThan(70);
    expect(heldMib).toBeLessThan(24);
  });

  it("and floods the broker with frames that want answers is read no further than its answers are taken, and others go on", {
    timeout: 90_000,
  }, async () => {
    const broker = await site({ pingIntervalMs: 1_500, leaseMs: 5_000 });
    await goodRunner(broker);
    const before = outsideHeap();
    const { socket, send } = await rawRunner(broker, "flood", 4);
    // Answered by a fault each, which nobody reads.
    const held = [{ callId: "call_x", grantId: "entry_x", fence: 1, phase: GrantPhase.RUNNING }];
    const flood = setInterval(() => {
      for (let count = 0; count < 5_000 && socket.writableLength < 4 * MIB; count += 1) {
        send({ $case: "pong", value: { number: 4_000_000, held } });
      }
    }, 5);
    undo.push(() => clearInterval(flood));
    const called = broker.http("POST", "/v1/calls", { toolset: "shop", tool: "echo", arguments: {}, wait_seconds: 30 });
    let taken = 0;
    const heldMib = await mostHeld(before, () => {
      taken = Math.max(taken, socket.bytesWritten - socket.writableLength);
      return closeOf(broker, "flood") !== undefined;
    });
    console.log(`a flooding runner was read up to ${(taken / MIB).toFixed(1)} MiB; at most ${heldMib.toFixed(1)} MiB outside the heap`);
    expect(closeOf(broker, "flood")?.fields).toMatchObject({ code: 4502 });
    // Read without end, its answers would pile up to 16 MiB before it is closed for them.
    expect(heldMib).toBeLessThan(14);
    // In either direction the kernel takes what fits its buffers, and that counts as read.
    expect(taken / MIB).toBeLessThan(2 * KERNEL_MIB + 4);
    expect((await called).body.state).toBe("succeeded");
  });
});

describe("an agent that never reads its stream of events", () => {
  it("costs what its socket holds, and keeps neither call nor other readers back (X6)", { timeout: 60_000 }, async () => {
    const broker = await site();
    const { key } = await broker.runnerKey("shop");
    let finish: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      finish = resolve;
    });
    let told = 0;
    const talk = defineTool({
      name: "charge",
      description: "Talks.",
      async run(_args, ctx) {
        for (; told < 900; told += 1) {
          ctx.progress({ text: "x".repeat(10_000) });
          if (told % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
        }
        await gate;
        return "done";
      },
    });
    const runner = createRunner({ transport: connectWebSocket(broker.broker.addresses.ws), binding: "shop", token: key, tools: [talk] });
    undo.push(() => runner.stop());
    await runner.start();
    const made = await broker.http("POST", "/v1/calls", { toolset: "shop", tool: "charge", arguments: {} });
    const { port } = new URL(broker.broker.addresses.http);
    const before = outsideHeap();
    const streams = Array.from({ length: 20 }, () => {
      const socket = connect(Number(port), "127.0.0.1");
      socket.pause();
      socket.on("error", () => undefined);
      socket.write(
        `GET /v1/calls/${String(made.body.id)}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${AGENT_KEY}\r\nAccept: text/event-stream\r\n\r\n`,
      );
      undo.push(() => socket.destroy());
      return socket;
    });
    await eventually("all progress", () => told === 900, 20_000);
    finish();
    const settled = await broker.http("GET", `/v1/calls/${String(made.body.id)}?wait_seconds=10`);
    expect(settled.body).toMatchObject({ state: "succeeded", result: "done" });
    const heldMib = (outsideHeap() - before) / MIB;
    console.log(`${streams.length} streams that nobody reads, of 9 MB each: ${heldMib.toFixed(1)} MiB more outside the heap`);
    expect(heldMib).toBeLessThan(40);
  });
});
