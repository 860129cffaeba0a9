import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SCOPES } from "../../domain/ports/access.js";
import type { RequestMeter } from "../../domain/ports/meter.js";
import { RUNNER_KEY } from "../testing/fake-operations.js";
import { errorOf, METRICS_CONTENT, startTestGateway, stopTestGateways, type TestGateway } from "../testing/http-kit.js";

const told: string[] = [];
const meter: RequestMeter = {
  httpRequest: (method, route, status, durationMs) => void told.push(`${method} ${route} ${status} ${durationMs >= 0}`),
  grpcRequest: () => undefined,
  requestRefused: (over, code) => void told.push(`${over} ${code}`),
};

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ meter });
});
afterAll(stopTestGateways);

const KEY = "Bearer only:diagnostics:read";

describe("GET /metrics (D5)", () => {
  const others = SCOPES.filter((scope) => scope !== "diagnostics:read");

  it.each([
    ["no key", undefined, 401, "key_missing"],
    ["an empty key", "Bearer ", 401, "key_missing"],
    ["another scheme", "Basic dXNlcjpwYXNz", 401, "key_invalid"],
    ["an unknown key", "Bearer nobody", 401, "key_invalid"],
    ["a runner key", `Bearer ${RUNNER_KEY}`, 401, "key_invalid"],
    ["a key without scopes", "Bearer only:", 403, "scope_missing"],
    ["a key with all other scopes", `Bearer only:${others.join(",")}`, 403, "scope_missing"],
    ["a key with diagnostics:read alone", KEY, 200, undefined],
  ])("with %s answers as the other addresses do", async (_name, authorization, status, code) => {
    const answer = await gateway.request("GET", "/metrics", undefined, { authorization: authorization ?? "" });
    expect([answer.status, errorOf(answer).code]).toEqual([status, code]);
    if (status === 200) expect(answer.text).toMatch(/^# HELP calls Of default\.\n/);
    else expect(answer.text).not.toContain("# HELP");
  });

  it.each(["*/*", "application/openmetrics-text; version=1.0.0", "application/json", "text/html", "nonsense", ""])(
    "answers its one format to Accept: %s",
    async (accept) => {
      const answer = await gateway.request("GET", "/metrics", undefined, { authorization: KEY, accept });
      expect([answer.status, answer.headers.get("content-type")]).toEqual([200, METRICS_CONTENT]);
      expect(answer.headers.get("cache-control")).toBe("no-store");
      expect(answer.headers.get("x-request-id")).toMatch(/^req_/);
      expect(answer.text).toMatch(/^# HELP .*\ncalls 1\n$/s);
    },
  );

  it("answers HEAD without the text, and OPTIONS with what is allowed", async () => {
    const head = await gateway.request("HEAD", "/metrics", undefined, { authorization: KEY });
    expect([head.status, head.headers.get("content-type"), head.text]).toEqual([200, METRICS_CONTENT, ""]);
    expect(Number(head.headers.get("content-length"))).toBeGreaterThan(20);
    const options = await gateway.request("OPTIONS", "/metrics", undefined, { authorization: KEY });
    expect([options.status, options.headers.get("allow")]).toEqual([204, "GET, HEAD, OPTIONS"]);
    expect((await gateway.request("HEAD", "/metrics", undefined, { authorization: "" })).status).toBe(401);
  });

  it("names unknown query parameters, and takes no other method", async () => {
    const query = await gateway.request("GET", "/metrics?name[]=up&__proto__=1", undefined, { authorization: KEY });
    expect([query.status, errorOf(query).code]).toEqual([400, "field_unknown"]);
    expect(
      errorOf(query)
        .details?.map(({ path }) => path)
        .sort(),
    ).toEqual(["/__proto__", "/name[]"]);
    const post = await gateway.request("POST", "/metrics", {}, { authorization: KEY });
    expect([post.status, errorOf(post).code]).toEqual([404, "route_unknown"]);
  });

  it("is an error of ours, without its text, when the metrics cannot be made", async () => {
    const broken = await startTestGateway({ metrics: { read: () => Promise.reject(new Error("secret text")) } });
    const answer = await broken.request("GET", "/metrics");
    expect([answer.status, errorOf(answer).code]).toEqual([500, "internal"]);
    expect(answer.text).not.toContain("secret");
  });
});

describe("the meter of the HTTP gateway (D5)", () => {
  async function toldBy(request: () => Promise<unknown>, count: number): Promise<readonly string[]> {
    const before = told.length;
    await request();
    // A request counts as ended when its last byte is on its way, which may be after its client has it.
    await expect.poll(() => told.length).toBe(before + count);
    return told.slice(before);
  }

  it("is told each request by the route's pattern, and each refusal by its code", async () => {
    expect(await toldBy(() => gateway.request("GET", "/v1/calls/call_1?zebra=1"), 2)).toEqual([
      "http field_unknown",
      "GET /v1/calls/:id 400 true",
    ]);
    expect(await toldBy(() => gateway.request("GET", "/v1/runners"), 1)).toEqual(["GET /v1/runners 200 true"]);
    expect(await toldBy(() => gateway.request("PUT", "/secret/path"), 2)).toEqual(["http route_unknown", "PUT unknown 404 true"]);
    // The router refuses this one before it is a request.
    expect(await toldBy(() => gateway.request("GET", "/%zz"), 1)).toEqual(["http route_unknown"]);
  });

  it("is told what is not HTTP", async () => {
    const refused = toldBy(async () => {
      const socket = await gateway.rawSocket();
      socket.write("nonsense\r\n\r\n");
    }, 1);
    expect(await refused).toEqual(["http body_invalid"]);
  });
});
