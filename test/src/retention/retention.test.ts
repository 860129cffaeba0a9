/** Calls that retention removes, from the outside: over HTTP, on each ledger that outlives its broker. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Broker, createBroker, SCOPES, type StoreOptions } from "@toolrunner/broker";
import { createRunner, defineTool } from "@toolrunner/runner-sdk";
import { memoryTransport } from "@toolrunner/runner-sdk/testing";
import { afterEach, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { startNatsServer } from "../kit/nats-server.js";

const KEY = "retention-agent-key-0123456789";
const TOKEN = "retention-runner-key-0123456789";
const RETENTION_MS = 1_500;
const BIG = "x".repeat(400_000);

const undo: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function start(store: StoreOptions, retentionMs: number | "never" = RETENTION_MS): Promise<Broker> {
  const broker = await createBroker({
    mode: "dev",
    store,
    http: { host: "127.0.0.1", port: 0 },
    grpc: null,
    staticKeys: [
      { kind: "agent", id: "key_agent", key: KEY, application: "default", scopes: SCOPES },
      { kind: "runner", id: "key_runner", key: TOKEN, application: "default", binding: "*", mayNameSubject: true },
    ],
    figures: { retentionSweepMs: 100, retentionPaceMs: 1, settledMemoryMs: 200 },
    retentionMs,
  });
  undo.push(() => broker.stop({ drainMs: 0 }));
  return broker;
}

interface Answer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>> & { readonly data?: readonly { readonly id: string }[] };
}

async function http(broker: Broker, method: string, path: string, body?: unknown): Promise<Answer> {
  const headers = { authorization: `Bearer ${KEY}`, ...(body === undefined ? {} : { "content-type": "application/json" }) };
  const response = await fetch(`${broker.addresses.http}${path}`, {
    method,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Answer["body"] };
}

/** A runner whose tools count how often they ran. Its journal is its own. */
async function serve(broker: Broker): Promise<{ readonly runs: () => number; stop(): Promise<void> }> {
  let runs = 0;
  const count =
    <T>(value: T) =>
    () => {
      runs += 1;
      return Promise.resolve(value);
    };
  const input = { type: "object" } as const;
  const runner = createRunner({
    binding: "work",
    token: TOKEN,
    transport: memoryTransport((channel) => broker.serveRunner(channel)),
    tools: [
      defineTool({ name: "small", description: "A small result.", input, run: count({ done: true }) }),
      defineTool({ name: "big", description: "A large result.", input, run: count(BIG) }),
    ],
  });
  undo.push(() => runner.stop());
  await runner.start();
  await eventually("the tools", async () => (await http(broker, "GET", "/v1/toolsets/work")).status === 200);
  return { runs: () => runs, stop: () => runner.stop() };
}

const call = (broker: Broker, tool: string, key: string): Promise<Answer> =>
  http(broker, "POST", "/v1/calls", { toolset: "work", tool, arguments: {}, idempotency_key: key, wait_seconds: 10 });

const STORES: readonly { readonly name: string; readonly make: () => Promise<StoreOptions> }[] = [
  {
    name: "sqlite",
    make: async () => {
      const dataDir = await mkdtemp(join(tmpdir(), "toolrunner-retention-"));
      undo.push(() => rm(dataDir, { recursive: true, force: true }));
      return { kind: "sqlite", dataDir };
    },
  },
  {
    name: "jetstream",
    make: async () => {
      const nats = await startNatsServer({ version: "2.10" });
      undo.push(() => nats.dispose());
      return { kind: "nats", url: nats.url };
    },
  },
];

for (const { name, make } of STORES) {
  describe(`retention on ${name}`, () => {
    it("X12, L6: a call is there for its time, then gone with its result and its key, and listings never show it", async () => {
      const broker = await start(await make());
      const { runs, stop } = await serve(broker);
      const settledAt = performance.now();
      const made = await call(broker, "big", "key-1");
      expect(made).toMatchObject({ status: 200, body: { state: "succeeded", result_ref: `/v1/calls/${String(made.body["id"])}/result` } });
      const id = String(made.body["id"]);
      const small = String((await call(broker, "small", "key-2")).body["id"]);
      expect((await call(broker, "big", "key-1")).body["id"]).toBe(id);
      expect(runs()).toBe(2);
      const seen = new Set<number>();
      await eventually("the call to go", async () => {
        const listed = await http(broker, "GET", "/v1/calls");
        const { status } = await http(broker, "GET", `/v1/calls/${id}`);
        seen.add(status);
        // Asked for after the listing: what is gone by then may have been in it, what was in none before may not.
        if (status !== 200) expect((await http(broker, "GET", "/v1/calls")).body.data?.map((each) => each.id)).not.toContain(id);
        else expect(listed.status).toBe(200);
        return status === 404;
      });
      expect(performance.now() - settledAt).toBeGreaterThan(RETENTION_MS);
      expect([...seen].filter((status) => ![200, 404, 410].includes(status))).toEqual([]);
      expect((await http(broker, "GET", `/v1/calls/${id}/result`)).status).toBe(404);
      await eventually("the small one to go", async () => (await http(broker, "GET", `/v1/calls/${small}`)).status === 404);
      expect((await http(broker, "GET", "/v1/calls")).body).toMatchObject({ data: [], next_page: null });

      // The first runner remembers for a day what it ran, and would answer from its journal.
      await stop();
      const other = await serve(broker);
      const again = await call(broker, "big", "key-1");
      expect(again).toMatchObject({ status: 200, body: { id, state: "succeeded", attempt: 1 } });
      expect([runs(), other.runs()]).toEqual([2, 1]);
      const page = await http(broker, "GET", `/v1/calls/${id}/result?max_bytes=1000`);
      expect([page.status, String(page.body["text"]).length]).toEqual([200, 1_000]);
      expect((await http(broker, "GET", "/v1/calls")).body.data?.map((each) => each.id)).toEqual([id]);
    }, 60_000);

    it("L6: what a broker that was stopped left is removed after a start, and an open call is still driven", async () => {
      const store = await make();
      const before = await start(store, "never");
      await serve(before);
      const ids: string[] = [];
      for (let number = 0; number < 20; number += 1) ids.push(String((await call(before, "small", `key-${number}`)).body["id"]));
      const tools = (await http(before, "GET", "/v1/toolsets/work")).body["tools"] as readonly Readonly<Record<string, unknown>>[];
      const asked = { ...tools[0], name: "asked", confirmation: "always" };
      expect((await http(before, "PUT", "/v1/toolsets/held", { base_version: 0, tools: [asked] })).status).toBe(201);
      const open = await http(before, "POST", "/v1/calls", { toolset: "held", tool: "asked", arguments: {} });
      expect(open).toMatchObject({ status: 202, body: { state: "awaiting_confirmation" } });
      await before.stop({ drainMs: 0 });

      const after = await start(store);
      await eventually("all to go", async () => {
        const statuses = await Promise.all(ids.map(async (id) => (await http(after, "GET", `/v1/calls/${id}`)).status));
        return statuses.every((status) => status === 404);
      });
      expect((await http(after, "GET", "/v1/calls")).body.data?.map((each) => each.id)).toEqual([open.body["id"]]);
      const denied = await http(after, "POST", `/v1/calls/${String(open.body["id"])}/confirmation`, { decision: "deny" });
      expect(denied).toMatchObject({ status: 200, body: { state: "denied" } });
    }, 60_000);
  });
}
