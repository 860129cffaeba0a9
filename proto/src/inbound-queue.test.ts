import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createInboundQueue, ITEM_OVERHEAD_BYTES } from "./inbound-queue.js";

describe("inbound queue", () => {
  it("hands out what was pushed before and after the reader waited, in order", async () => {
    const queue = createInboundQueue<number>();
    const frames = queue[Symbol.asyncIterator]();
    const first = [frames.next(), frames.next()];
    for (let item = 1; item <= 5_000; item += 1) queue.push(item, 1);
    queue.end();
    const rest: number[] = [];
    for (let result = await frames.next(); !result.done; result = await frames.next()) rest.push(result.value);
    expect((await Promise.all(first)).map((result) => result.value)).toEqual([1, 2]);
    expect(rest).toEqual(Array.from({ length: 4_998 }, (_, index) => index + 3));
    expect(queue.unreadBytes).toBe(0);
  });

  it("pauses once over the mark, resumes once at half of it, and is balanced at the end, whatever the schedule", async () => {
    const step = fc.oneof(fc.nat(2_000), fc.constant("read" as const));
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.boolean(), async (steps, discard) => {
        const marks: string[] = [];
        const highBytes = 3_000;
        const queue = createInboundQueue<number>({ highBytes, onPause: () => marks.push("pause"), onResume: () => marks.push("resume") });
        const frames = queue[Symbol.asyncIterator]();
        const costs: number[] = [];
        for (const action of steps) {
          if (action !== "read") {
            queue.push(action, action);
            costs.push(action + ITEM_OVERHEAD_BYTES);
          } else if (costs.length > 0) {
            expect((await frames.next()).value).toBe((costs.shift() ?? 0) - ITEM_OVERHEAD_BYTES);
          }
          const unread = costs.reduce((sum, cost) => sum + cost, 0);
          expect(queue.unreadBytes).toBe(unread);
          const paused = marks.at(-1) === "pause";
          if (unread > highBytes) expect(paused).toBe(true);
          if (unread <= highBytes / 2) expect(paused).toBe(false);
        }
        queue.end({ discard });
        expect(marks).toEqual(marks.map((_, index) => (index % 2 === 0 ? "pause" : "resume")));
        expect(marks.length % 2).toBe(0);
      }),
    );
  });

  it("delivers what is unread after its end, and nothing when told to discard it", async () => {
    const kept = createInboundQueue<number>();
    kept.push(1, 1);
    kept.end();
    kept.push(2, 1);
    const keptFrames = kept[Symbol.asyncIterator]();
    expect(await keptFrames.next()).toEqual({ done: false, value: 1 });
    expect((await keptFrames.next()).done).toBe(true);

    const dropped = createInboundQueue<number>();
    dropped.push(1, 1);
    dropped.end({ discard: true });
    expect((await dropped[Symbol.asyncIterator]().next()).done).toBe(true);
  });

  it("drops everything once the reader left its loop, and lets the transport go on", async () => {
    const marks: string[] = [];
    const queue = createInboundQueue<number>({ highBytes: 500, onPause: () => marks.push("pause"), onResume: () => marks.push("resume") });
    queue.push(1, 1);
    queue.push(2, 1_000);
    for await (const item of queue) {
      expect(item).toBe(1);
      break;
    }
    for (let count = 0; count < 100; count += 1) queue.push(count, 1_000);
    expect(queue.unreadBytes).toBe(0);
    expect(marks).toEqual(["pause", "resume"]);
  });

  it("ends every read that waits", async () => {
    const queue = createInboundQueue<number>();
    const frames = queue[Symbol.asyncIterator]();
    const reads = [frames.next(), frames.next()];
    queue.end();
    expect(await Promise.all(reads)).toEqual([
      { done: true, value: undefined },
      { done: true, value: undefined },
    ]);
  });
});
