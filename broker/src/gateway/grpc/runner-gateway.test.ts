import { credentials, Metadata, Server, ServerCredentials, type StatusObject, status } from "@grpc/grpc-js";
import type { BrokerFrame, FrameChannel, RunnerFrame } from "@toolrunner/proto";
import { createGrpcStreamChannel, createRunnerGatewayClient, runnerGatewayService } from "@toolrunner/proto/services";
import { describeFrameChannel } from "@toolrunner/proto/testing";
import { afterEach, describe, expect, it } from "vitest";
import type { Authenticator, RunnerPrincipal } from "../../domain/ports/access.js";
import { LedgerError } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import type { RunnerConnection } from "../../wire/operations.js";
import { createRunnerGateway, type RunnerGatewayOptions } from "./runner-gateway.js";

interface Served {
  readonly channel: FrameChannel<RunnerFrame, BrokerFrame>;
  readonly connection: RunnerConnection;
}

const PRINCIPAL: RunnerPrincipal = { kind: "runner", keyId: "key_1", application: "default", binding: "shop", mayNameSubject: false };
const authenticator: Authenticator = {
  agent: () => Promise.resolve(undefined),
  runner: (credential) => Promise.resolve(credential === "good" ? PRINCIPAL : undefined),
};

const stops: (() => void)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

async function startGateway(options: Partial<RunnerGatewayOptions> = {}) {
  const waiting: ((served: Served) => void)[] = [];
  const lines: string[] = [];
  const note = (event: string, fields?: object): void => {
    lines.push(`${event} ${JSON.stringify(fields ?? {})}`);
  };
  const log: Log = { debug: note, info: note, warn: note, error: note };
  const gateway = createRunnerGateway({
    sessions: {
      async serve(channel, connection) {
        waiting.shift()?.({ channel, connection });
        await channel.closed;
      },
    },
    authenticator,
    log,
    ...options,
  });
  const server = new Server();
  server.addService(runnerGatewayService, gateway.handlers);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => (error ? reject(error) : resolve(bound)));
  });
  const client = createRunnerGatewayClient(`127.0.0.1:${port}`, credentials.createInsecure());
  const dispose = (): void => {
    client.close();
    server.forceShutdown();
  };
  stops.push(dispose);
  return { gateway, server, client, lines, dispose, next: (): Promise<Served> => new Promise((resolve) => waiting.push(resolve)) };
}

const withKey = (value: string): Metadata => {
  const metadata = new Metadata();
  metadata.set("authorization", value);
  return metadata;
};

/** The status that a stream with these keys ends with. */
async function statusOf(started: Awaited<ReturnType<typeof startGateway>>, metadata: Metadata): Promise<StatusObject> {
  const stream = started.client.session(metadata);
  stream.on("error", () => {});
  stream.resume();
  return new Promise((resolve) => stream.once("status", resolve));
}

describeFrameChannel("the gRPC gateway", async (limits) => {
  const started = await startGateway({ limits });
  const accepted = started.next();
  const runner = createGrpcStreamChannel(started.client.session(withKey("Bearer good")), { side: "runner", ...limits });
  const { channel } = await accepted;
  return { runner, broker: channel, sever: () => started.server.forceShutdown(), dispose: async () => started.dispose() };
});

describe("gRPC runner gateway", () => {
  it("lets a runner with a valid key in, and one without: its credential comes in the hello", async () => {
    const started = await startGateway();
    for (const [metadata, principal] of [
      [withKey("Bearer good"), PRINCIPAL],
      [new Metadata(), undefined],
    ] as const) {
      const accepted = started.next();
      started.client.session(metadata).on("error", () => {});
      expect((await accepted).connection).toEqual({ principal, origin: undefined, remoteAddress: "127.0.0.1" });
    }
  });

  // A client of grpc-js cannot send two values: other clients' are joined on the way.
  it.each(["Bearer wrong", "Bearer", "Basic Z29vZA==", "Bearer good,Bearer good"])(
    "ends a stream with %j as UNAUTHENTICATED, close code 4401, before a session",
    async (value) => {
      const started = await startGateway({ sessions: { serve: () => Promise.reject(new Error("must not be reached")) } });
      const { code, metadata, details } = await statusOf(started, withKey(value));
      expect(code).toBe(status.UNAUTHENTICATED);
      expect(metadata.get("toolrunner-close-code")).toEqual(["4401"]);
      expect(details + started.lines.join()).not.toContain("wrong");
      expect(started.lines.join()).not.toContain("runner_session_failed");
    },
  );

  it.each([
    [new Error("the store at /var/secret is gone"), status.INTERNAL, "4500"],
    [new LedgerError("unreachable", "no answer from /var/secret"), status.UNAVAILABLE, "4503"],
    [new LedgerError("closed", "/var/secret"), status.UNAVAILABLE, "4501"],
  ])("ends a stream whose key cannot be checked (%s) so that the runner dials again", async (error, code, closeCode) => {
    const started = await startGateway({ authenticator: { ...authenticator, runner: () => Promise.reject(error) } });
    const ended = await statusOf(started, withKey("Bearer good"));
    expect(ended.code).toBe(code);
    expect(ended.metadata.get("toolrunner-close-code")).toEqual([closeCode]);
    expect(ended.details).not.toContain("secret");
  });

  it("loses no frame that came while the key was checked", async () => {
    let release: (principal: RunnerPrincipal) => void = () => {};
    const started = await startGateway({
      authenticator: { ...authenticator, runner: () => new Promise((resolve) => (release = resolve)) },
    });
    const accepted = started.next();
    const runner = createGrpcStreamChannel(started.client.session(withKey("Bearer good")), { side: "runner" });
    for (const slots of [1, 2, 3]) runner.send({ frame: { $case: "claim", value: { slots } } });
    await new Promise((resolve) => setTimeout(resolve, 50));
    release(PRINCIPAL);
    const { channel } = await accepted;
    const slots: number[] = [];
    for await (const { frame } of channel) {
      if (frame?.$case === "claim") slots.push(frame.value.slots);
      if (slots.length === 3) break;
    }
    expect(slots).toEqual([1, 2, 3]);
  });

  it("starts no session for a runner that left while its key was checked", async () => {
    let release: (principal: RunnerPrincipal) => void = () => {};
    let sessions = 0;
    let asked: () => void = () => {};
    const asking = new Promise<void>((resolve) => {
      asked = resolve;
    });
    const started = await startGateway({
      authenticator: {
        ...authenticator,
        runner: () =>
          new Promise((resolve) => {
            release = resolve;
            asked();
          }),
      },
      sessions: {
        async serve(channel) {
          sessions += 1;
          await channel.closed;
        },
      },
    });
    const stream = started.client.session(withKey("Bearer good"));
    stream.on("error", () => {});
    await asking;
    stream.cancel();
    await new Promise((resolve) => setTimeout(resolve, 50));
    release(PRINCIPAL);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(sessions).toBe(0);
  });

  it("closes with 4500 when the session logic fails, and goes on serving others", async () => {
    const started = await startGateway({ sessions: { serve: () => Promise.reject(new Error("a mistake")) } });
    for (let round = 0; round < 2; round += 1) {
      const ended = await statusOf(started, new Metadata());
      expect(ended.metadata.get("toolrunner-close-code")).toEqual(["4500"]);
    }
    expect(started.lines.join()).toContain("runner_session_failed");
  });

  it("lets sessions end by themselves, closes the others with 4501 when the time is up, and takes no more", async () => {
    const started = await startGateway();
    const channels: { readonly runner: FrameChannel<BrokerFrame, RunnerFrame>; readonly broker: Served["channel"] }[] = [];
    for (let count = 0; count < 2; count += 1) {
      const accepted = started.next();
      const runner = createGrpcStreamChannel(started.client.session(), { side: "runner" });
      channels.push({ runner, broker: (await accepted).channel });
    }
    const stopped = started.gateway.stop({ drainMs: 100 });
    channels[0]?.broker.close(1000);
    expect(await channels[0]?.runner.closed).toMatchObject({ code: 1000, by: "remote" });
    expect(await channels[1]?.runner.closed).toMatchObject({ code: 4501, by: "remote" });
    await stopped;
    const late = await statusOf(started, new Metadata());
    expect(late.metadata.get("toolrunner-close-code")).toEqual(["4501"]);
    await started.gateway.stop({ drainMs: 60_000 });
  });
});
