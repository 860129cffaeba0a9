/** With a scripted socket; `broker/src/gateway/websocket` runs the suite on real ones. */
import { describe, expect, it } from "vitest";
import { brokerFrameCodec } from "./frame-codec.js";
import { RunnerFrame } from "./gen/toolrunner/v1/session.js";
import { createWebSocketChannel, type WebSocketLike } from "./websocket-channel.js";

type Listener = (event: never) => void;

/** A browser's socket, driven by the test. */
class ScriptedSocket {
  binaryType = "blob";
  readyState = 0;
  bufferedAmount = 0;
  readonly sent: (string | Uint8Array)[] = [];
  readonly closes: { code: number | undefined; reason: string | undefined }[] = [];
  readonly #listeners = new Map<string, Listener[]>();
  send(data: string | Uint8Array): void {
    if (this.readyState === 0) throw new Error("InvalidStateError");
    this.sent.push(data);
  }
  close(code?: number, reason?: string): void {
    if (code !== undefined && code !== 1000 && (code < 3000 || code > 4999)) throw new Error("InvalidAccessError");
    if (new TextEncoder().encode(reason ?? "").length > 123) throw new Error("SyntaxError");
    this.closes.push({ code, reason });
    this.readyState = 2;
  }
  addEventListener(type: string, listener: Listener): void {
    this.#listeners.set(type, [...(this.#listeners.get(type) ?? []), listener]);
  }
  emit(type: string, event: object = {}): void {
    for (const listener of this.#listeners.get(type) ?? []) (listener as (event: object) => void)(event);
  }
  open(): void {
    this.readyState = 1;
    this.emit("open");
  }
}

const claim = (slots: number): RunnerFrame => RunnerFrame.create({ frame: { $case: "claim", value: { slots } } });
const ping = brokerFrameCodec("binary").encode({ frame: { $case: "ping", value: { number: 1, acknowledged: 0 } } }) as Uint8Array;

function connect(limits: { inboundHighBytes?: number; outboundMaxBytes?: number; closeTimeoutMs?: number } = {}) {
  const socket = new ScriptedSocket();
  const channel = createWebSocketChannel(socket as WebSocketLike, { side: "runner", encoding: "binary", ...limits });
  return { socket, channel };
}

/** A browser's socket fits; checked by the compiler. */
type FitsBrowser = WebSocket extends WebSocketLike ? true : never;
const fitsBrowser: FitsBrowser = true;

describe("WebSocket channel on a browser's socket", () => {
  it("fits what browsers have", () => {
    expect(fitsBrowser).toBe(true);
  });

  it("queues frames until the socket is open, counts them, and keeps their order", async () => {
    const { socket, channel } = connect();
    channel.send(claim(1));
    channel.send(claim(2));
    expect(channel.bufferedBytes).toBe(8);
    socket.open();
    channel.send(claim(3));
    expect(channel.bufferedBytes).toBe(0);
    expect(socket.sent.map((data) => (data as Uint8Array).at(-1))).toEqual([1, 2, 3]);
  });

  it("sends what was queued before it closes a socket that was still connecting", () => {
    const { socket, channel } = connect();
    channel.send(claim(1));
    channel.close(4500, "never mind");
    expect(socket.closes).toEqual([]);
    socket.open();
    expect(socket.sent.length).toBe(1);
    expect(socket.closes).toEqual([{ code: 4500, reason: "never mind" }]);
  });

  it("gives up at once on a socket that was still connecting when nothing was queued, and in time otherwise", async () => {
    const idle = connect();
    idle.channel.close(1000);
    expect(idle.socket.closes.length).toBe(1);
    const queued = connect({ closeTimeoutMs: 20 });
    queued.channel.send(claim(1));
    queued.channel.close(1000);
    expect(await queued.channel.closed).toMatchObject({ code: 1000, by: "local" });
    expect(queued.socket.closes.length).toBe(1);
  });

  it("asks for array buffers, because blobs would lose the order", () => {
    expect(connect().socket.binaryType).toBe("arraybuffer");
  });

  it("delivers frames from array buffers, then the remote close", async () => {
    const { socket, channel } = connect();
    socket.open();
    socket.emit("message", { data: Uint8Array.from(ping).buffer });
    socket.emit("close", { code: 4501, reason: "the broker stops" });
    const kinds: (string | undefined)[] = [];
    for await (const frame of channel) kinds.push(frame.frame?.$case);
    expect(kinds).toEqual(["ping"]);
    expect(await channel.closed).toEqual({ code: 4501, reason: "the broker stops", by: "remote" });
  });

  it("reports a socket that could not connect as broken, with what is known", async () => {
    const { socket, channel } = connect();
    channel.send(claim(1));
    socket.readyState = 3;
    socket.emit("error", { message: "ECONNREFUSED" });
    socket.emit("close", { code: 1006, reason: "" });
    expect(await channel.closed).toEqual({ code: 1006, reason: "ECONNREFUSED", by: "broken" });
  });

  it.each([
    ["text on the binary subprotocol", "{}", 4400],
    ["a blob", {}, 4400],
    ["bytes that are no frame", Uint8Array.of(0xff).buffer, 4400],
    ["a frame over the limit", new ArrayBuffer(1_048_577), 4413],
  ])("closes %s", async (_, data, code) => {
    const { socket, channel } = connect();
    socket.open();
    socket.emit("message", { data });
    expect(socket.closes.map((close) => close.code)).toEqual([code]);
    socket.emit("close", { code, reason: "" });
    expect(await channel.closed).toMatchObject({ code, by: "local" });
  });

  it("keeps a close reason within the 123 bytes that a close frame holds, between characters", () => {
    const { socket, channel } = connect();
    socket.open();
    channel.close(4500, "ü".repeat(100));
    expect(socket.closes).toEqual([{ code: 4500, reason: "ü".repeat(61) }]);
  });

  it("closes with 4429 when its reader falls behind, since a browser's socket cannot be paused", async () => {
    const { socket, channel } = connect({ inboundHighBytes: 10_000 });
    socket.open();
    for (let count = 0; count < 100; count += 1) socket.emit("message", { data: Uint8Array.from(ping).buffer });
    expect(socket.closes.map((close) => close.code)).toEqual([4429]);
    socket.emit("close", { code: 4429, reason: "" });
    expect(await channel.closed).toMatchObject({ code: 4429, by: "local" });
  });

  it("resolves closed though the peer never answers the close", async () => {
    const { socket, channel } = connect({ closeTimeoutMs: 20 });
    socket.open();
    channel.close(1000);
    expect(await channel.closed).toEqual({ code: 1000, reason: "normal", by: "local" });
    socket.emit("message", { data: Uint8Array.from(ping).buffer });
    socket.emit("close", { code: 1006, reason: "" });
    expect(await channel.closed).toMatchObject({ by: "local" });
  });

  it("waits for the socket's buffer by looking at it, and stops looking when it closed", async () => {
    const { socket, channel } = connect();
    socket.open();
    socket.bufferedAmount = 1_000_000;
    let drained = false;
    const waiting = channel.drained().then(() => {
      drained = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(drained).toBe(false);
    socket.bufferedAmount = 0;
    await waiting;
    socket.bufferedAmount = 1_000_000;
    const cut = channel.drained();
    socket.emit("close", { code: 1006, reason: "" });
    await cut;
  });

  it("closes a peer that does not read with 4502", () => {
    const { socket, channel } = connect({ outboundMaxBytes: 1_000 });
    socket.open();
    socket.bufferedAmount = 2_000;
    channel.send(claim(1));
    expect(socket.closes.map((close) => close.code)).toEqual([4502]);
  });
});
