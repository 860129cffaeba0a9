/** A broker that takes connections and does not read them: what a runner holds for it is bounded, and nothing is lost. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, it } from "vitest";
import type { Transport } from "../index.js";
import { connectGrpc, connectWebSocket } from "../node.js";
import { makeRunner, stopRunners, until, work } from "../runner.test.kit.js";
import { createFakeBroker } from "../testing.js";
import { grpcBroker, type SocketBroker, webSocketBroker } from "./socket-broker.test.kit.js";

const MIB = 1_048_576;
setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;
const brokers: SocketBroker[] = [];
afterEach(async () => {
  await stopRunners();
  await Promise.all(brokers.splice(0).map((broker) => broker.stop()));
});

function outsideHeap(): number {
  collect();
  return process.memoryUsage().external;
}

describe.each<[string, () => Promise<SocketBroker>, (url: string) => Transport]>([
  ["gRPC", grpcBroker, (url) => connectGrpc(url)],
  ["WebSocket", () => webSocketBroker(), (url) => connectWebSocket(url)],
])("a broker that stops reading, over %s (I7)", (_, listen, connect) => {
  it("holds up receipts and not memory: they are in the journal, and all of them arrive on the next session", async () => {
    const socket = await listen();
    brokers.push(socket);
    const { broker, url } = socket;
    let finished = 0;
    const text = "x".repeat(600_000);
    const tools = [
      work((_args, ctx) => {
        ctx.progress({ text: "half" });
        finished += 1;
        return text;
      }),
    ];
    const { runner } = makeRunner({ tools, transport: connect(url), concurrency: 200 }, broker);
    const starting = runner.start();
    const session = await broker.nextSession();
    await session.welcome();
    await starting;
    const before = outsideHeap();
    socket.pause();
    for (let count = 0; count < 100; count += 1) session.grant({ tool: "work" });
    await until("all handlers", () => finished === 100);
    const heldMib = (outsideHeap() - before) / MIB;
    console.log(`60 MB of results for a broker that does not read: ${heldMib.toFixed(1)} MiB more outside the heap`);
    expect(heldMib).toBeLessThan(24);
    session.sever();
    const next = await broker.nextSession();
    await next.welcome();
    const receipts = new Set<string>();
    for (let count = 0; count < 100; count += 1) {
      const receipt = await next.next("receipt");
      receipts.add(receipt.callId);
      next.acknowledge(receipt);
    }
    expect(receipts.size).toBe(100);
  });
});

describe("a connection that takes no more", () => {
  it("gets receipts in their order, each once, when it has room again", async () => {
    const broker = createFakeBroker();
    let bytes = 0;
    let release: () => void = () => undefined;
    const transport: Transport = {
      ...broker.transport,
      async connect(options) {
        const channel = await broker.transport.connect(options);
        return {
          transport: channel.transport,
          closed: channel.closed,
          get bufferedBytes() {
            return bytes;
          },
          drained: () => (bytes === 0 ? Promise.resolve() : new Promise<void>((resolve) => (release = resolve))),
          send: (frame) => channel.send(frame),
          close: (code, reason) => channel.close(code, reason),
          [Symbol.asyncIterator]: () => channel[Symbol.asyncIterator](),
        };
      },
    };
    const { runner } = makeRunner({ tools: [work(() => "done")], transport, concurrency: 10 }, broker);
    const starting = runner.start();
    const session = await broker.nextSession();
    await session.welcome();
    await starting;
    bytes = 2 * MIB;
    const names = Array.from({ length: 5 }, () => session.grant({ tool: "work" }).callId);
    for (let count = 0; count < names.length; count += 1) await session.next("started");
    await session.settleFrames();
    expect(session.all("receipt")).toEqual([]);
    bytes = 0;
    release();
    for (let count = 0; count < names.length; count += 1) await session.next("receipt");
    await session.settleFrames();
    expect(session.all("receipt").map(({ callId }) => callId)).toEqual(names);
  });
});
