import { Duplex } from "node:stream";
import type { CreateCallRequest, CreateCallsRequest, CreateCallsResponse } from "@toolrunner/proto";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createCallStream } from "./create-stream.js";

/** Streams whose answers the test writes. */
function scriptedStreams() {
  const streams: { readonly sent: CreateCallsRequest[]; ended: boolean; answer(number: number): void; end(): void }[] = [];
  const open = () => {
    const sent: CreateCallsRequest[] = [];
    const stream = new Duplex({
      objectMode: true,
      read: () => undefined,
      write: (message: CreateCallsRequest, _encoding, done) => {
        sent.push(message);
        done();
      },
      final: (done) => {
        opened.ended = true;
        stream.push(null);
        done();
      },
    });
    const opened = {
      sent,
      ended: false,
      answer: (number: number) => {
        const answer = { $case: "call", value: { id: `call_${number}` } };
        stream.push({ number, answer } as unknown as CreateCallsResponse);
      },
      end: () => void stream.push(null),
    };
    streams.push(opened);
    return stream as unknown as ReturnType<Parameters<typeof createCallStream>[0]>;
  };
  return { streams, creations: createCallStream(open, "broker:1") };
}

const request = { toolset: "shop", tool: "refund", argumentsJson: "{}" } as CreateCallRequest;
const settledAs = (promise: Promise<unknown>) =>
  promise.then(
    (value) => value,
    (error: unknown) => error,
  );

describe("the stream that creates calls", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("gives each call up at its own time, however many are under way", async () => {
    const { streams, creations } = scriptedStreams();
    const slow = settledAs(creations.create(request, { timeoutMs: 5_000 }));
    const quick = settledAs(creations.create(request, { timeoutMs: 1_000 }));
    const answered = settledAs(creations.create(request, { timeoutMs: 2_000 }));
    let slowIsOver = false;
    void slow.then(() => {
      slowIsOver = true;
    });
    streams[0]?.answer(3);
    await vi.advanceTimersByTimeAsync(999);
    expect(await answered).toMatchObject({ id: "call_3" });
    await vi.advanceTimersByTimeAsync(1);
    expect(await quick).toMatchObject({ code: "unreachable", message: expect.stringContaining("1000 ms") });
    await vi.advanceTimersByTimeAsync(3_999);
    expect(slowIsOver).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await slow).toMatchObject({ code: "unreachable", message: expect.stringContaining("5000 ms") });
  });

  it("takes no harm from an answer that comes too late", async () => {
    const { streams, creations } = scriptedStreams();
    const late = settledAs(creations.create(request, { timeoutMs: 10 }));
    await vi.advanceTimersByTimeAsync(10);
    streams[0]?.answer(1);
    expect(await late).toMatchObject({ code: "unreachable" });
    const next = settledAs(creations.create(request, { timeoutMs: 10 }));
    streams[0]?.answer(2);
    await vi.advanceTimersByTimeAsync(0);
    expect(await next).toMatchObject({ id: "call_2" });
  });

  it("is ended a second after its last call, not before, and opened again for the next; no timer stays", async () => {
    const { streams, creations } = scriptedStreams();
    for (const number of [1, 2, 3]) {
      const call = settledAs(creations.create(request, { timeoutMs: 60_000 }));
      await vi.advanceTimersByTimeAsync(700);
      streams[0]?.answer(number);
      await vi.advanceTimersByTimeAsync(0);
      expect(await call).toMatchObject({ id: `call_${number}` });
    }
    await vi.advanceTimersByTimeAsync(999);
    expect(streams[0]?.ended).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(streams[0]?.ended).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
    const next = settledAs(creations.create(request, { timeoutMs: 60_000 }));
    expect(streams).toHaveLength(2);
    streams[1]?.answer(4);
    await vi.advanceTimersByTimeAsync(0);
    expect(await next).toMatchObject({ id: "call_4" });
  });

  it("leaves no timer behind when it is closed, at rest or with a call under way that is then answered", async () => {
    for (const closedFirst of [true, false]) {
      const { streams, creations } = scriptedStreams();
      const call = settledAs(creations.create(request, { timeoutMs: 60_000 }));
      if (closedFirst) creations.close();
      streams[0]?.answer(1);
      await vi.advanceTimersByTimeAsync(0);
      await call;
      if (!closedFirst) creations.close();
      expect(vi.getTimerCount(), `closed ${closedFirst ? "before" : "after"} the answer`).toBe(0);
    }
  });

  it("tells all that are under way when it breaks, and leaves no timer behind", async () => {
    const { streams, creations } = scriptedStreams();
    const calls = [1, 2].map(() => settledAs(creations.create(request, { timeoutMs: 60_000 })));
    streams[0]?.end();
    await vi.advanceTimersByTimeAsync(0);
    for (const call of calls) expect(await call).toMatchObject({ code: "unreachable" });
    expect(vi.getTimerCount()).toBe(0);
  });

  it("sets no timer for each call", async () => {
    const { streams, creations } = scriptedStreams();
    const set = vi.spyOn(globalThis, "setTimeout");
    try {
      for (let number = 1; number <= 50; number++) {
        const call = settledAs(creations.create(request, { timeoutMs: 60_000 }));
        streams[0]?.answer(number);
        await vi.advanceTimersByTimeAsync(1);
        await call;
      }
      expect(set.mock.calls.length).toBeLessThan(5);
    } finally {
      set.mockRestore();
    }
  });

  it("waits for ever where there is no limit", async () => {
    const { streams, creations } = scriptedStreams();
    const call = settledAs(creations.create(request, { timeoutMs: Number.POSITIVE_INFINITY }));
    await vi.advanceTimersByTimeAsync(10_000_000);
    streams[0]?.answer(1);
    await vi.advanceTimersByTimeAsync(0);
    expect(await call).toMatchObject({ id: "call_1" });
  });
});
