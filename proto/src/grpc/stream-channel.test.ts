import { credentials, Metadata, Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import { afterEach, describe, expect, it } from "vitest";
import type { ChannelLimits } from "../channel-core.js";
import type { FrameChannel } from "../frame-channel.js";
import { FRAME_BYTES_MAX } from "../frame-codec.js";
import type { BrokerFrame, RunnerFrame } from "../gen/toolrunner/v1/session.js";
import { describeFrameChannel } from "../testing/frame-channel-suite.js";
import { createGrpcStreamChannel, createRunnerGatewayClient, endServerStream, runnerGatewayService } from "./stream-channel.js";

type SessionStream = ServerDuplexStream<Uint8Array, Uint8Array>;

/** A gateway whose streams the test handles itself. */
async function startGateway(session: (stream: SessionStream) => void) {
  const server = new Server();
  server.addService(runnerGatewayService, { session });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => (error ? reject(error) : resolve(bound)));
  });
  const client = createRunnerGatewayClient(`127.0.0.1:${port}`, credentials.createInsecure());
  return {
    client,
    server,
    stop(): void {
      client.close();
      server.forceShutdown();
    },
  };
}

describeFrameChannel("a gRPC stream", async (limits) => {
  let accepted: (channel: FrameChannel<RunnerFrame, BrokerFrame>) => void;
  const accepting = new Promise<FrameChannel<RunnerFrame, BrokerFrame>>((resolve) => {
    accepted = resolve;
  });
  const gateway = await startGateway((stream) => accepted(createGrpcStreamChannel(stream, { side: "broker", ...limits })));
  const runner = createGrpcStreamChannel(gateway.client.session(new Metadata()), { side: "runner", ...limits });
  const broker = await accepting;
  return { runner, broker, sever: () => gateway.server.forceShutdown(), dispose: async () => gateway.stop() };
});

describe("a gRPC stream channel", () => {
  const stops: (() => void)[] = [];
  afterEach(() => {
    for (const stop of stops.splice(0)) stop();
  });

  async function connect(handle: (stream: SessionStream) => void, limits: ChannelLimits = {}) {
    const gateway = await startGateway(handle);
    stops.push(() => gateway.stop());
    return { gateway, runner: createGrpcStreamChannel(gateway.client.session(), { side: "runner", ...limits }) };
  }

  async function rawStream() {
    let accepted: (channel: FrameChannel<RunnerFrame, BrokerFrame>) => void;
    const accepting = new Promise<FrameChannel<RunnerFrame, BrokerFrame>>((resolve) => {
      accepted = resolve;
    });
    const gateway = await startGateway((stream) => accepted(createGrpcStreamChannel(stream, { side: "broker" })));
    stops.push(() => gateway.stop());
    const stream = gateway.client.session();
    const ended = new Promise<{ code: number; closeCode: string }>((resolve) => {
      stream.on("status", ({ code, metadata }) => resolve({ code, closeCode: String(metadata.get("toolrunner-close-code")[0]) }));
    });
    stream.on("error", () => {});
    stream.resume();
    return { stream, ended, accepting };
  }

  it("closes with 4400 on bytes that are no frame", async () => {
    const { stream, ended, accepting } = await rawStream();
    stream.write(Buffer.from([0x0a, 0xff, 0xff]));
    expect(await ended).toEqual({ code: status.INVALID_ARGUMENT, closeCode: "4400" });
    expect(await (await accepting).closed).toMatchObject({ code: 4400, by: "local" });
  });

  it("closes with 4413 on a frame over 1 MiB", async () => {
    const { stream, ended } = await rawStream();
    stream.write(Buffer.alloc(FRAME_BYTES_MAX + 1));
    expect(await ended).toEqual({ code: status.OUT_OF_RANGE, closeCode: "4413" });
  });

  it("ends a session whose client sends more than gRPC itself takes, and keeps serving others", async () => {
    const { stream, ended, accepting } = await rawStream();
    stream.write(Buffer.alloc(8 * FRAME_BYTES_MAX));
    expect((await ended).code).toBe(status.RESOURCE_EXHAUSTED);
    expect((await (await accepting).closed).by).not.toBe("local");
  });

  it("reports a client that cancels as a broken connection, never as a half-close", async () => {
    let accepted: (channel: FrameChannel<RunnerFrame, BrokerFrame>) => void = () => {};
    const gateway = await startGateway((stream) => accepted(createGrpcStreamChannel(stream, { side: "broker" })));
    stops.push(() => gateway.stop());
    for (let round = 0; round < 100; round += 1) {
      const accepting = new Promise<FrameChannel<RunnerFrame, BrokerFrame>>((resolve) => {
        accepted = resolve;
      });
      const stream = gateway.client.session();
      stream.on("error", () => {});
      stream.write(Buffer.alloc(0));
      const broker = await accepting;
      if (round % 2 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      stream.cancel();
      expect(await broker.closed).toMatchObject({ code: 1006, by: "broken" });
    }
  });

  it("counts a half-close as 1000, and as another code only right after a fault that names it", async () => {
    const { stream, ended, accepting } = await rawStream();
    // protocol_fault { code: "unresponsive" }, then claim {}: the fault is not the last word
    stream.write(Buffer.from("7a0e0a0c756e726573706f6e73697665", "hex"));
    stream.write(Buffer.from("1200", "hex"));
    stream.end();
    const broker = await accepting;
    const kinds: (string | undefined)[] = [];
    for await (const frame of broker) kinds.push(frame.frame?.$case);
    expect(kinds).toEqual(["protocolFault", "claim"]);
    expect(await broker.closed).toMatchObject({ code: 1000, by: "remote" });
    expect(await ended).toEqual({ code: status.OK, closeCode: "1000" });
  });

  it.each([
    [status.UNAUTHENTICATED, 4401, "remote"],
    [status.PERMISSION_DENIED, 4403, "remote"],
    [status.OK, 1000, "remote"],
    [status.UNAVAILABLE, 1006, "broken"],
    [status.RESOURCE_EXHAUSTED, 1006, "broken"],
    [status.UNIMPLEMENTED, 1006, "broken"],
  ])("reads status %i without a trailer, as proxies send it, as close code %i (%s)", async (code, closeCode, by) => {
    const { runner } = await connect((stream) => {
      if (code === status.OK) stream.end();
      else stream.emit("error", { code, details: "from a proxy", message: "from a proxy" });
    });
    expect(await runner.closed).toMatchObject({ code: closeCode, by });
  });

  it("ends as broken where nobody listens", async () => {
    const client = createRunnerGatewayClient("127.0.0.1:1", credentials.createInsecure());
    stops.push(() => client.close());
    const runner = createGrpcStreamChannel(client.session(), { side: "runner" });
    runner.send({ frame: undefined });
    expect(await runner.closed).toMatchObject({ code: 1006, by: "broken" });
  });

  it("closes within its time-out while the server does not answer", async () => {
    const { runner } = await connect(() => {}, { closeTimeoutMs: 50 });
    runner.send({ frame: undefined });
    runner.close(1000);
    expect(await runner.closed).toEqual({ code: 1000, reason: "normal", by: "local" });
  });

  it("carries a close reason with any characters, also halves of one", async () => {
    const { runner } = await connect((stream) => endServerStream(stream, 4401, "übel \n \ud83d\ude00 100%"));
    expect(await runner.closed).toEqual({ code: 4401, reason: "übel \n \ud83d\ude00 100%", by: "remote" });
    const other = await connect((stream) => createGrpcStreamChannel(stream, { side: "broker" }).close(4500, "half \ud83d"));
    expect(await other.runner.closed).toMatchObject({ code: 4500, by: "remote" });
  });
});
