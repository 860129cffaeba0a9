/**
 * The suite that every transport passes unchanged: what {@link FrameChannel} promises, seen from both ends.
 */
import { afterEach, describe, expect, it } from "vitest";
import type { ChannelLimits } from "../channel-core.js";
import { CLOSE_CODES, type CloseCode } from "../close-codes.js";
import { type FrameChannel, FrameTooLargeError } from "../frame-channel.js";
import { FRAME_BYTES_MAX, type FrameEncoding, runnerFrameCodec } from "../frame-codec.js";
import { BrokerFrame, RunnerFrame } from "../gen/toolrunner/v1/session.js";

/** Two joined ends and how to break what joins them. */
export interface ConnectedChannels {
  readonly runner: FrameChannel<BrokerFrame, RunnerFrame>;
  readonly broker: FrameChannel<RunnerFrame, BrokerFrame>;
  /** Cuts the connection without a close. */
  sever(): void;
  /** Releases servers and sockets. */
  dispose(): Promise<void>;
}

const CODES = Object.keys(CLOSE_CODES).map(Number) as CloseCode[];
const MANY = 1_000;

const ping = (number: number): BrokerFrame => BrokerFrame.create({ frame: { $case: "ping", value: { number } } });
const claim = (slots: number): RunnerFrame => RunnerFrame.create({ frame: { $case: "claim", value: { slots } } });
const progress = (text: string): RunnerFrame => RunnerFrame.create({ frame: { $case: "progress", value: { text } } });

/** A progress frame of exactly `bytes` bytes, near the limit, in `encoding`. */
function progressOfSize(bytes: number, encoding: FrameEncoding): RunnerFrame {
  // Near the limit the lengths of all length prefixes are the same.
  const near = FRAME_BYTES_MAX - 1_000;
  const overhead = runnerFrameCodec(encoding).encode(progress("x".repeat(near))).length - near;
  return progress("x".repeat(bytes - overhead));
}

async function readAll<T>(channel: AsyncIterable<T>): Promise<T[]> {
  const frames: T[] = [];
  for await (const frame of channel) frames.push(frame);
  return frames;
}

async function read<T>(frames: AsyncIterator<T>, count: number): Promise<T[]> {
  const taken: T[] = [];
  while (taken.length < count) {
    const { done, value } = await frames.next();
    if (done) throw new Error(`the channel ended after ${taken.length} of ${count} frames`);
    taken.push(value);
  }
  return taken;
}

/**
 * Runs the suite against a transport. `connect` makes a fresh pair; `limits` are for both ends.
 * `encoding` is what the transport writes, for the sizes at the edge.
 */
export function describeFrameChannel(
  name: string,
  connect: (limits: ChannelLimits) => Promise<ConnectedChannels>,
  encoding: FrameEncoding = "binary",
): void {
  describe(`frame channel over ${name}`, () => {
    const open: ConnectedChannels[] = [];
    const pair = async (limits: ChannelLimits = {}): Promise<ConnectedChannels> => {
      const connected = await connect(limits);
      open.push(connected);
      return connected;
    };
    afterEach(async () => {
      for (const connected of open.splice(0)) await connected.dispose();
    });

    it("delivers frames of both directions in order", async () => {
      const { runner, broker } = await pair();
      const sent = Array.from({ length: MANY }, (_, index) => index + 1);
      for (const number of sent) {
        runner.send(claim(number));
        broker.send(ping(number));
      }
      expect(await read(broker[Symbol.asyncIterator](), MANY)).toEqual(sent.map(claim));
      expect(await read(runner[Symbol.asyncIterator](), MANY)).toEqual(sent.map(ping));
    });

    it.each(CODES)("tells the runner the broker's close code %i and its reason, after every frame sent before it", async (code) => {
      const { runner, broker } = await pair();
      broker.send(ping(1));
      broker.send(ping(2));
      broker.close(code, "Grund: überfällig");
      expect(await readAll(runner)).toEqual([ping(1), ping(2)]);
      expect(await runner.closed).toEqual({ code, reason: "Grund: überfällig", by: "remote" });
      expect(await broker.closed).toEqual({ code, reason: "Grund: überfällig", by: "local" });
    });

    it.each(CODES)("tells the broker the runner's close code %i, after every frame sent before it", async (code) => {
      const { runner, broker } = await pair();
      runner.send(claim(1));
      runner.close(code, "done");
      expect((await readAll(broker)).slice(0, 1)).toEqual([claim(1)]);
      expect(await broker.closed).toMatchObject({ code, by: "remote" });
      expect(await runner.closed).toEqual({ code, reason: "done", by: "local" });
    });

    it("keeps the first close, drops what is sent after it, and never throws about it", async () => {
      const { runner, broker } = await pair();
      broker.send(ping(1));
      broker.close(4409);
      broker.close(4500, "too late");
      broker.send(ping(2));
      await broker.closed;
      broker.send(ping(3));
      broker.close(1000);
      expect(await readAll(runner)).toEqual([ping(1)]);
      expect(await runner.closed).toEqual({ code: 4409, reason: "superseded", by: "remote" });
      expect(broker.bufferedBytes).toBe(0);
      await broker.drained();
    });

    it("ends both sides when both close at once", async () => {
      const { runner, broker } = await pair();
      runner.close(1000);
      broker.close(4501);
      expect((await runner.closed).by).toBe("local");
      expect((await broker.closed).by).toBe("local");
      expect(await readAll(runner)).toEqual([]);
      expect(await readAll(broker)).toEqual([]);
    });

    it("ends the local iteration at its own close, though frames were unread", async () => {
      const { runner, broker } = await pair();
      broker.send(ping(1));
      const frames = runner[Symbol.asyncIterator]();
      await read(frames, 1);
      broker.send(ping(2));
      runner.close(1000);
      expect(await frames.next()).toEqual({ done: true, value: undefined });
    });

    it("reports a connection that breaks as 1006 on both sides, and ends both iterations", async () => {
      const { runner, broker, sever } = await pair();
      runner.send(claim(1));
      const frames = broker[Symbol.asyncIterator]();
      await read(frames, 1);
      sever();
      expect(await runner.closed).toMatchObject({ code: 1006, by: "broken" });
      expect(await broker.closed).toMatchObject({ code: 1006, by: "broken" });
      expect((await frames.next()).done).toBe(true);
      expect(await readAll(runner)).toEqual([]);
      runner.send(claim(2));
    });

    it("takes a frame of exactly the limit and refuses one byte more before sending (R9)", async () => {
      const { runner, broker } = await pair();
      const largest = progressOfSize(FRAME_BYTES_MAX, encoding);
      runner.send(largest);
      expect(() => runner.send(progressOfSize(FRAME_BYTES_MAX + 1, encoding))).toThrow(FrameTooLargeError);
      runner.send(claim(1));
      expect(await read(broker[Symbol.asyncIterator](), 2)).toEqual([largest, claim(1)]);
    });

    it("delivers a frame without a known kind as such, so that the session can refuse it by type", async () => {
      const { runner, broker } = await pair();
      runner.send({ frame: undefined });
      expect(await read(broker[Symbol.asyncIterator](), 1)).toEqual([{ frame: undefined }]);
    });

    it("slows the sender instead of filling the memory of a slow reader, and loses nothing", async () => {
      const { runner, broker } = await pair({ inboundHighBytes: 65_536, outboundMaxBytes: Number.POSITIVE_INFINITY });
      const text = "y".repeat(100_000);
      let sent = 0;
      const stalled = Symbol("stalled");
      // Sockets buffer some megabytes on the way; the reader's pause must then be felt here.
      while (sent < 1_000) {
        runner.send(progress(text));
        sent += 1;
        const pause = new Promise<symbol>((resolve) => setTimeout(resolve, 300, stalled));
        if (runner.bufferedBytes > 1_000_000 && (await Promise.race([runner.drained(), pause])) === stalled) break;
      }
      expect(sent).toBeLessThan(1_000);
      const drained = runner.drained();
      expect(await read(broker[Symbol.asyncIterator](), sent)).toEqual(Array.from({ length: sent }, () => progress(text)));
      await drained;
      expect(runner.bufferedBytes).toBeLessThanOrEqual(65_536);
    });

    it("closes a peer that does not read with 4502 and gives its memory back within the close time-out (A7)", async () => {
      const { runner, broker } = await pair({ inboundHighBytes: 65_536, outboundMaxBytes: 2_000_000, closeTimeoutMs: 200 });
      const text = "z".repeat(500_000);
      // The runner never reads; frames leave in turns so that each transport gets to write.
      for (let count = 0; count < 400 && (await isOpen(broker)); count += 1) {
        broker.send(BrokerFrame.create({ frame: { $case: "drain", value: { reason: text } } }));
      }
      expect(await broker.closed).toMatchObject({ code: 4502, by: "local" });
      expect(broker.bufferedBytes).toBe(0);
      runner.close(1000);
    });

    it("goes on noticing the close after its reader left the loop", async () => {
      const { runner, broker } = await pair({ inboundHighBytes: 1_024 });
      runner.send(claim(1));
      for await (const _ of broker) break;
      for (let count = 0; count < 100; count += 1) runner.send(progress("w".repeat(1_000)));
      runner.close(1000, "done");
      expect((await broker.closed).by).toBe("remote");
    });

    it("lets one loop read, and refuses a second", async () => {
      const { broker } = await pair();
      broker[Symbol.asyncIterator]();
      expect(() => broker[Symbol.asyncIterator]()).toThrow(TypeError);
    });
  });
}

async function isOpen(channel: FrameChannel<unknown, never>): Promise<boolean> {
  const turn = new Promise<boolean>((resolve) => setImmediate(resolve, true));
  return Promise.race([channel.closed.then(() => false), turn]);
}
