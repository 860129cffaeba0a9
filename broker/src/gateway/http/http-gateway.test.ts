import { afterEach, describe, expect, it } from "vitest";
import { BrokerError } from "../../domain/broker-error.js";
import { FULL_KEY, RUNNER_KEY } from "../testing/fake-operations.js";
import { errorOf, startTestGateway, stopTestGateways } from "../testing/http-kit.js";

afterEach(stopTestGateways);

describe("calls over HTTP", () => {
  it("answers 202 for a call that is open and 200 for one that has settled", async () => {
    const { request, operations } = await startTestGateway();
    const open = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    expect(open.status).toBe(202);
    expect(open.json).toMatchObject({ type: "call", state: "queued", result: null });
    operations.settle(String(open.json.id), { done: true });
    const settled = await request("GET", `/v1/calls/${open.json.id}`);
    expect(settled.status).toBe(200);
    expect(settled.json).toMatchObject({ state: "succeeded", result: { done: true } });
    expect(settled.headers.get("x-request-id")).toMatch(/^req_[a-z2-7]{26}$/);
  });

  it("ends a wait with the first answer to the turn (I6)", async () => {
    const { request, operations } = await startTestGateway();
    const waiting = request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {}, wait_seconds: 30 });
    await expect.poll(() => operations.openWaits).toBe(1);
    operations.settle(operations.callIds[0] ?? "", 7);
    expect((await waiting).json).toMatchObject({ state: "succeeded", result: 7 });
  });

  it("gives up a wait when its client disconnects, and keeps the call", async () => {
    const { url, operations } = await startTestGateway();
    const controller = new AbortController();
    const waiting = fetch(`${url}/v1/calls`, {
      method: "POST",
      headers: { authorization: `Bearer ${FULL_KEY}`, "content-type": "application/json" },
      body: JSON.stringify({ toolset: "shop", tool: "refund", arguments: {}, wait_seconds: 60 }),
      signal: controller.signal,
    });
    await expect.poll(() => operations.openWaits).toBe(1);
    controller.abort();
    await expect(waiting).rejects.toThrow();
    await expect.poll(() => operations.openWaits).toBe(0);
    expect(operations.callIds).toHaveLength(1);
  });

  it("passes the body on as it came, so that the same request can be recognised (X2)", async () => {
    const { request, operations } = await startTestGateway();
    const body = {
      toolset: "shop",
      tool: "refund",
      arguments: { b: [1, null, "ü"], a: 1e-7 },
      idempotency_key: "k1",
      priority: "background",
    };
    await request("POST", "/v1/calls", body);
    expect(operations.recorded.at(-1)?.arguments[1]).toEqual(body);
    const again = await request("POST", "/v1/calls", body);
    expect(operations.callIds).toHaveLength(1);
    expect(again.status).toBe(202);
    const other = await request("POST", "/v1/calls", { ...body, tool: "other" });
    expect(other.status).toBe(409);
    expect(errorOf(other).code).toBe("idempotency_conflict");
  });

  it("passes a valid traceparent on and leaves an invalid one out", async () => {
    const { request, operations } = await startTestGateway();
    const body = { toolset: "shop", tool: "refund", arguments: {} };
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    await request("POST", "/v1/calls", body, { traceparent });
    expect(operations.recorded.at(-1)?.arguments[2]).toMatchObject({ traceparent });
    await request("POST", "/v1/calls", body, { traceparent: "00-zz-1-01" });
    expect(operations.recorded.at(-1)?.arguments[2]).toMatchObject({ traceparent: undefined });
  });

  it("answers cancel with 202 while it is under way and with 200 when it is answered (K2)", async () => {
    const { request } = await startTestGateway();
    const { json } = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    expect((await request("POST", `/v1/calls/${json.id}/cancel`)).status).toBe(202);
    const skipped = await request("POST", `/v1/calls/${json.id}/cancel`, { mode: "skip", reason: "not needed" });
    expect(skipped.status).toBe(200);
    expect(skipped.json.state).toBe("cancelled");
  });

  it("reads a result in pages", async () => {
    const { request } = await startTestGateway();
    const { json } = await request("POST", "/v1/calls", { toolset: "shop", tool: "instant", arguments: { text: "abcdef" } });
    const first = await request("GET", `/v1/calls/${json.id}/result?offset=0&max_bytes=8`);
    expect(first.json).toEqual({ text: '{"text":', next_offset: 8, eof: false });
    const rest = await request("GET", `/v1/calls/${json.id}/result?offset=8`);
    expect(rest.json).toMatchObject({ text: '"abcdef"}', eof: true });
  });

  it("lists calls with filters and numbers from the query", async () => {
    const { request, operations } = await startTestGateway();
    for (let index = 0; index < 3; index += 1) await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    const page = await request("GET", "/v1/calls?state=queued&limit=2&subject=user%2042");
    expect(page.json.data).toHaveLength(2);
    expect(page.json.next_page).toBe("2");
    expect(operations.recorded.at(-1)?.arguments.slice(1)).toEqual([
      { state: "queued", subject: "user 42" },
      { limit: 2, page: undefined },
    ]);
  });
});

describe("the catalog and keys over HTTP", () => {
  it("answers PUT with 201 for a new object and 200 otherwise, with the whole object", async () => {
    const { request } = await startTestGateway();
    const first = await request("PUT", "/v1/bindings/desk", { name: "Desk", kind: "desktop" });
    expect([first.status, first.json]).toEqual([201, expect.objectContaining({ id: "desk", kind: "desktop" })]);
    expect((await request("PUT", "/v1/bindings/desk", { name: "Desk 2", kind: "desktop" })).status).toBe(200);
    expect((await request("PUT", "/v1/toolsets/docs", { base_version: 0, tools: [] })).status).toBe(201);
    expect((await request("PUT", "/v1/toolsets/docs", { base_version: 1, tools: [] })).json).toMatchObject({ id: "docs", version: 2 });
    expect((await request("GET", "/v1/toolsets/docs/versions/1")).json.version).toBe(1);
    expect((await request("GET", "/v1/toolsets/docs/versions?limit=1")).json).toMatchObject({ data: [{ version: 2 }], next_page: "1" });
  });

  it("puts the fields of a refusal into the error object (C5)", async () => {
    const { request } = await startTestGateway();
    const conflict = await request("PUT", "/v1/toolsets/shop", { base_version: 9, tools: [] });
    expect(conflict.status).toBe(409);
    expect(errorOf(conflict)).toMatchObject({ type: "conflict_error", code: "version_conflict", current_version: 1, details: [] });
  });

  it("answers a version that is no number like one that is not there", async () => {
    const { request } = await startTestGateway();
    for (const version of ["2", "0", "-1", "1.0", "abc", "99999999999999999999"]) {
      const answer = await request("GET", `/v1/toolsets/shop/versions/${version}`);
      expect([version, answer.status, errorOf(answer).code]).toEqual([version, 404, "toolset_version_unknown"]);
    }
    expect(errorOf(await request("GET", "/v1/toolsets/none/versions/x")).code).toBe("toolset_unknown");
  });

  it("shows a key once and pages through keys", async () => {
    const { request } = await startTestGateway();
    const made = await request("POST", "/v1/keys", { name: "ci", scopes: ["calls:read"] });
    expect([made.status, made.json.key]).toEqual([201, "secret"]);
    await request("POST", "/v1/keys", { scopes: ["admin"] });
    const page = await request("GET", "/v1/keys?limit=1");
    expect(page.json.data).toMatchObject([{ id: "key_2" }]);
    expect(JSON.stringify(page.json)).not.toContain("secret");
    const rest = await request("GET", `/v1/keys?limit=1&page=${page.json.next_page}`);
    expect(rest.json).toMatchObject({ data: [{ id: "key_1" }], next_page: null });
    expect((await request("POST", "/v1/bindings/shop/keys")).status).toBe(201);
    const foreign = await request("GET", `/v1/bindings/shop/keys?page=${page.json.next_page}`);
    expect(errorOf(foreign).code).toBe("page_invalid");
    expect((await request("DELETE", "/v1/keys/key_1")).json).toMatchObject({ id: "key_1", revoked_at: expect.any(String) });
    expect((await request("DELETE", "/v1/bindings/shop/keys/rkey_1")).status).toBe(200);
    expect((await request("GET", "/v1/bindings/shop/keys")).json.data).toMatchObject([{ id: "rkey_1", binding: "shop" }]);
  });
});

describe("who may ask over HTTP", () => {
  it("answers nothing but the two health addresses without a key, known address or not", async () => {
    const { url } = await startTestGateway();
    for (const path of ["/v1/calls", "/openapi.json", "/nothing", "/v1/runner", "/%zz", "/metrics", "/.well-known/jwks.json"]) {
      const missing = await fetch(`${url}${path}`);
      expect([path, missing.status, ((await missing.json()) as { error: { code: string } }).error.code]).toEqual([
        path,
        401,
        "key_missing",
      ]);
      expect(missing.headers.get("www-authenticate")).toBe("Bearer");
    }
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });

  it("takes no runner key, unknown key or other scheme for an agent key", async () => {
    const { request } = await startTestGateway();
    for (const authorization of [`Bearer ${RUNNER_KEY}`, "Bearer nonsense", "Basic dTpw", "Bearer a b", `Bearer ${"x".repeat(4_000)}`]) {
      const answer = await request("GET", "/v1/calls", undefined, { authorization });
      expect([answer.status, errorOf(answer).code]).toEqual([401, "key_invalid"]);
    }
    for (const authorization of ["", "Bearer", "Bearer "]) {
      expect(errorOf(await request("GET", "/v1/calls", undefined, { authorization })).code).toBe("key_missing");
    }
    expect((await request("GET", "/v1/calls", undefined, { authorization: `bearer  ${FULL_KEY}` })).status).toBe(200);
  });

  it("answers an unknown address or method with 404 when the key is valid", async () => {
    const { request } = await startTestGateway();
    for (const [method, path] of [
      ["GET", "/nothing"],
      ["DELETE", "/v1/calls"],
      ["PATCH", "/v1/calls"],
      ["GET", "/v1/calls/a/b"],
      ["GET", "/%zz"],
      ["POST", "/healthz"],
      ["GET", "/v1/runner"],
    ] as const) {
      const answer = await request(method, path);
      expect([method, path, answer.status, errorOf(answer).code]).toEqual([method, path, 404, "route_unknown"]);
    }
  });

  it("answers HEAD without a body and OPTIONS with the methods", async () => {
    const { url, request } = await startTestGateway();
    const headers = { authorization: `Bearer ${FULL_KEY}` };
    const head = await fetch(`${url}/v1/calls`, { method: "HEAD", headers });
    expect([head.status, await head.text()]).toEqual([200, ""]);
    const { json } = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    const stream = await fetch(`${url}/v1/calls/${json.id}/events`, {
      method: "HEAD",
      headers: { ...headers, accept: "text/event-stream" },
    });
    expect([stream.status, await stream.text()]).toEqual([200, ""]);
    const options = await fetch(`${url}/v1/calls`, { method: "OPTIONS", headers });
    expect([options.status, options.headers.get("allow")]).toEqual([204, "POST, GET, HEAD, OPTIONS"]);
    expect((await fetch(`${url}/v1/calls`, { method: "OPTIONS" })).status).toBe(401);
  });
});

describe("failures behind HTTP", () => {
  it("answers an unexpected error with 500 and a request id, and tells its text to the log alone", async () => {
    const { request, operations, log } = await startTestGateway();
    operations.failNext("create", new Error("password=hunter2"));
    const answer = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: { secret: "s3cret" } });
    expect(answer.status).toBe(500);
    expect(errorOf(answer)).toMatchObject({ type: "internal_error", code: "internal" });
    expect(answer.text).not.toContain("hunter2");
    const line = log.lines.find(({ event }) => event === "http_request_failed");
    expect(line?.fields).toMatchObject({ request_id: answer.json.request_id, route: "/v1/calls", error: "Error: password=hunter2" });
    expect(JSON.stringify(log.lines)).not.toContain("s3cret");
  });

  it("answers codes that are no refusals, and values that are no errors, with 500", async () => {
    const { request, operations } = await startTestGateway();
    for (const thrown of [new BrokerError("no_such_code", "x"), new BrokerError("handler_error", "x"), undefined, null, "text", 7]) {
      operations.failNext("get", thrown);
      const answer = await request("GET", "/v1/calls/call_1");
      expect([answer.status, errorOf(answer).code]).toEqual([500, "internal"]);
    }
  });

  it("sends retry-after with 429 and 503", async () => {
    const { request, operations } = await startTestGateway();
    operations.failNext("create", new BrokerError("rate_limited", "Too many.", { retryAfterSeconds: 2.4 }));
    const limited = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    expect([limited.status, limited.headers.get("retry-after")]).toEqual([429, "3"]);
    operations.failNext("create", new BrokerError("ledger_away", "Away."));
    const away = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    expect([away.status, away.headers.get("retry-after")]).toEqual([503, "1"]);
  });

  it("logs a success at debug only: ids, route pattern, status and duration", async () => {
    const { request, log } = await startTestGateway();
    await request("GET", "/v1/calls/call_secret_id?wait_seconds=0");
    await request("GET", "/v1/bindings");
    const lines = log.lines.filter(({ event }) => event === "http_request");
    expect(lines.map(({ level, fields }) => [level, fields.route, fields.status])).toEqual([
      ["info", "/v1/calls/:id", 404],
      ["debug", "/v1/bindings", 200],
    ]);
    for (const { fields } of lines) expect(Object.keys(fields).sort()).toEqual(["duration_ms", "method", "request_id", "route", "status"]);
  });
});

describe("readiness over HTTP", () => {
  it("names what is wrong with 503", async () => {
    const { url } = await startTestGateway({ health: { check: async () => [{ part: "ledger", message: "It does not answer." }] } });
    const answer = await fetch(`${url}/readyz`);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toEqual({ status: "not_ready", problems: [{ part: "ledger", message: "It does not answer." }] });
  });

  it("is not ready when the check fails or takes too long", async () => {
    const failing = await startTestGateway({ health: { check: () => Promise.reject(new Error("secret")) } });
    const failed = await fetch(`${failing.url}/readyz`);
    expect([failed.status, (await failed.text()).includes("secret")]).toEqual([503, false]);
    const silent = await startTestGateway({ health: { check: () => new Promise(() => undefined) } });
    expect((await fetch(`${silent.url}/readyz`)).status).toBe(503);
  });
});

describe("draining the HTTP gateway", () => {
  it("answers waits at once with the present state, refuses new calls, still reads, and is not ready", async () => {
    const { gateway, request, operations, url } = await startTestGateway();
    const waiting = request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {}, wait_seconds: 60 });
    await expect.poll(() => operations.openWaits).toBe(1);
    const id = operations.callIds[0];
    const getting = request("GET", `/v1/calls/${id}?wait_seconds=60`);
    await expect.poll(() => operations.openWaits).toBe(2);
    gateway.beginDrain();
    gateway.beginDrain();
    expect([(await waiting).status, (await getting).status]).toEqual([202, 202]);
    const refused = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    expect([refused.status, errorOf(refused).code, refused.headers.get("retry-after")]).toEqual([503, "draining", "1"]);
    expect((await request("GET", `/v1/calls/${id}?wait_seconds=60`)).status).toBe(202);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
  });

  it("answers draining when the wait's end left no call to show", async () => {
    const { gateway, request, operations } = await startTestGateway();
    const { calls } = operations;
    const create = calls.create.bind(calls);
    let entered = false;
    Object.assign(calls, {
      create: async (...args: Parameters<typeof create>) => {
        const signal = args[2].signal;
        entered = true;
        return await new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(new Error("the wait ended"))));
      },
    });
    const waiting = request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {}, wait_seconds: 60 });
    await expect.poll(() => entered).toBe(true);
    gateway.beginDrain();
    expect(errorOf(await waiting).code).toBe("draining");
  });

  it("closes while a client holds a connection open and another uploads slowly", async () => {
    const { gateway, url, rawSocket } = await startTestGateway({ limits: { closeGraceMs: 200 } });
    await fetch(`${url}/healthz`);
    const slow = await rawSocket();
    slow.write(`POST /v1/calls HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${FULL_KEY}\r\ncontent-length: 100\r\n\r\n{`);
    const started = performance.now();
    await Promise.all([gateway.close(), gateway.close()]);
    expect(performance.now() - started).toBeLessThan(3_000);
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
  });
});
