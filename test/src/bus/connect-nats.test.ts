import { connectNats } from "@toolrunner/broker/internal";
import { afterEach, describe, expect, it } from "vitest";
import { freePort, type NatsServer, type NatsServerOptions, startNatsServer } from "../kit/index.js";
import { askJetStream, openBus, quiet } from "./bus-kit.js";

const servers: NatsServer[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.dispose()));
});

async function started(options: NatsServerOptions): Promise<NatsServer> {
  const server = await startNatsServer(options);
  servers.push(server);
  return server;
}

async function refusal(task: Promise<unknown>): Promise<{ code: string; message: string }> {
  const error: unknown = await task.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof Error && "code" in error
    ? { code: String(error.code), message: error.message }
    : { code: "none", message: String(error) };
}

describe("connectNats", () => {
  it("says where no server is, without the credentials in the address", async () => {
    const port = await freePort();
    const { code, message } = await refusal(connectNats({ url: `nats://user:s3cret@127.0.0.1:${port}`, name: "test", log: quiet }));
    expect(code).toBe("unreachable");
    expect(message).toContain(`nats://127.0.0.1:${port}`);
    expect(message).toContain("Start nats-server");
    expect(message).not.toContain("s3cret");
  });

  it("says that the server has no JetStream, and what to start it with", async () => {
    const server = await started({ version: "2.9", jetStream: false });
    const { code, message } = await refusal(connectNats({ url: server.url, name: "test", log: quiet, timeoutMs: 1_000 }));
    expect(code).toBe("unreachable");
    expect(message).toContain("no JetStream");
    expect(message).toContain("-js");
  });

  it.each(["http://127.0.0.1:4222", "nats://", "nats://a b", "ws://x"])("refuses the address %s", async (url) => {
    expect((await refusal(connectNats({ url, name: "test", log: quiet }))).code).toBe("unreachable");
  });

  it("A4: takes user and password from the address or beside it, and a token, and refuses wrong ones at once", async () => {
    const server = await started({ version: "2.10", config: 'authorization { user: u, password: "p:w@/1" }' });
    const at = `127.0.0.1:${server.port}`;
    const good = [
      { url: `nats://u:${encodeURIComponent("p:w@/1")}@${at}` },
      { url: `nats://${at}`, credentials: { kind: "password", user: "u", password: "p:w@/1" } as const },
      { url: at, credentials: { kind: "password", user: "u", password: "p:w@/1" } as const },
    ];
    for (const options of good) {
      const connection = await connectNats({ ...options, name: "test", log: quiet });
      await connection.close();
    }
    const wrong = await refusal(connectNats({ url: `nats://u:wrong@${at}`, name: "test", log: quiet }));
    expect(wrong.code).toBe("unreachable");
    expect(wrong.message).not.toContain("wrong");
    expect((await refusal(connectNats({ url: `nats://${at}`, name: "test", log: quiet }))).code).toBe("unreachable");

    const other = await started({ version: "2.9", config: "authorization { token: t0ken }" });
    const connection = await connectNats({ url: `nats://t0ken@127.0.0.1:${other.port}`, name: "test", log: quiet });
    await connection.close();
  });

  it("connects to the server of several that is there", async () => {
    const server = await started({ version: "2.9" });
    const connection = await connectNats({ url: `nats://127.0.0.1:${await freePort()},${server.url}`, name: "test", log: quiet });
    expect(connection.getServer()).toContain(`${server.port}`);
    await connection.close();
  });
});

describe("createNatsBus", () => {
  it("L1: refuses replicas on a server that loses compare-and-set writes on them", async () => {
    const server = await started({ version: "2.9" });
    const { code, message } = await refusal(openBus(server.url, { replicas: 3 }));
    expect(code).toBe("unsupported_server");
    expect(message).toContain("2.10.27");
    expect((await refusal(openBus(server.url, { replicas: 2 }))).code).toBe("misconfigured");
  });

  it("L7: refuses a server that takes only small messages", async () => {
    const server = await started({ version: "2.10", config: "max_payload: 512KB" });
    const { code, message } = await refusal(openBus(server.url));
    expect(code).toBe("misconfigured");
    expect(message).toContain("max_payload");
  });

  it("L5: refuses a bucket whose settings could lose or age records, naming each", async () => {
    const server = await started({ version: "2.10" });
    const connection = await connectNats({ url: server.url, name: "test", log: quiet });
    await askJetStream(connection, "STREAM.CREATE.KV_tr_brokers", {
      name: "KV_tr_brokers",
      subjects: ["$KV.tr_brokers.>"],
      max_msgs_per_subject: 5,
      max_age: 60_000_000_000,
      allow_direct: true,
      allow_rollup_hdrs: true,
      discard: "new",
      duplicate_window: 60_000_000_000,
    });
    await connection.close();
    const { bus, close } = await openBus(server.url);
    const { code, message } = await refusal(bus.registry("brokers"));
    expect(code).toBe("misconfigured");
    for (const name of ["allow_direct", "max_msgs_per_subject", "max_age"]) expect(message).toContain(name);
    expect((await refusal(bus.registry("sessions"))).code).toBe("none");
    await close();
  });

  it("makes its buckets for leader reads only, in a file, with one message a key", async () => {
    const server = await started({ version: "2.9" });
    const { bus, close } = await openBus(server.url);
    await Promise.all([bus.registry("brokers"), bus.registry("brokers")]);
    await close();
    const connection = await connectNats({ url: server.url, name: "test", log: quiet });
    const { config } = await askJetStream(connection, "STREAM.INFO.KV_tr_brokers", {});
    expect(config).toMatchObject({ max_msgs_per_subject: 1, storage: "file", discard: "new", num_replicas: 1, allow_direct: false });
    await connection.close();
  });
});
