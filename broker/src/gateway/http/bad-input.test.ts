/** Bad input against every route: it is refused with a reason, never with 5xx, and never reaches an operation. */

import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isRunnerOperation, OPERATION_SCOPES, type OperationName, type RunnerOperationName } from "../shared/scopes.js";
import { createFakeAuthenticator, FULL_KEY, RUNNER_KEY } from "../testing/fake-operations.js";
import { errorOf, startTestGateway, stopTestGateways, type TestGateway } from "../testing/http-kit.js";
import { ROUTES, type Route } from "./routes.js";

const SAMPLES: Readonly<Partial<Record<OperationName | RunnerOperationName, object>>> = {
  createCall: { toolset: "shop", tool: "refund", arguments: {} },
  createBatch: { calls: [{ toolset: "shop", tool: "refund", arguments: {} }] },
  updateCall: { text: "on its way" },
  settleCall: { outcome: "succeeded", result: 7 },
  confirmCall: { decision: "allow" },
  reconcileCall: { outcome: "abandon" },
  putBinding: { name: "Shop", kind: "backend" },
  putToolset: { base_version: 1, tools: [] },
  createAgentKey: { scopes: ["calls:read"] },
};

function addressOf(route: Route): string {
  return route.path
    .replace(":version", "1")
    .replace(":key_id", "key_1")
    .replace(":id", route.path.startsWith("/v1/calls") ? "call_1" : "shop");
}

const withBody = ROUTES.filter((route) => route.body !== undefined);

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(stopTestGateways);

function operationsAsked(): number {
  return gateway.operations.recorded.length;
}

async function refused(method: string, path: string, body: unknown, headers?: Readonly<Record<string, string>>) {
  const before = operationsAsked();
  const answer = await gateway.request(method, path, body, headers);
  expect(operationsAsked(), `${method} ${path} reached an operation`).toBe(before);
  expect(answer.json.request_id).toBe(answer.headers.get("x-request-id"));
  return { status: answer.status, ...errorOf(answer) };
}

describe.each(ROUTES.map((route) => [`${route.method} ${route.path}`, route] as const))("%s", (_name, route) => {
  const path = addressOf(route);
  const sample = SAMPLES[route.operation];

  it("needs a key and its scope", async () => {
    const { operation } = route;
    expect(await refused(route.method, path, sample, { authorization: "" })).toMatchObject({ status: 401, code: "key_missing" });
    expect(await refused(route.method, path, sample, { authorization: "Bearer no" })).toMatchObject({ status: 401, code: "key_invalid" });
    if (isRunnerOperation(operation)) {
      // Whatever an agent key holds, it speaks for no runner.
      expect(await refused(route.method, path, sample, { authorization: `Bearer ${FULL_KEY}` })).toMatchObject({
        status: 401,
        code: "key_invalid",
      });
      expect((await gateway.request(route.method, path, sample, { authorization: `Bearer ${RUNNER_KEY}` })).status).not.toBe(401);
      return;
    }
    expect(await refused(route.method, path, sample, { authorization: `Bearer ${RUNNER_KEY}` })).toMatchObject({
      status: 401,
      code: "key_invalid",
    });
    const scope = OPERATION_SCOPES[operation];
    const others = ["calls:write", "calls:read", "confirm", "catalog:write", "diagnostics:read", "admin"]
      .filter((one) => one !== scope)
      .join(",");
    if (scope === undefined) {
      expect((await gateway.request(route.method, path, sample, { authorization: "Bearer only:" })).status).not.toBe(403);
    } else {
      const answer = await refused(route.method, path, sample, { authorization: `Bearer only:${others}` });
      expect(answer).toMatchObject({ status: 403, code: "scope_missing", message: expect.stringContaining(scope) });
    }
  });

  it("names every unknown query parameter", async () => {
    const answer = await refused(route.method, `${path}?zebra=1&__proto__=2&limi=3`, sample);
    expect(answer).toMatchObject({ status: 400, code: "field_unknown" });
    expect(answer.details?.map((detail) => detail.path).sort()).toEqual(["/__proto__", "/limi", "/zebra"]);
    expect(answer.message).toContain('"zebra"');
  });

  it("refuses a repeated query parameter", async () => {
    const [name] = Object.keys(route.query?.schema.properties ?? {});
    if (name === undefined) expect(route.query).toBeUndefined();
    else
      expect(await refused(route.method, `${path}?${name}=1&${name}=2`, sample)).toMatchObject({
        status: 400,
        code: "body_invalid",
        details: [{ path: `/${name}` }],
      });
  });

  it("takes no body where it has none, and names unknown fields where it has one", async () => {
    if (route.method === "GET") {
      // A body of a GET means nothing (RFC 9110): fetch cannot even send one.
      expect(route.body).toBeUndefined();
      return;
    }
    const answer = await refused(route.method, path, { ...sample, zebra: 1, "a/b~c": 2 });
    expect(answer).toMatchObject({ status: 400, code: "field_unknown" });
    expect(answer.details?.map((detail) => detail.path)).toEqual(["/zebra", "/a~1b~0c"]);
  });
});

describe.each(withBody.map((route) => [`the body of ${route.method} ${route.path}`, route] as const))("%s", (_name, route) => {
  const path = addressOf(route);
  const text = JSON.stringify(SAMPLES[route.operation] ?? {});

  it("must be a JSON object in UTF-8 with its content type", async () => {
    const bad: readonly (readonly [unknown, Readonly<Record<string, string>>?])[] = [
      ["{"],
      ["[]"],
      ["null"],
      ["7"],
      ['"text"'],
      [" "],
      [`${text} x`],
      ["{'a':1}"],
      ["[".repeat(100_00)],
      [`{"a":${"[".repeat(300)}${"]".repeat(300)}}`],
      [`${text.slice(0, -1)}${text === "{}" ? "" : ","}"__proto__":{"admin":true}}`],
      [`{"\\u005f_proto__":1}`],
      ['{"a":1e400}'],
      [`{"a":-${"9".repeat(400)}}`],
      [Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])],
      [Buffer.from(`\ufeff${text}`, "utf16le")],
      [text, { "content-type": "text/plain" }],
      [text, { "content-type": "application/x-www-form-urlencoded" }],
      [text, { "content-type": "application/json; charset=latin1" }],
      [text, { "content-type": "nonsense" }],
      [text, { "content-encoding": "gzip" }],
    ];
    for (const [body, headers] of bad) {
      const answer = await refused(route.method, path, body, headers);
      expect([String(body).slice(0, 40), headers, answer.status, answer.code]).toEqual([
        String(body).slice(0, 40),
        headers,
        400,
        "body_invalid",
      ]);
      expect(answer.message?.length).toBeLessThan(400);
    }
  });

  it("must be there, unless everything in it is optional", async () => {
    if (route.bodyOptional) {
      expect((await gateway.request(route.method, path)).status).not.toBe(400);
    } else {
      expect(await refused(route.method, path, undefined)).toMatchObject({ status: 400, code: "body_invalid" });
      expect(await refused(route.method, path, "")).toMatchObject({ status: 400, code: "body_invalid" });
    }
  });

  it("must have each field in its form, and every fault is told", async () => {
    const properties: Readonly<Record<string, { readonly type?: unknown }>> = route.body?.schema.properties ?? {};
    const required = route.body?.schema.required ?? [];
    const wrong = Object.fromEntries(
      Object.keys(properties)
        .filter((name) => "type" in (properties[name] ?? {}))
        .map((name) => [name, properties[name]?.type === "object" ? "wrong" : { wrong: true }]),
    );
    const answer = await refused(route.method, path, wrong);
    expect(answer).toMatchObject({ status: 400, code: "body_invalid" });
    const missing = required.filter((name) => !(name in wrong)).map((name) => `/${name}`);
    expect(answer.details?.map((detail) => detail.path).sort()).toEqual(
      [...Object.keys(wrong).map((name) => `/${name}`), ...missing].sort(),
    );
    for (const detail of answer.details ?? []) expect(Object.keys(detail).sort()).toEqual(["actual", "expected", "path"]);
    for (const name of required) {
      const { [name]: _left, ...rest } = JSON.parse(text) as Record<string, unknown>;
      expect((await refused(route.method, path, rest)).details).toEqual([{ path: `/${name}`, expected: "present", actual: "missing" }]);
    }
  });

  it("may not be over its limit, and the refusal names bytes and limit", async () => {
    const limit = route.bodyBytesMax ?? 65_536;
    const answer = await refused(route.method, path, Buffer.alloc(limit + 1, " "));
    expect(answer).toMatchObject({ status: 413, code: "body_too_large" });
    expect(answer.message).toContain(String(limit + 1));
    expect(answer.message).toContain(`limit of ${limit} bytes`);
    const padded = `${text}${" ".repeat(limit - Buffer.byteLength(text))}`;
    expect((await gateway.request(route.method, path, padded)).status).not.toBe(413);
  });
});

describe("fields of a call", () => {
  const base = { toolset: "shop", tool: "refund", arguments: {} };
  const cases: readonly [object, string, string][] = [
    [{ wait_seconds: 61 }, "/wait_seconds", "at most 60"],
    [{ wait_seconds: -1 }, "/wait_seconds", "at least 0"],
    [{ wait_seconds: "5" }, "/wait_seconds", "number"],
    [{ max_attempts: 0 }, "/max_attempts", "at least 1"],
    [{ max_attempts: 1.5 }, "/max_attempts", "integer"],
    [{ max_attempts: 11 }, "/max_attempts", "at most 10"],
    [{ priority: "soon" }, "/priority", 'one of "interactive", "background"'],
    [{ toolset_version: 0 }, "/toolset_version", "at least 1"],
    [{ timeout_seconds: 4 }, "/timeout_seconds", "at least 5"],
    [{ timeout_seconds: 86_401 }, "/timeout_seconds", "at most 86400"],
    [{ subject: null }, "/subject", "string"],
    [{ subject: "" }, "/subject", "at least 1 characters"],
    [{ subject: "a\u0000b" }, "/subject", "text without control characters and unpaired surrogates"],
    [{ session: "\ud800" }, "/session", "text without control characters and unpaired surrogates"],
    [{ idempotency_key: "k".repeat(257) }, "/idempotency_key", "at most 256 characters"],
    [{ toolset: ["shop"] }, "/toolset", "string"],
  ];

  it("are refused by name, with what was expected and what was there", async () => {
    for (const [change, path, expected] of cases) {
      const answer = await refused("POST", "/v1/calls", { ...base, ...change });
      expect([change, answer.status, answer.code, answer.details?.map((detail) => [detail.path, detail.expected])]).toEqual([
        change,
        400,
        "body_invalid",
        [[path, expected]],
      ]);
    }
  });

  it("pass at their edges", async () => {
    for (const change of [
      { wait_seconds: 0, max_attempts: 1, timeout_seconds: 5, toolset_version: 1 },
      { wait_seconds: 0.001, max_attempts: 10, timeout_seconds: 86_400, toolset_version: 4_294_967_295 },
      { idempotency_key: "😀".repeat(256), subject: "u", priority: "interactive" },
      { arguments: null },
      { arguments: [1, "constructor", { constructor: { prototype: 1 }, toString: 2 }] },
    ]) {
      expect((await gateway.request("POST", "/v1/calls", { ...base, ...change })).status).toBe(202);
    }
  });

  it("count once when repeated, with the last value", async () => {
    await gateway.request("POST", "/v1/calls", '{"toolset":"shop","tool":"a","tool":"refund","arguments":{}}');
    expect(gateway.operations.recorded.at(-1)?.arguments[1]).toEqual(base);
  });

  it("are answered within bounds when there are very many unknown ones", async () => {
    const body = Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [`field_${index}`, index]));
    const answer = await gateway.request("POST", "/v1/calls", { ...base, ...body });
    expect(errorOf(answer)).toMatchObject({ code: "field_unknown", message: expect.stringContaining("and 99995 more") });
    expect(answer.text.length).toBeLessThan(16_384);
  });
});

describe("queries", () => {
  it("are checked as strictly as bodies", async () => {
    const bad: readonly [string, string][] = [
      ["/v1/calls?limit=0", "/limit"],
      ["/v1/calls?limit=101", "/limit"],
      ["/v1/calls?limit=", "/limit"],
      ["/v1/calls?limit=1e1", "/limit"],
      ["/v1/calls?limit=0x10", "/limit"],
      ["/v1/calls?limit=%201", "/limit"],
      ["/v1/calls?limit=1.5", "/limit"],
      ["/v1/calls?state=sleeping", "/state"],
      ["/v1/calls?page=", "/page"],
      ["/v1/calls/call_1?wait_seconds=61", "/wait_seconds"],
      ["/v1/calls/call_1?wait_seconds=NaN", "/wait_seconds"],
      ["/v1/calls/call_1?wait_seconds=-1", "/wait_seconds"],
      ["/v1/calls/call_1/result?max_bytes=262145", "/max_bytes"],
      ["/v1/calls/call_1/result?offset=-1", "/offset"],
      ["/v1/calls/call_1/events?after_seq=x", "/after_seq"],
    ];
    for (const [path, at] of bad) {
      const answer = await refused("GET", path, undefined);
      expect([path, answer.status, answer.code, answer.details?.[0]?.path]).toEqual([path, 400, "body_invalid", at]);
    }
  });
});

describe("numbers in queries", () => {
  it("may have as many decimals as clients print", async () => {
    const { json } = await gateway.request("POST", "/v1/calls", { toolset: "shop", tool: "instant", arguments: {} });
    for (const wait of ["0", "0.32203322500000015", "60", "60.0", `0.${"3".repeat(32)}`]) {
      expect([wait, (await gateway.request("GET", `/v1/calls/${json.id}?wait_seconds=${wait}`)).status]).toEqual([wait, 200]);
    }
  });
});

describe("ids in addresses", () => {
  const ids = [
    "..",
    ".",
    "%2e%2e%2fkeys",
    "a%2Fb",
    "a%00b",
    "A",
    "*",
    ">",
    "calls.%3E",
    "%F0%9F%98%80",
    "-",
    "x".repeat(5_000),
    "__proto__",
    "constructor",
  ];

  it("that nothing can have are not found, and reach no operation", async () => {
    for (const id of ids) {
      for (const path of [
        `/v1/bindings/${id}x%2F`,
        `/v1/toolsets/${id}%20`,
        `/v1/calls/${id}%2F..`,
        `/v1/keys/${id}%0a`,
        `/v1/bindings/shop/keys/${id}%20`,
      ]) {
        const answer = await refused("GET", path, undefined);
        expect([path, answer.status]).toEqual([path, 404]);
      }
    }
  });

  it("that cannot be chosen are refused by name when something is saved under them", async () => {
    for (const id of ["A", "1a", "a.b", "a%20b", "a".repeat(65), "%F0%9F%98%80", "_a"]) {
      for (const path of [`/v1/bindings/${id}`, `/v1/toolsets/${id}`]) {
        const body = path.startsWith("/v1/bindings") ? SAMPLES.putBinding : SAMPLES.putToolset;
        expect(await refused("PUT", path, body)).toMatchObject({ status: 400, code: "id_invalid" });
      }
    }
    expect((await gateway.request("PUT", `/v1/bindings/${"a".repeat(64)}`, SAMPLES.putBinding)).status).toBe(201);
  });
});

describe("arbitrary input", () => {
  const json = fc.jsonValue({ maxDepth: 3 });
  const fieldName = fc.oneof(
    fc.constantFrom(...withBody.flatMap((route) => Object.keys(route.body?.schema.properties ?? {}))),
    fc.string(),
  );
  const body = fc.oneof(
    fc
      .dictionary(fieldName, fc.oneof(json, fc.string(), fc.integer(), fc.constantFrom("shop", "refund", "kill", "applied")))
      .map((value) => JSON.stringify(value)),
    json.map((value) => JSON.stringify(value)),
    fc.string(),
    fc.uint8Array().map((bytes) => Buffer.from(bytes)),
  );

  it("is never answered with 5xx, and always answered", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...withBody),
        body,
        fc.constantFrom("application/json", "application/json;charset=UTF-8", "text/html", "a/b;c"),
        async (route, sent, type) => {
          const answer = await gateway.request(route.method, addressOf(route), sent, { "content-type": type });
          expect(answer.status).toBeLessThan(500);
          if (answer.status >= 400) expect(errorOf(answer).code).toBeTypeOf("string");
        },
      ),
      { numRuns: 400 },
    );
  });

  it("in addresses is never answered with 5xx, and always answered", async () => {
    const path = fc.oneof(
      fc.webPath(),
      fc.tuple(fc.constantFrom(...ROUTES.map(addressOf)), fc.webQueryParameters()).map(([address, query]) => `${address}?${query}`),
      fc.string().map((text) => `/v1/calls/${encodeURIComponent(text.replace(/\p{Cs}/gu, ""))}`),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom("GET", "PUT", "POST", "DELETE", "PATCH"), path, async (method, address) => {
        const answer = await gateway.request(method, address.startsWith("/") ? address : `/${address}`);
        expect(answer.status).toBeLessThan(500);
      }),
      { numRuns: 300 },
    );
  });
});

describe("a key that cannot be checked", () => {
  it("is no key: a failing check is 500, and nothing is done", async () => {
    const failing = await startTestGateway({
      authenticator: { ...createFakeAuthenticator(), agent: () => Promise.reject(new Error("store away")) },
    });
    const answer = await failing.request("POST", "/v1/calls", SAMPLES.createCall, { authorization: `Bearer ${FULL_KEY}` });
    expect([answer.status, errorOf(answer).code]).toEqual([500, "internal"]);
    expect(failing.operations.recorded).toEqual([]);
  });
});
