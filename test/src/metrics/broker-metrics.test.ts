import { type AgentClient, createAgentClient } from "@toolrunner/agent-sdk";
import { connectGrpc as connectAgentGrpc } from "@toolrunner/agent-sdk/grpc";
import { type Broker, createBroker, SCOPES } from "@toolrunner/broker";
import { createRunner, defineTool, type Transport } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket } from "@toolrunner/runner-sdk/node";
import { afterEach, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { scrape } from "./scrape.js";

const AGENT_KEY = "metrics-agent-key-0123456789abcdef";
const RUNNER_KEY = "metrics-runner-key-0123456789abcdef";

const undo: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function startBroker(): Promise<Broker> {
  const broker = await createBroker({
    mode: "dev",
    store: { kind: "memory" },
    http: { host: "127.0.0.1", port: 0 },
    grpc: { host: "127.0.0.1", port: 0 },
    staticKeys: [
      { kind: "agent", id: "key_agent", key: AGENT_KEY, application: "default", scopes: SCOPES },
      { kind: "runner", id: "key_runner", key: RUNNER_KEY, application: "default", binding: "*", mayNameSubject: true },
    ],
    version: "9.8.7",
  });
  undo.push(() => broker.stop({ drainMs: 0 }));
  return broker;
}

/** Answers what it was given; fails when told to. */
const echo = defineTool({
  name: "echo",
  description: "Answers its arguments.",
  input: { type: "object" },
  idempotent: true,
  cancellable: true,
  async run(args: { readonly fail?: boolean }) {
    if (args.fail === true) throw new Error("told to");
    return { ...args };
  },
});

async function startRunner(transport: Transport, binding: string): Promise<{ stop(): Promise<unknown> }> {
  const runner = createRunner({ transport, token: RUNNER_KEY, binding, tools: [echo], concurrency: 16 });
  undo.push(() => runner.stop());
  await runner.start();
  return runner;
}

function clientOf(broker: Broker, over: "http" | "grpc"): AgentClient {
  const client =
    over === "http"
      ? createAgentClient({ url: broker.addresses.http, key: AGENT_KEY })
      : createAgentClient({ transport: connectAgentGrpc(String(broker.addresses.grpc)), key: AGENT_KEY });
  undo.push(() => client.close());
  return client;
}

describe("the metrics of a running broker (D5)", () => {
  it("add up over calls of both gateways and runners of both transports", async () => {
    const broker = await startBroker();
    await startRunner(connectWebSocket(broker.addresses.ws), "web");
    const leaving = await startRunner(connectGrpc(String(broker.addresses.grpc)), "rpc");
    const [http, grpc] = [clientOf(broker, "http"), clientOf(broker, "grpc")];
    const calls = Array.from({ length: 200 }, (_, index) => ({
      toolset: index % 2 === 0 ? "web" : "rpc",
      tool: "echo",
      arguments: { index, ...(index % 10 === 0 ? { fail: true } : {}) },
    }));
    const made = await Promise.all(calls.map((call, index) => (index < 100 ? http : grpc).call(call)));
    const states = made.map(({ state }) => state);
    expect([states.filter((state) => state === "succeeded").length, states.filter((state) => state === "failed").length]).toEqual([
      180, 20,
    ]);
    // Nobody waits for this one.
    await http.start({ toolset: "web", tool: "echo", arguments: {} });
    await expect(http.start({ toolset: "nowhere", tool: "echo", arguments: {} })).rejects.toMatchObject({ code: "toolset_unknown" });

    const shown = await eventually("all calls to be settled", async () => {
      const found = await scrape(broker.addresses.http, AGENT_KEY);
      return found.sum("toolrunner_calls_open") === 0 && found;
    });
    const of = (name: string, labels = {}) => shown.sum(`toolrunner_${name}`, labels);
    expect(of("calls_accepted_total")).toBe(201);
    expect(of("calls_settled_total")).toBe(201);
    expect(of("calls_settled_total", { toolset: "web", tool: "echo", state: "failed" })).toBe(20);
    expect(of("call_errors_total", { code: "handler_error" })).toBe(20);
    for (const part of ["wait", "run", "total"]) expect([part, of(`call_${part}_seconds_count`)]).toEqual([part, 201]);
    expect(of("call_total_seconds_sum")).toBeGreaterThanOrEqual(of("call_run_seconds_sum"));
    expect(of("attempts_total")).toBe(201);
    expect(of("sessions", { transport: "websocket_binary", binding_kind: "backend" })).toBe(1);
    expect(of("sessions", { transport: "grpc", binding_kind: "backend" })).toBe(1);
    expect(of("runner_slots", { use: "free" })).toBe(32);
    expect(of("frames_received_total", { kind: "receipt", transport: "grpc" })).toBe(100);
    expect(of("frames_sent_total", { kind: "grant" })).toBe(201);
    expect(of("http_requests_total", { method: "POST", route: "/v1/calls" })).toBe(102);
    expect(of("http_request_seconds_count", { route: "/v1/calls" })).toBe(102);
    expect(of("grpc_requests_total", { status: "OK" })).toBeGreaterThanOrEqual(100);
    expect(of("requests_refused_total", { interface: "http", code: "toolset_unknown" })).toBe(1);
    expect(of("ledger_append_seconds_count", { outcome: "stored" })).toBeGreaterThanOrEqual(402);
    expect(of("broker_info", { version: "9.8.7", ledger: "memory" })).toBe(1);
    expect([of("brokers"), of("ledger_away"), of("ledger_appends_pending")]).toEqual([1, 0, 0]);

    await leaving.stop();
    await eventually(
      "the session's end",
      async () => (await scrape(broker.addresses.http, AGENT_KEY)).sum("toolrunner_sessions_closed_total", { transport: "grpc" }) === 1,
    );
  });

  it("count what is refused, by its code, at each door", async () => {
    const broker = await startBroker();
    const client = clientOf(broker, "grpc");
    await expect(client.start({ toolset: "nowhere", tool: "echo", arguments: {} })).rejects.toMatchObject({ code: "toolset_unknown" });
    for (const transport of [connectWebSocket(broker.addresses.ws), connectGrpc(String(broker.addresses.grpc))]) {
      const runner = createRunner({ transport, token: "a-key-that-nobody-made-0123456789", binding: "web", tools: [echo] });
      undo.push(() => runner.stop());
      await expect(runner.start()).rejects.toThrow();
    }
    const wrong = await fetch(`${broker.addresses.http}/metrics`, { headers: { authorization: "Bearer wrong" } });
    expect(wrong.status).toBe(401);
    const shown = await scrape(broker.addresses.http, AGENT_KEY);
    expect(shown.sum("toolrunner_requests_refused_total", { interface: "grpc", code: "toolset_unknown" })).toBe(1);
    expect(shown.sum("toolrunner_grpc_requests_total", { status: "NOT_FOUND" })).toBe(1);
    expect(shown.sum("toolrunner_sessions_refused_total", { code: "key_invalid" })).toBe(2);
    expect(shown.sum("toolrunner_requests_refused_total", { interface: "http", code: "key_invalid" })).toBe(1);
    expect(shown.sum("toolrunner_http_requests_total", { route: "/metrics", status: "401" })).toBe(1);
    expect(shown.sum("toolrunner_sessions")).toBe(0);
  });

  it("are whole at every moment while calls run", async () => {
    const broker = await startBroker();
    await startRunner(connectWebSocket(broker.addresses.ws), "web");
    const client = clientOf(broker, "http");
    await client.call({ toolset: "web", tool: "echo", arguments: {} });
    let running = true;
    const work = Promise.all(
      Array.from({ length: 8 }, async () => {
        while (running) await client.call({ toolset: "web", tool: "echo", arguments: {} });
      }),
    );
    let before = 0;
    for (let scrapes = 0; scrapes < 10; scrapes += 1) {
      const [one, two] = await Promise.all([scrape(broker.addresses.http, AGENT_KEY), scrape(broker.addresses.http, AGENT_KEY)]);
      for (const shown of [one, two]) {
        const now = shown.sum("toolrunner_calls_settled_total");
        expect(now).toBeGreaterThanOrEqual(before);
        before = now;
      }
    }
    running = false;
    await work;
    const shown = await scrape(broker.addresses.http, AGENT_KEY);
    expect(shown.sum("toolrunner_calls_accepted_total")).toBe(
      shown.sum("toolrunner_calls_settled_total") + shown.sum("toolrunner_calls_open"),
    );
    expect(before).toBeGreaterThan(0);
  });

  it("are each broker's own in one process, and go on in one when another one stops", async () => {
    const [one, two] = [await startBroker(), await startBroker()];
    await startRunner(connectWebSocket(one.addresses.ws), "web");
    await clientOf(one, "http").call({ toolset: "web", tool: "echo", arguments: {} });
    const [first, second] = await Promise.all([one, two].map(({ addresses }) => scrape(addresses.http, AGENT_KEY)));
    expect([first?.sum("toolrunner_calls_settled_total"), second?.sum("toolrunner_calls_settled_total")]).toEqual([1, 0]);
    await one.stop({ drainMs: 0 });
    expect((await scrape(two.addresses.http, AGENT_KEY)).sum("toolrunner_calls_settled_total")).toBe(0);
  });
});
