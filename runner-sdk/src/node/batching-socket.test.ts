import { once } from "node:events";
import { type AddressInfo, Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, describe, expect, it, vi } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { BatchingSocket } from "./batching-socket.js";

const servers: WebSocketServer[] = [];
afterEach(() => {
  vi.restoreAllMocks();
  for (const server of servers.splice(0)) {
    for (const socket of server.clients) socket.terminate();
    server.close();
  }
});

async function joined() {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  servers.push(server);
  await once(server, "listening");
  const address = new URL(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const socket = new BatchingSocket(address, [], { perMessageDeflate: false });
  const [[peer]] = await Promise.all([once(server, "connection") as Promise<[WebSocket]>, once(socket, "open")]);
  const received: string[] = [];
  peer.on("message", (data: Buffer) => received.push(data.toString()));
  return { socket, peer, received };
}

/** Counts writes to any connection of this process, of one piece and of several. */
function countWrites() {
  const single = vi.spyOn(Socket.prototype, "_write");
  const several = vi.spyOn(Socket.prototype, "_writev" as "_write");
  return () => single.mock.calls.length + several.mock.calls.length;
}

describe("a runner's WebSocket on Node", () => {
  it("sends what is sent before the loop turns, by promises too, as one write, and what comes later as another", async () => {
    const { socket, peer, received } = await joined();
    const writes = countWrites();
    socket.send("started");
    for (let hop = 0; hop < 20; hop++) await Promise.resolve();
    socket.send("receipt");
    expect(writes()).toBe(0);
    await nextTurn();
    expect(writes()).toBe(1);
    socket.send("later");
    await nextTurn();
    expect(writes()).toBe(2);
    while (received.length < 3) await once(peer, "message");
    expect(received).toEqual(["started", "receipt", "later"]);
  });

  it("does not hold a frame back until the loop turns", async () => {
    const { socket } = await joined();
    const writes = countWrites();
    socket.send("started");
    await new Promise<void>((resolve) => process.nextTick(resolve));
    expect(writes()).toBe(1);
  });

  it("counts what waits, tells when it was written, and loses nothing to a close", async () => {
    const { socket, peer, received } = await joined();
    const told: string[] = [];
    socket.send("first", () => told.push("first"));
    socket.send("last", () => told.push("last"));
    expect(socket.bufferedAmount).toBeGreaterThan("firstlast".length);
    socket.close(1000);
    await once(peer, "close");
    expect(received).toEqual(["first", "last"]);
    expect(told).toEqual(["first", "last"]);
  });
});
