import { once } from "node:events";
import { type ClientHttp2Stream, connect } from "node:http2";
import { CreateCallsRequest, WatchCallRequest } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import type { CallEventView } from "../../domain/call-view.js";
import { FULL_KEY } from "../testing/fake-operations.js";
import { answered, startTestGrpc, stopTestGrpc, withKey } from "../testing/grpc-kit.js";

const closers: (() => void)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) close();
  await stopTestGrpc();
});

/** A gRPC call without a gRPC client: those read ahead, this one reads when it is told to. */
function rawCall(address: string, method: string): ClientHttp2Stream {
  // What this side has yet to send must not count against what it may receive.
  const session = connect(`http://${address}`, { maxSessionMemory: 1_000 });
  session.on("error", () => undefined);
  closers.push(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": `/toolrunner.v1.Calls/${method}`,
    "content-type": "application/grpc",
    te: "trailers",
    authorization: `Bearer ${FULL_KEY}`,
  });
  stream.on("error", () => undefined);
  return stream;
}

function framed(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** How many whole messages `bytes` holds. */
function messagesIn(bytes: Buffer): number {
  let count = 0;
  for (let at = 0; at + 5 <= bytes.length; at += 5 + bytes.readUInt32BE(at + 1)) count += 1;
  return count;
}

describe("readers that take nothing", () => {
  it("get no more events than buffers hold, and are cut off", async () => {
    const grpc = await startTestGrpc({ limits: { stallMs: 300 } });
    const { id } = await answered<{ id: string }>((done) =>
      grpc.calls.createCall({ toolset: "shop", tool: "refund", argumentsJson: "{}" }, withKey(), done),
    );
    const filler = "x".repeat(65_536);
    let pulled = 0;
    let finished = false;
    Object.assign(grpc.operations.calls, {
      async *watchEvents(): AsyncGenerator<CallEventView> {
        try {
          for (;;) {
            pulled += 1;
            yield { type: "event", call_id: id, seq: pulled, at: "2026-01-01T00:00:00.000Z", event: "progress", data: { filler } };
          }
        } finally {
          finished = true;
        }
      },
    });
    rawCall(grpc.address, "WatchCall").end(framed(WatchCallRequest.encode({ id }).finish()));
    await expect.poll(() => finished, { timeout: 10_000 }).toBe(true);
    expect(pulled).toBeLessThan(100);
  });

  it("get to send no more creations", async () => {
    const grpc = await startTestGrpc({ limits: { stallMs: 60_000 } });
    const stream = rawCall(grpc.address, "CreateCalls");
    const argumentsJson = JSON.stringify("x".repeat(20_000));
    const sent = 600;
    for (let number = 1; number <= sent; number += 1) {
      stream.write(framed(CreateCallsRequest.encode({ number, call: { toolset: "shop", tool: "instant", argumentsJson } }).finish()));
    }
    // The number settles well below what was sent: nobody reads the answers.
    let before = -1;
    await expect
      .poll(
        () => {
          const same = grpc.operations.callIds.length > 0 && grpc.operations.callIds.length === before;
          before = grpc.operations.callIds.length;
          return same;
        },
        { interval: 300, timeout: 15_000 },
      )
      .toBe(true);
    expect(before).toBeLessThan(sent / 2);
    const chunks: Buffer[] = [];
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.end();
    await once(stream, "end");
    expect(messagesIn(Buffer.concat(chunks))).toBe(sent);
    expect(grpc.operations.callIds).toHaveLength(sent);
  });
});

describe("what is not gRPC", () => {
  it("does no harm to those that are", async () => {
    const grpc = await startTestGrpc();
    const session = connect(`http://${grpc.address}`);
    session.on("error", () => undefined);
    const attempts: readonly (readonly [Record<string, string>, Buffer])[] = [
      [{ ":method": "GET", ":path": "/" }, Buffer.alloc(0)],
      [{ ":method": "POST", ":path": "/toolrunner.v1.Calls/Nothing", "content-type": "application/grpc" }, Buffer.alloc(5)],
      [{ ":method": "POST", ":path": "/toolrunner.v1.Calls/CreateCall", "content-type": "text/plain" }, Buffer.from("hello")],
      [{ ":method": "POST", ":path": "/toolrunner.v1.Calls/CreateCall", "content-type": "application/grpc" }, Buffer.alloc(0)],
      [
        { ":method": "POST", ":path": "/toolrunner.v1.Calls/CreateCall", "content-type": "application/grpc" },
        Buffer.from([0, 255, 255, 255, 255, 1]),
      ],
      [
        { ":method": "POST", ":path": "/toolrunner.v1.Calls/CreateCalls", "content-type": "application/grpc" },
        Buffer.from([1, 0, 0, 0, 2, 1, 1]),
      ],
      [
        { ":method": "POST", ":path": "/toolrunner.v1.Calls/CreateCalls", "content-type": "application/grpc" },
        Buffer.from([0, 0, 0, 0, 2, 255, 255]),
      ],
    ];
    for (const [headers, body] of attempts) {
      const stream = session.request({ ...headers, authorization: `Bearer ${FULL_KEY}` }, { endStream: false });
      stream.on("error", () => undefined);
      stream.resume();
      stream.end(body);
      await once(stream, "close");
    }
    session.destroy();
    const call = await answered((done) => grpc.calls.createCall({ toolset: "shop", tool: "refund", argumentsJson: "{}" }, withKey(), done));
    expect(call).toMatchObject({ state: "queued" });
    expect(grpc.log.lines.filter(({ level }) => level === "error")).toEqual([]);
  });
});
