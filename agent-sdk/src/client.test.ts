import { afterEach, describe, expect, it } from "vitest";
import { createAgentClient, createClientWith } from "./client.js";
import type { AgentClientOptions } from "./client-types.js";
import { ToolRunnerError } from "./errors.js";
import { callIn, createManualTime, refusal, type Script, type ScriptedBroker, startScriptedBroker } from "./testing/scripted-broker.js";

const brokers: ScriptedBroker[] = [];
afterEach(async () => {
  await Promise.all(brokers.splice(0).map((broker) => broker.close()));
});

async function setUp(script: Script, options: Partial<AgentClientOptions> = {}) {
  const broker = await startScriptedBroker(script);
  brokers.push(broker);
  const time = createManualTime();
  return { broker, time, client: createClientWith({ url: broker.url, key: "k", ...options }, time) };
}

async function failureOf(promise: Promise<unknown>): Promise<ToolRunnerError> {
  try {
    await promise;
  } catch (error) {
    expect(error).toBeInstanceOf(ToolRunnerError);
    if (error instanceof ToolRunnerError) return error;
  }
  throw new Error("it did not fail");
}

const request = { toolset: "shop", tool: "refund", arguments: { order: "A1" } };

describe("calling a tool", () => {
  it("resolves with the first answer to the turn, and sends the request in the broker's names", async () => {
    for (const state of ["succeeded", "failed", "submitted", "needs_reconciliation", "denied"] as const) {
      const { broker, client } = await setUp(() => ({ status: 200, body: callIn(state) }));
      const call = await client.call({
        ...request,
        subject: "u",
        toolsetVersion: 3,
        idempotencyKey: "mine",
        timeoutSeconds: 9,
        orderingKey: "o",
        maxAttempts: 2,
        traceparent: "tp",
      });
      expect(call).toEqual(callIn(state));
      expect(broker.requests).toHaveLength(1);
      expect(broker.requests[0]?.body).toEqual({
        ...request,
        subject: "u",
        toolset_version: 3,
        idempotency_key: "mine",
        timeout_seconds: 9,
        ordering_key: "o",
        max_attempts: 2,
        wait_seconds: 60,
      });
      expect(broker.requests[0]?.headers).toMatchObject({ authorization: "Bearer k", traceparent: "tp" });
    }
  });

  it("keeps waiting past 60 s", async () => {
    const { broker, time, client } = await setUp(({ number }) => {
      time.advance(60_000);
      return number < 5 ? { status: 202, body: callIn("running") } : { status: 200, body: callIn("succeeded", { result: 7 }) };
    });
    expect((await client.call(request)).result).toBe(7);
    expect(broker.requests.map(({ line }) => line)).toEqual([
      "POST /v1/calls",
      ...Array.from({ length: 4 }, () => "GET /v1/calls/call_1?wait_seconds=60"),
    ]);
    expect(time.pauses).toEqual([]);
  });

  it("asks less and less often when waits are answered at once", async () => {
    const { broker, time, client } = await setUp(({ number }) => ({
      status: number < 6 ? 202 : 200,
      body: callIn(number < 6 ? "queued" : "failed"),
    }));
    await client.call(request);
    expect(broker.requests).toHaveLength(6);
    expect(time.pauses).toHaveLength(5);
    expect([...time.pauses].sort((a, b) => a - b)).toEqual(time.pauses);
  });

  it("resolves with the open call when waitMs is over", async () => {
    const { broker, time, client } = await setUp(({ body, line }) => {
      time.advance(line.startsWith("POST") ? Number(body.wait_seconds) * 1_000 : 30_000);
      return { status: 202, body: callIn("running") };
    });
    expect((await client.call(request, { waitMs: 90_000 })).state).toBe("running");
    expect(broker.requests.map(({ line, body }) => body.wait_seconds ?? line)).toEqual([60, "GET /v1/calls/call_1?wait_seconds=30"]);
    expect((await client.call(request, { waitMs: 0 })).state).toBe("running");
  });

  it("asks for waits in numbers that an address may hold, whatever is left of waitMs", async () => {
    for (const waitMs of [0.000_000_1, 1 / 3, 322.033225, 1e-300, 59_999.999_999]) {
      const { broker, time, client } = await setUp(({ number }) => {
        if (number > 1) time.advance(waitMs);
        return { status: 202, body: callIn("running") };
      });
      await client.call(request, { waitMs });
      await client.get("call_1", { waitMs });
      for (const { line, body } of broker.requests)
        expect(String(body.wait_seconds ?? line.split("=")[1])).toMatch(/^\d{1,2}(\.\d{1,3})?$/);
    }
  });

  it("repeats itself with the same key and body while the broker is away, and with patience (L2)", async () => {
    const { broker, time, client } = await setUp(({ number }, response) => {
      if (number === 1) {
        response.destroy();
        return undefined;
      }
      if (number === 2) return refusal(503, "ledger_away", {}, { "retry-after": "1" });
      if (number === 3) return refusal(429, "rate_limited", {}, { "retry-after": "3" });
      if (number === 4) return { status: 502, body: "<html>bad gateway</html>" };
      return { status: 200, body: callIn("succeeded") };
    });
    expect((await client.call(request)).state).toBe("succeeded");
    const bodies = broker.requests.map(({ body }) => body);
    expect(bodies).toHaveLength(5);
    for (const body of bodies) expect(body).toEqual(bodies[0]);
    expect(bodies[0]?.idempotency_key).toMatch(/^sdk_[0-9a-f-]{36}$/);
    expect(time.pauses[2]).toBeGreaterThanOrEqual(3_000);
  });

  it("gives each call a key of its own", async () => {
    const { broker, client } = await setUp(() => ({ status: 200, body: callIn("succeeded") }));
    await Promise.all([client.call(request), client.start(request)]);
    expect(new Set(broker.requests.map(({ body }) => body.idempotency_key)).size).toBe(2);
    expect(broker.requests.map(({ body }) => body.wait_seconds).sort()).toEqual([0, 60]);
  });

  it("throws a refusal at once, with everything that the broker said", async () => {
    const details = [{ path: "/order", expected: "string", actual: "7" }];
    const { broker, client } = await setUp(() =>
      refusal(400, "arguments_invalid", { type: "invalid_request_error", details, current_version: 4 }),
    );
    const error = await failureOf(client.call(request));
    expect(error).toMatchObject({
      code: "arguments_invalid",
      type: "invalid_request_error",
      status: 400,
      details,
      requestId: "req_1",
      retryable: false,
      extra: { current_version: 4 },
      message: "It is arguments_invalid.",
    });
    expect(broker.requests).toHaveLength(1);
  });

  it("throws the last failure when the broker stays away for retryForMs, and not before", async () => {
    const { broker, time, client } = await setUp(() => refusal(503, "ledger_away"), { retryForMs: 10_000 });
    const error = await failureOf(client.call(request));
    expect(error).toMatchObject({ code: "ledger_away", status: 503, retryable: true });
    expect(time.now()).toBeGreaterThan(4_000);
    expect(time.now()).toBeLessThanOrEqual(10_000);
    expect(broker.requests.length).toBeGreaterThan(4);
    const impatient = createClientWith({ url: broker.url, key: "k", retryForMs: 0 }, createManualTime());
    await failureOf(impatient.call(request));
  });

  it("is unreachable where nobody listens", async () => {
    const { broker } = await setUp(() => undefined);
    await broker.close();
    const error = await failureOf(createClientWith({ url: broker.url, key: "k" }, createManualTime()).call(request));
    expect(error).toMatchObject({ code: "unreachable", type: "local_error", status: undefined, retryable: true });
    expect(error.message).toContain("ECONNREFUSED");
    expect(error.cause).toBeDefined();
  });

  it("keeps a call that it knows when the broker goes away after waitMs", async () => {
    const { time, client } = await setUp(({ line }) => {
      if (line.startsWith("POST")) return { status: 202, body: callIn("running") };
      time.advance(40_000);
      return refusal(503, "draining");
    });
    expect((await client.call(request, { waitMs: 30_000 })).state).toBe("running");
  });

  it("counts an attempt without an answer as unreachable", async () => {
    const { client } = await setUp(() => undefined, { answerTimeoutMs: 50, retryForMs: 0 });
    const error = await failureOf(client.get("call_1"));
    expect(error).toMatchObject({ code: "unreachable" });
    expect(error.message).toContain("50 ms");
  });

  it("ends with the caller's signal, before, during and between attempts", async () => {
    const { broker } = await setUp(({ number }) => (number % 2 === 0 ? refusal(503, "draining", {}, { "retry-after": "30" }) : undefined));
    const client = createAgentClient({ url: broker.url, key: "k" });
    const reason = new Error("enough");
    const before = await failureOf(client.call(request, { signal: AbortSignal.abort(reason) }));
    expect(before).toMatchObject({ code: "aborted", cause: reason, retryable: false });
    expect(broker.requests).toHaveLength(0);
    const during = new AbortController();
    const failed = failureOf(client.call(request, { signal: during.signal }));
    await expect.poll(() => broker.requests.length).toBe(1);
    during.abort(reason);
    expect(await failed).toMatchObject({ code: "aborted", cause: reason });
    const between = new AbortController();
    const paused = failureOf(client.call(request, { signal: between.signal }));
    await expect.poll(() => broker.openResponses).toBe(0);
    between.abort(reason);
    expect((await paused).code).toBe("aborted");
  });

  it("refuses arguments that JSON cannot hold, and copies those that it can", async () => {
    const { broker, client } = await setUp(({ number }, response) => {
      if (number > 1) return { status: 200, body: callIn("succeeded") };
      mutable.order = "changed";
      response.destroy();
      return undefined;
    });
    const cycle: Record<string, unknown> = {};
    cycle.self = cycle;
    for (const bad of [undefined, 1n, cycle, () => 1]) {
      expect((await failureOf(client.call({ ...request, arguments: bad }))).code).toBe("options_invalid");
    }
    const mutable = { order: "first" };
    await client.call({ ...request, arguments: mutable });
    expect(broker.requests.map(({ body }) => body.arguments)).toEqual([{ order: "first" }, { order: "first" }]);
  });
});

describe("everything else", () => {
  it("spells each operation as its address", async () => {
    const { broker, client } = await setUp(() => ({ status: 200, body: { data: [], next_page: null } }));
    await client.get("call_1", { waitMs: 0 });
    await client.list({ state: "queued", limit: 5, page: "p q" });
    await client.listEvents("call_1", { afterSeq: 3 });
    await client.result("call_1", { offset: 2, maxBytes: 8 });
    await client.cancel("call_1", { mode: "skip", reason: "why" });
    await client.confirm("call_1", { decision: "deny" });
    await client.reconcile("call_1", { outcome: "applied", result: { n: 1 } });
    await client.toolsets.list({ limit: 1 });
    await client.toolsets.get("shop");
    await client.toolsets.get("shop", { version: 2 });
    await client.toolsets.versions("shop", { page: "p" });
    await client.toolsets.put("shop", { baseVersion: 1, tools: [], idempotencyKey: "save" });
    await client.bindings.list();
    await client.bindings.get("shop");
    await client.bindings.put("shop", { name: "Shop", kind: "backend" });
    await client.bindings.keys.list("shop");
    await client.bindings.keys.create("shop");
    await client.bindings.keys.get("shop", "rkey_1");
    await client.bindings.keys.delete("shop", "rkey_1");
    await client.keys.list({ limit: 3 });
    await client.keys.create({ scopes: ["admin"], name: "ops" });
    await client.keys.get("key_1");
    await client.keys.delete("key_1");
    await client.runners.list();
    expect(broker.requests.map(({ line, body }) => (Object.keys(body).length > 0 ? [line, body] : line))).toEqual([
      "GET /v1/calls/call_1",
      "GET /v1/calls?state=queued&limit=5&page=p+q",
      "GET /v1/calls/call_1/events?after_seq=3",
      "GET /v1/calls/call_1/result?offset=2&max_bytes=8",
      ["POST /v1/calls/call_1/cancel", { mode: "skip", reason: "why" }],
      ["POST /v1/calls/call_1/confirmation", { decision: "deny" }],
      ["POST /v1/calls/call_1/reconcile", { outcome: "applied", result: { n: 1 } }],
      "GET /v1/toolsets?limit=1",
      "GET /v1/toolsets/shop",
      "GET /v1/toolsets/shop/versions/2",
      "GET /v1/toolsets/shop/versions?page=p",
      ["PUT /v1/toolsets/shop", { base_version: 1, tools: [], idempotency_key: "save" }],
      "GET /v1/bindings",
      "GET /v1/bindings/shop",
      ["PUT /v1/bindings/shop", { name: "Shop", kind: "backend" }],
      "GET /v1/bindings/shop/keys",
      "POST /v1/bindings/shop/keys",
      "GET /v1/bindings/shop/keys/rkey_1",
      "DELETE /v1/bindings/shop/keys/rkey_1",
      "GET /v1/keys?limit=3",
      ["POST /v1/keys", { scopes: ["admin"], name: "ops" }],
      "GET /v1/keys/key_1",
      "DELETE /v1/keys/key_1",
      "GET /v1/runners",
    ]);
  });

  it("repeats a save with one key, but never a confirmation or a new key that may have been carried out", async () => {
    const { broker, client } = await setUp(({ number, line }, response) => {
      if (line.includes("toolsets") && number > 1) return { status: 200, body: { id: "shop" } };
      response.destroy();
      return undefined;
    });
    await client.toolsets.put("shop", { baseVersion: 0, tools: [] });
    expect(broker.requests.map(({ body }) => body.idempotency_key)).toEqual([
      expect.stringMatching(/^sdk_/),
      broker.requests[0]?.body.idempotency_key,
    ]);
    for (const once of [
      () => client.confirm("c", { decision: "allow" }),
      () => client.keys.create({ scopes: ["admin"] }),
      () => client.reconcile("c", { outcome: "abandon" }),
    ]) {
      const before = broker.requests.length;
      expect((await failureOf(once())).code).toBe("unreachable");
      expect(broker.requests.length).toBe(before + 1);
    }
  });

  it("repeats even those after a 429, which says that nothing was done", async () => {
    const { broker, client } = await setUp(({ number }) =>
      number < 3 ? refusal(429, "rate_limited") : { status: 200, body: callIn("queued") },
    );
    await client.confirm("c", { decision: "allow" });
    expect(broker.requests).toHaveLength(3);
  });

  it("keeps an id in its place, whatever it is", async () => {
    const { broker, client } = await setUp(() => ({ status: 200, body: callIn("queued") }));
    await client.get("../keys?x=1#y/z");
    expect(broker.requests[0]?.line).toBe("GET /v1/calls/..%2Fkeys%3Fx%3D1%23y%2Fz");
    for (const id of ["", ".", "..", "\ud800"]) expect(await failureOf(client.get(id))).toMatchObject({ code: "not_found", status: 404 });
    expect(broker.requests).toHaveLength(1);
  });

  it("reads a whole result from its pages", async () => {
    const text = JSON.stringify({ text: "ü".repeat(10) });
    const { client } = await setUp(({ line }) => {
      const offset = Number(new URL(line.slice(4), "http://x").searchParams.get("offset"));
      return { status: 200, body: { text: text.slice(offset, offset + 7), next_offset: offset + 7, eof: offset + 7 >= text.length } };
    });
    expect(await client.wholeResult("call_1")).toEqual(JSON.parse(text));
    const stuck = await setUp(() => ({ status: 200, body: { text: "", next_offset: 0, eof: false } }));
    expect((await failureOf(stuck.client.wholeResult("call_1"))).code).toBe("answer_invalid");
  });

  it("tells another server from a broker", async () => {
    const answers = [
      { status: 404, body: "<html>" },
      { status: 200, body: "<html>" },
      { status: 200, body: "7" },
      { status: 400, body: { error: "no" } },
    ];
    for (const answer of answers) {
      const { client } = await setUp(() => answer);
      expect((await failureOf(client.get("call_1"))).code).toBe("answer_invalid");
    }
  });

  it("refuses options that cannot work", async () => {
    const bad: readonly Partial<AgentClientOptions>[] = [
      { url: "grpc://127.0.0.1:1" },
      { url: "not an address" },
      { url: "http://user:secret@host" },
      { url: "http://host/?key=1" },
      { key: "" },
      { key: "two words" },
      { key: "line\nbreak" },
      { retryForMs: -1 },
      { answerTimeoutMs: Number.NaN },
    ];
    for (const options of bad) {
      expect(() => createAgentClient({ url: "http://127.0.0.1:1", key: "k", ...options }), JSON.stringify(options)).toThrow(
        ToolRunnerError,
      );
    }
    expect(() => createAgentClient({ key: "k" })).toThrow(/url/);
    const client = createAgentClient({ url: "http://127.0.0.1:1", key: "k" });
    expect((await failureOf(client.call(request, { waitMs: -5 }))).code).toBe("options_invalid");
  });

  it("works behind a path that a proxy adds", async () => {
    const { broker } = await setUp(() => ({ status: 200, body: callIn("queued") }));
    await createAgentClient({ url: `${broker.url}/tools/`, key: "k" }).get("call_1");
    expect(broker.requests[0]?.line).toBe("GET /tools/v1/calls/call_1");
  });
});
