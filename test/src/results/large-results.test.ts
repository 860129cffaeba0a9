/** Results that are too large for one frame (L7, R9), from the outside: over each transport, on each ledger, at the limits. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type AgentClient, createAgentClient } from "@toolrunner/agent-sdk";
import { type Broker, createBroker, SCOPES, type StoreOptions } from "@toolrunner/broker";
import { createRunner, defineTool, type Journal, type Transport } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket, fileJournal } from "@toolrunner/runner-sdk/node";
import { memoryTransport } from "@toolrunner/runner-sdk/testing";
import { afterEach, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { startNatsServer } from "../kit/nats-server.js";
import { startTcpProxy } from "../kit/tcp-proxy.js";

const KEY = "results-agent-key-0123456789";
const TOKEN = "results-runner-key-0123456789";
const LIMIT = 16_777_216;

const undo: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "toolrunner-results-"));
  undo.push(() => rm(made, { recursive: true, force: true }));
  return made;
}

interface Site {
  readonly broker: Broker;
  readonly client: AgentClient;
  readonly events: readonly { readonly event: string; readonly fields: Readonly<Record<string, unknown>> }[];
  call(tool: string, size: number): Promise<Awaited<ReturnType<AgentClient["call"]>>>;
  /** All of a result, page by page. */
  read(id: string): Promise<string>;
}

async function start(store: StoreOptions, maxResultBytes?: number): Promise<Site> {
  const events: { event: string; fields: Readonly<Record<string, unknown>> }[] = [];
  const note = (event: string, fields = {}): void => void events.push({ event, fields });
  const broker = await createBroker({
    mode: "dev",
    store,
    http: { host: "127.0.0.1", port: 0 },
    grpc: { host: "127.0.0.1", port: 0 },
    staticKeys: [
      { kind: "agent", id: "key_agent", key: KEY, application: "default", scopes: SCOPES },
      { kind: "runner", id: "key_runner", key: TOKEN, application: "default", binding: "*", mayNameSubject: true },
    ],
    log: { debug: note, info: note, warn: note, error: note },
    ...(maxResultBytes === undefined ? {} : { maxResultBytes }),
  });
  undo.push(() => broker.stop({ drainMs: 0 }));
  const client = createAgentClient({ url: broker.addresses.http, key: KEY });
  return {
    broker,
    client,
    events,
    call: (tool, size) => client.call({ toolset: "work", tool, arguments: { size } }),
    async read(id) {
      const parts: string[] = [];
      for (let offset = 0; ; ) {
        const response = await fetch(`${broker.addresses.http}/v1/calls/${id}/result?offset=${offset}&max_bytes=262144`, {
          headers: { authorization: `Bearer ${KEY}` },
        });
        expect(response.status).toBe(200);
        const page = (await response.json()) as { readonly text: string; readonly next_offset: number; readonly eof: boolean };
        parts.push(page.text);
        if (page.eof) return parts.join("");
        offset = page.next_offset;
      }
    },
  };
}

/** A text whose JSON has `size` bytes. */
const ascii = (size: number): string => "x".repeat(size - 2);
/** The same with characters of two, three and four bytes, and escapes. */
function mixed(size: number): string {
  const unit = 'é字💩"\\\n';
  const bytes = Buffer.byteLength(JSON.stringify(unit)) - 2;
  const count = Math.floor((size - 2) / bytes);
  return unit.repeat(count) + "x".repeat(size - 2 - count * bytes);
}

async function serve(site: Site, transport: Transport, journal?: Journal) {
  const runs = { count: 0 };
  const input = { type: "object", properties: { size: { type: "integer" } }, required: ["size"] } as const;
  const tool = (name: string, make: (size: number) => string) =>
    defineTool({
      name,
      description: "A result of a given size.",
      input,
      run(args) {
        runs.count += 1;
        return make((args as { readonly size: number }).size);
      },
    });
  const events: string[] = [];
  const runner = createRunner({
    binding: "work",
    token: TOKEN,
    transport,
    tools: [tool("ascii", ascii), tool("mixed", mixed)],
    log: (event) => void events.push(event),
    ...(journal === undefined ? {} : { journal }),
  });
  undo.push(() => runner.stop());
  await runner.start();
  await eventually(
    "the tools",
    async () =>
      (await fetch(`${site.broker.addresses.http}/v1/toolsets/work`, { headers: { authorization: `Bearer ${KEY}` } })).status === 200,
  );
  return { runner, runs, events };
}

const TRANSPORTS: readonly { readonly name: string; readonly make: (site: Site) => Transport }[] = [
  { name: "memory", make: ({ broker }) => memoryTransport((channel) => broker.serveRunner(channel)) },
  { name: "websocket, binary", make: ({ broker }) => connectWebSocket(broker.addresses.ws) },
  { name: "websocket, JSON", make: ({ broker }) => connectWebSocket(broker.addresses.ws, { encoding: "json" }) },
  { name: "gRPC", make: ({ broker }) => connectGrpc(broker.addresses.grpc ?? "") },
];

describe.each(TRANSPORTS)("a large result over $name", ({ make }) => {
  it("L7, R9: arrives whole, in one frame or in chunks, and over the limit fails with a typed error", async () => {
    const site = await start({ kind: "sqlite", dataDir: await folder() });
    const { runs } = await serve(site, make(site));
    for (const [tool, size, text] of [
      ["ascii", 983_040, ascii(983_040)],
      ["ascii", 983_041, ascii(983_041)],
      ["mixed", 1_500_000, mixed(1_500_000)],
    ] as const) {
      const call = await site.call(tool, size);
      expect(call, `${tool} ${size}`).toMatchObject({ state: "succeeded", attempt: 1, result_ref: `/v1/calls/${call.id}/result` });
      expect(call.model_result).toMatchObject({ bytes_before: size, truncated: true });
      expect(Buffer.byteLength(call.model_result?.text ?? "")).toBeLessThanOrEqual(16_384);
      expect((await site.read(call.id)) === JSON.stringify(text), `${tool} ${size}`).toBe(true);
    }
    const over = await site.call("ascii", LIMIT + 1);
    expect(over).toMatchObject({ state: "failed", attempt: 1, error: { code: "result_too_large", retryable: false } });
    expect(over.error?.message).toContain(`"ascii" returned ${LIMIT + 1} bytes, over the limit of ${LIMIT} bytes`);
    expect(runs.count).toBe(4);
  }, 60_000);
});

describe("a large result", () => {
  it("L7: of 16 MiB, the limit, is stored on JetStream in messages that fit, and read back", async () => {
    const nats = await startNatsServer({ version: "2.10" });
    undo.push(() => nats.dispose());
    const site = await start({ kind: "nats", url: nats.url });
    await serve(site, connectWebSocket(site.broker.addresses.ws));
    const call = await site.call("mixed", LIMIT);
    expect(call.state).toBe("succeeded");
    expect((await site.read(call.id)) === JSON.stringify(mixed(LIMIT))).toBe(true);
  }, 60_000);

  it("I7, R2: is sent again, whole, when its connection breaks in the middle, and its handler runs once", async () => {
    const site = await start({ kind: "memory" });
    const proxy = await startTcpProxy(Number(new URL(site.broker.addresses.ws).port));
    undo.push(() => proxy.close());
    const url = new URL(site.broker.addresses.ws);
    url.port = String(proxy.port);
    const { runs, events } = await serve(site, connectWebSocket(url.href), fileJournal(join(await folder(), "journal")));
    const calling = site.call("ascii", LIMIT);
    // Between two chunks, in the middle of one, and just before the end.
    for (const bytes of [500_000, 3_000_000, LIMIT - 100_000]) await proxy.cutAfter(bytes);
    const call = await calling;
    expect(events.filter((event) => event === "session_welcomed")).toHaveLength(4);
    expect(call).toMatchObject({ state: "succeeded", attempt: 1 });
    expect(runs.count).toBe(1);
    expect((await site.read(call.id)).length).toBe(LIMIT);
  }, 60_000);

  it("R9: has the limit that the broker was given", async () => {
    const site = await start({ kind: "memory" }, 100_000);
    await serve(
      site,
      memoryTransport((channel) => site.broker.serveRunner(channel)),
    );
    expect((await site.call("ascii", 100_000)).state).toBe("succeeded");
    expect(await site.call("ascii", 100_001)).toMatchObject({ state: "failed", error: { code: "result_too_large" } });
  });
});
