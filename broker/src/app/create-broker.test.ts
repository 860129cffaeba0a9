import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { BrokerOptions } from "./broker-options.js";
import { createBroker } from "./create-broker.js";

const undo: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) {
    await step();
  }
});

const ANY = { host: "127.0.0.1", port: 0 };

function options(overrides: Partial<BrokerOptions> = {}): BrokerOptions {
  return {
    mode: "dev",
    store: { kind: "memory" },
    http: ANY,
    grpc: ANY,
    staticKeys: [
      { kind: "agent", id: "agent", key: "agent-key-of-this-test", application: "default", scopes: ["calls:write", "calls:read"] },
    ],
    ...overrides,
  };
}

async function takenPort(): Promise<number> {
  const server: Server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  undo.push(() => new Promise((resolve) => server.close(resolve)));
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

describe("a broker that cannot start", () => {
  it("leaves nothing behind: its data can be opened again at once", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "toolrunner-"));
    undo.push(() => rm(dataDir, { recursive: true, force: true }));
    const store = { kind: "sqlite", dataDir } as const;
    const port = await takenPort();
    for (const wrong of [{ http: { host: "127.0.0.1", port } }, { grpc: { host: "127.0.0.1", port } }]) {
      await expect(createBroker(options({ store, ...wrong }))).rejects.toMatchObject({ code: "port_in_use" });
    }
    const broker = await createBroker(options({ store }));
    await broker.stop({ drainMs: 0 });
  });
});

describe("how long a broker keeps settled calls (X12)", () => {
  it("is 1,000 ms to ten years, or for ever; anything else is refused with the limits", async () => {
    for (const retentionMs of [0, 999, -1, Number.NaN, Number.POSITIVE_INFINITY, 315_360_000_001]) {
      const refused = expect(createBroker(options({ retentionMs }))).rejects;
      await refused.toMatchObject({ code: "option_invalid", message: expect.stringMatching(/1000 to 315360000000 ms, or "never"/) });
    }
    for (const retentionMs of [1_000, 315_360_000_000, "never", undefined] as const) {
      await (await createBroker(options({ retentionMs }))).stop({ drainMs: 0 });
    }
  });
});

describe("a broker that stops", () => {
  it("is over two seconds after its drain, whatever its clients are in the middle of", async () => {
    const broker = await createBroker(options());
    const { hostname, port } = new URL(broker.addresses.http);
    // Half a request, an idle connection, and one that waits for a call.
    const half = connect(Number(port), hostname);
    half.write("POST /v1/calls HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{");
    const idle = connect(Number(port), hostname);
    undo.push(
      () => half.destroy(),
      () => idle.destroy(),
    );
    half.on("error", () => undefined);
    idle.on("error", () => undefined);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const startedAt = performance.now();
    await Promise.all([broker.stop({ drainMs: 0 }), broker.stop({ drainMs: 60_000 }), broker.closed]);
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });
});
