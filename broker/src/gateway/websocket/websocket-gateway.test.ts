import { type ChannelLimits, createWebSocketChannel, FRAME_BYTES_MAX, SUBPROTOCOLS } from "@toolrunner/proto";
import { describeFrameChannel } from "@toolrunner/proto/testing";
import { describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { FRAME_BYTES_MAX as DOMAIN_FRAME_BYTES_MAX } from "../../domain/limits.js";
import { clientFrame, dial, handshake, rawClient, received, type Started, startGateway } from "./testing/gateway-kit.js";

for (const encoding of ["binary", "json"] as const) {
  describeFrameChannel(
    `a WebSocket, ${encoding}`,
    async (limits: ChannelLimits) => {
      const started = await startGateway({ limits });
      const accepted = started.next();
      const socket = dial(started.url, encoding);
      const runner = createWebSocketChannel(socket, { ...limits, side: "runner", encoding });
      const { channel } = await accepted;
      return {
        runner,
        broker: channel,
        sever: () => {
          // `terminate` on one end looks like a reset to the other.
          socket.terminate();
        },
        dispose: async () => {
          socket.terminate();
          await started.gateway.stop({ drainMs: 0 });
        },
      };
    },
    encoding,
  );
}

describe("WebSocket gateway: hostile clients", () => {
  it("agrees with the domain about the size of a frame", () => {
    expect(FRAME_BYTES_MAX).toBe(DOMAIN_FRAME_BYTES_MAX);
  });

  async function closeCode(started: Started, act: (socket: WebSocket) => void): Promise<number> {
    const accepted = started.next();
    const socket = dial(started.url);
    const { channel } = await accepted;
    if (socket.readyState !== WebSocket.OPEN) await new Promise((resolve) => socket.once("open", resolve));
    act(socket);
    const code = await new Promise<number>((resolve) => socket.once("close", resolve));
    expect(await channel.closed).toMatchObject({ code, by: "local" });
    return code;
  }

  it("closes with 4413 on a message over 1 MiB, whatever it declares", async () => {
    const started = await startGateway();
    expect(await closeCode(started, (socket) => socket.send(Buffer.alloc(FRAME_BYTES_MAX + 1)))).toBe(4413);
    const { socket } = await rawClient(started.port);
    await received(socket, (bytes) => bytes.includes("\r\n\r\n"));
    socket.write(clientFrame(0x82, Buffer.alloc(10), Number.MAX_SAFE_INTEGER));
    const answer = await received(socket, (bytes) => bytes.length >= 4);
    expect(answer[0]).toBe(0x88);
    expect(answer.readUInt16BE(2)).toBe(4413);
    socket.destroy();
  });

  it("closes with 4400 on bytes that are no frame, on text where bytes were agreed, and on broken WebSocket frames", async () => {
    const started = await startGateway();
    expect(await closeCode(started, (socket) => socket.send(Buffer.from([0xff])))).toBe(4400);
    expect(await closeCode(started, (socket) => socket.send("{}"))).toBe(4400);
    const { socket } = await rawClient(started.port);
    await received(socket, (bytes) => bytes.includes("\r\n\r\n"));
    // a reserved opcode, and no mask
    socket.write(Buffer.from([0x8b, 0x00]));
    expect((await received(socket, (bytes) => bytes.length >= 4)).readUInt16BE(2)).toBe(4400);
    socket.destroy();
  });

  it("answers pings, but keeps no answers for a client that does not read them", async () => {
    const started = await startGateway({ limits: { closeTimeoutMs: 100 } });
    const accepted = started.next();
    const { socket } = await rawClient(started.port);
    await received(socket, (bytes) => bytes.includes("\r\n\r\n"));
    const { channel } = await accepted;
    socket.write(clientFrame(0x89, Buffer.from("hi")));
    expect(await received(socket, (bytes) => bytes.length >= 4)).toEqual(Buffer.from([0x8a, 0x02, 0x68, 0x69]));
    socket.pause();
    const flood = Buffer.concat(Array.from({ length: 1_000 }, () => clientFrame(0x89, Buffer.alloc(125))));
    // 28 MB of pings: far more than the buffers of both kernels hold of their answers
    for (let round = 0; round < 200; round += 1) {
      if (!socket.write(flood)) await new Promise((resolve) => socket.once("drain", resolve));
    }
    expect(channel.bufferedBytes).toBeLessThan(1_000_000);
    socket.destroy();
    await channel.closed;
  });

  it("ends the session when the client's process is gone without a word", async () => {
    const started = await startGateway();
    const accepted = started.next();
    const { socket } = await rawClient(started.port);
    const { channel } = await accepted;
    socket.resetAndDestroy();
    expect(await channel.closed).toMatchObject({ code: 1006, by: "broken" });
  });

  it("closes with 4500 when the session logic fails, and goes on serving others", async () => {
    const started = await startGateway({ sessions: { serve: () => Promise.reject(new Error("a mistake")) } });
    for (let round = 0; round < 2; round += 1) {
      const socket = dial(started.url);
      expect(await new Promise<number>((resolve) => socket.once("close", resolve))).toBe(4500);
    }
    expect(started.lines.join()).toContain("runner_session_failed");
  });
});

describe("WebSocket gateway: stop", () => {
  it("lets sessions end by themselves, and closes the others with 4501 when the time is up", async () => {
    const started = await startGateway();
    const first = started.next();
    const socket = dial(started.url);
    await first;
    const second = started.next();
    const other = dial(started.url);
    const { channel } = await second;
    const codes = [socket, other].map((each) => new Promise<number>((resolve) => each.once("close", resolve)));
    const stopped = started.gateway.stop({ drainMs: 100 });
    channel.close(1000);
    expect(await codes[1]).toBe(1000);
    expect(await codes[0]).toBe(4501);
    await stopped;
    await started.gateway.stop({ drainMs: 60_000 });
  });

  it("refuses new sessions with 503 while it stops, and a second stop may be in more of a hurry", async () => {
    const started = await startGateway();
    const first = started.next();
    dial(started.url);
    await first;
    const patient = started.gateway.stop({ drainMs: 60_000 });
    expect(await handshake(started.url, [SUBPROTOCOLS.binary])).toMatchObject({
      status: 503,
      headers: { "retry-after": "1" },
      body: { error: { code: "draining" } },
    });
    await started.gateway.stop({ drainMs: 0 });
    await patient;
  });
});
