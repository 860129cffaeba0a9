import { expect, it } from "vitest";
import { FrameEncodeError } from "./frame-codec.js";
import { RunnerFrame } from "./gen/toolrunner/v1/session.js";
import { createMemoryChannelPair } from "./memory-channel.js";
import { describeFrameChannel } from "./testing/frame-channel-suite.js";

describeFrameChannel("a memory pair", async (limits) => {
  const pair = createMemoryChannelPair(limits);
  return { ...pair, dispose: async () => pair.sever() };
});

it("shares no object between the sides of a memory pair", async () => {
  const { runner, broker } = createMemoryChannelPair();
  const sent = RunnerFrame.create({ frame: { $case: "hello", value: { binding: "shop", protocolVersions: [1] } } });
  const before = structuredClone(sent);
  runner.send(sent);
  if (sent.frame?.$case === "hello") sent.frame.value.protocolVersions.push(99);
  for await (const received of broker) {
    expect(received).toEqual(before);
    break;
  }
});

it("refuses in memory what no socket could carry", () => {
  const { runner } = createMemoryChannelPair();
  const frame = RunnerFrame.create({ frame: { $case: "claim", value: { slots: 1.5 } } });
  expect(() => runner.send(frame)).toThrow(FrameEncodeError);
});

it("delivers in a later turn, so that a sender is never re-entered", async () => {
  const { runner, broker } = createMemoryChannelPair();
  let delivered = false;
  void broker[Symbol.asyncIterator]()
    .next()
    .then(() => {
      delivered = true;
    });
  runner.send(RunnerFrame.create({ frame: { $case: "claim", value: { slots: 1 } } }));
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
  expect(delivered).toBe(false);
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(delivered).toBe(true);
});
