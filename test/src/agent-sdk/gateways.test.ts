/** The agent SDK against the real gateways, over both transports: what it says of one it says of the other. */

import { type AgentClient, type CallEvent, createAgentClient, ToolRunnerError } from "@toolrunner/agent-sdk";
import { connectGrpc } from "@toolrunner/agent-sdk/grpc";
import { type FakeOperations, FULL_KEY, startTestGateway, startTestGrpc, stopTestGateways, stopTestGrpc } from "@toolrunner/broker/testing";
import { afterEach, describe, expect, it } from "vitest";

interface World {
  readonly client: AgentClient;
  readonly operations: FakeOperations;
  readonly gateway: { beginDrain(): void; close(): Promise<void> };
  clientWith(key: string): AgentClient;
}

const clients: AgentClient[] = [];
afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  await Promise.all([stopTestGateways(), stopTestGrpc()]);
});

async function httpWorld(): Promise<World> {
  const { url, operations, gateway } = await startTestGateway();
  const clientWith = (key: string): AgentClient => kept(createAgentClient({ url, key, retryForMs: 1_500 }));
  return { client: clientWith(FULL_KEY), operations, gateway, clientWith };
}

async function grpcWorld(): Promise<World> {
  const { address, operations, gateway } = await startTestGrpc();
  const clientWith = (key: string): AgentClient =>
    kept(createAgentClient({ key, transport: connectGrpc(`grpc://${address}`), retryForMs: 1_500 }));
  return { client: clientWith(FULL_KEY), operations, gateway, clientWith };
}

function kept(client: AgentClient): AgentClient {
  clients.push(client);
  return client;
}

async function failureOf(promise: Promise<unknown>): Promise<ToolRunnerError> {
  const error: unknown = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (error instanceof ToolRunnerError) return error;
  throw new Error(`not a ToolRunnerError: ${String(error)}`);
}

const refund = { toolset: "shop", tool: "refund", arguments: { order: "A1", nested: [1, null, "ü"] } };

describe.each([
  ["HTTP", httpWorld],
  ["gRPC", grpcWorld],
] as const)("the agent SDK over %s", (_name, start) => {
  it("calls a tool and gets its result", async () => {
    const { client, operations } = await start();
    const calling = client.call({ ...refund, subject: "user_42" });
    await expect.poll(() => operations.openWaits).toBe(1);
    operations.settle("call_0001", { refunded: ["A1"] });
    const call = await calling;
    expect(call).toEqual({
      type: "call",
      id: "call_0001",
      state: "succeeded",
      toolset: "shop",
      toolset_version: 1,
      tool: "refund",
      binding: "shop",
      agent: "key_test",
      subject: "user_42",
      session: null,
      attempt: 0,
      waiting_for: null,
      created_at: expect.any(String),
      deadline_at: expect.any(String),
      settled_at: expect.any(String),
      receipt: { attempt: 1, fence: 7, outcome: "succeeded", runner_id: "run_1", received_at: expect.any(String), digest: "sha256:00" },
      result: { refunded: ["A1"] },
      result_ref: null,
      error: null,
      model_result: { text: '{"refunded":["A1"]}', bytes_before: 19, bytes_after: 19, truncated: false },
    });
    expect(await client.get(call.id)).toEqual(call);
    expect(await client.list({ state: "succeeded" })).toEqual({ data: [call], next_page: null });
    expect(operations.recorded[0]?.arguments[1]).toMatchObject({
      arguments: refund.arguments,
      idempotency_key: expect.stringMatching(/^sdk_/),
    });
  });

  it("makes one call however many hundreds are under way, and answers each its own", async () => {
    const { client, operations } = await start();
    const calls = Array.from({ length: 300 }, (_, n) => client.call({ ...refund, tool: "instant", arguments: { n } }));
    const results = await Promise.all(calls);
    expect(results.map(({ result }) => result)).toEqual(results.map((_, n) => ({ n })));
    expect(operations.callIds).toHaveLength(300);
  });

  it("follows events to the end", async () => {
    const { client, operations } = await start();
    const { id } = await client.start(refund);
    const seen: CallEvent[] = [];
    const following = (async () => {
      for await (const event of client.events(id)) seen.push(event);
    })();
    await expect.poll(() => seen.length).toBe(1);
    for (let n = 0; n < 50; n += 1) operations.emit(id, "progress", { n });
    operations.settle(id, null);
    await following;
    expect(seen.map(({ seq }) => seq)).toEqual(Array.from({ length: 52 }, (_, index) => index + 1));
    expect(seen.at(2)).toEqual({ type: "event", call_id: id, seq: 3, at: expect.any(String), event: "progress", data: { n: 1 } });
    expect((await client.listEvents(id, { afterSeq: 50 })).data).toEqual(seen.slice(50));
    await expect.poll(() => operations.openWaits).toBe(0);
  });

  it("leaves nothing behind when a reader leaves its events, or a signal aborts", async () => {
    const { client, operations } = await start();
    const { id } = await client.start(refund);
    for await (const event of client.events(id)) {
      expect(event.seq).toBe(1);
      break;
    }
    await expect.poll(() => operations.openWaits).toBe(0);
    const controller = new AbortController();
    const waiting = failureOf(client.get(id, { waitMs: 60_000, signal: controller.signal }));
    const watching = failureOf(client.events(id, { afterSeq: 1, signal: controller.signal }).next());
    await expect.poll(() => operations.openWaits).toBe(2);
    controller.abort();
    expect([(await waiting).code, (await watching).code]).toEqual(["aborted", "aborted"]);
    await expect.poll(() => operations.openWaits).toBe(0);
  });

  it("passes refusals on with code, type, status, details and request id", async () => {
    const { client, clientWith } = await start();
    const invalid = await failureOf(client.call({ ...refund, maxAttempts: 11 }));
    expect(invalid).toMatchObject({
      code: "body_invalid",
      type: "invalid_request_error",
      status: 400,
      retryable: false,
      details: [{ path: "/max_attempts", expected: "at most 10", actual: "11" }],
      requestId: expect.stringMatching(/^req_/),
    });
    const fraction = await failureOf(client.call({ ...refund, timeoutSeconds: 7.5 }));
    expect(fraction).toMatchObject({ code: "body_invalid", status: 400, details: [{ path: "/timeout_seconds" }] });
    expect(await failureOf(client.call({ ...refund, toolset: "none" }))).toMatchObject({ code: "toolset_unknown", status: 404 });
    expect(await failureOf(client.get("call_none"))).toMatchObject({ code: "not_found", status: 404 });
    expect(await failureOf(client.toolsets.put("shop", { baseVersion: 7, tools: [] }))).toMatchObject({
      code: "version_conflict",
      status: 409,
      extra: { current_version: 1 },
    });
    expect(await failureOf(clientWith("wrong").call(refund))).toMatchObject({ code: "key_invalid", status: 401 });
    expect(await failureOf(clientWith("only:calls:read").start(refund))).toMatchObject({ code: "scope_missing", status: 403 });
    expect(await failureOf(clientWith("wrong").events("call_1").next())).toMatchObject({ code: "key_invalid", status: 401 });
  });

  it("does not let a bad request spoil the calls beside it", async () => {
    const { client, operations } = await start();
    const good = client.call({ ...refund, idempotencyKey: "good" });
    await expect.poll(() => operations.openWaits).toBe(1);
    const bad = await Promise.all([
      failureOf(client.call({ ...refund, toolsetVersion: -1 })),
      failureOf(client.call({ ...refund, arguments: "x".repeat(8_388_608) })),
      failureOf(client.call({ ...refund, subject: "" })),
    ]);
    expect(bad.map(({ status }) => status)).toEqual([400, 413, 400]);
    operations.settle("call_0001", 1);
    expect((await good).result).toBe(1);
    expect(operations.recorded.filter(({ operation }) => operation === "create")).toHaveLength(1);
  });

  it("saves and reads toolsets and bindings as they are", async () => {
    const { client } = await start();
    const tool = { name: "t", description: "", binding: "shop", input_schema: { type: "object", "x-kept": { z: 1, a: [true] } } };
    const saved = await client.toolsets.put("docs", { baseVersion: 0, tools: [tool] });
    expect(saved).toMatchObject({ id: "docs", version: 1, tools: [tool] });
    expect(await client.toolsets.get("docs")).toEqual(saved);
    expect(await client.toolsets.get("docs", { version: 1 })).toEqual(saved);
    expect(await client.toolsets.versions("docs")).toEqual({ data: [saved], next_page: null });
    expect((await client.toolsets.list({ limit: 1 })).next_page).toBe("1");
    const binding = await client.bindings.put("desk", { name: "Desk", kind: "desktop" });
    expect(await client.bindings.get("desk")).toEqual(binding);
    expect((await client.bindings.list({ page: "1" })).data).toEqual([binding]);
    expect((await client.runners.list()).data).toMatchObject([
      { runner_id: "run_1", session_epoch: 3, subject: null, handlers: [{ tool: "refund" }] },
    ]);
  });

  it("cancels, reconciles and reads results", async () => {
    const { client } = await start();
    const { id } = await client.start(refund);
    expect((await client.cancel(id)).state).toBe("queued");
    expect((await client.cancel(id, { mode: "skip" })).state).toBe("cancelled");
    expect(await failureOf(client.confirm(id, { decision: "allow" }))).toMatchObject({ code: "not_awaiting_confirmation", status: 409 });
    const other = await client.start(refund);
    expect((await client.reconcile(other.id, { outcome: "applied", result: { n: [1] } })).result).toEqual({ n: [1] });
    expect(await client.wholeResult(other.id)).toEqual({ n: [1] });
    expect(await client.result(other.id, { offset: 1, maxBytes: 3 })).toEqual({ text: '"n"', next_offset: 4, eof: false });
  });

  it("gives up a drained broker only after its patience", async () => {
    const { client, operations, gateway } = await start();
    const waiting = client.call(refund, { waitMs: 1_000 });
    await expect.poll(() => operations.openWaits).toBe(1);
    gateway.beginDrain();
    expect((await waiting).state).toBe("queued");
    expect((await failureOf(client.call(refund))).code).toBe("draining");
    await gateway.close();
    expect((await failureOf(client.call(refund))).code).toBe("unreachable");
  });
});

describe("a broker that comes back", () => {
  it("finds its HTTP client still waiting, and the call made once", async () => {
    const first = await startTestGateway({ limits: { closeGraceMs: 100 } });
    const client = kept(createAgentClient({ url: first.url, key: FULL_KEY, retryForMs: 20_000 }));
    const calling = client.call({ ...refund, idempotencyKey: "once" });
    await expect.poll(() => first.operations.openWaits).toBe(1);
    await first.gateway.close();
    const second = await startTestGateway({ operations: first.operations }, first.port);
    first.operations.settle("call_0001", "done");
    expect((await calling).result).toBe("done");
    expect(first.operations.callIds).toEqual(["call_0001"]);
    expect(second.port).toBe(first.port);
  });

  it("finds its gRPC client still waiting, and the call made once", async () => {
    const first = await startTestGrpc({ limits: { closeGraceMs: 100 } });
    const client = kept(createAgentClient({ transport: connectGrpc(`grpc://${first.address}`), key: FULL_KEY, retryForMs: 20_000 }));
    const calling = client.call({ ...refund, idempotencyKey: "once" });
    await expect.poll(() => first.operations.openWaits).toBe(1);
    await first.gateway.close();
    await startTestGrpc({ operations: first.operations }, Number(first.address.split(":")[1]));
    first.operations.settle("call_0001", "done");
    expect((await calling).result).toBe("done");
    expect(first.operations.callIds).toEqual(["call_0001"]);
  });

  it("keeps keys over HTTP only", async () => {
    const { client } = await grpcWorld();
    expect((await failureOf(client.keys.list())).code).toBe("unsupported");
    const http = await httpWorld();
    const made = await http.client.keys.create({ scopes: ["calls:read"], name: "ci" });
    expect(made).toMatchObject({ key: "secret", scopes: ["calls:read"] });
    expect((await http.client.keys.list()).data).toMatchObject([{ id: made.id }]);
    expect((await http.client.keys.delete(made.id)).revoked_at).not.toBeNull();
    const runnerKey = await http.client.bindings.keys.create("shop", { name: "r" });
    expect((await http.client.bindings.keys.get("shop", runnerKey.id)).binding).toBe("shop");
    expect((await http.client.bindings.keys.delete("shop", runnerKey.id)).revoked_at).not.toBeNull();
  });
});

describe("a refused gRPC address", () => {
  it("is told when the transport is made", () => {
    for (const url of ["http://127.0.0.1:1", "grpc://127.0.0.1", "grpc://user@127.0.0.1:1", "nothing"]) {
      expect(() => connectGrpc(url), url).toThrow(ToolRunnerError);
    }
  });
});
