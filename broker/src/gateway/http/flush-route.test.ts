/** `POST /v1/runner/flush`: what a closing page may send, and every way in which it can be wrong. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { BrokerError } from "../../domain/broker-error.js";
import type { FlushedReceipt, FlushRequest } from "../../wire/operations.js";
import { type Answer, errorOf, startTestGateway, stopTestGateways, type TestGateway } from "../testing/http-kit.js";
import { FLUSH_BODY_BYTES_MAX, FLUSH_RECEIPTS_MAX } from "./flush-route.js";

const PATH = "/v1/runner/flush";
const RECEIPT = {
  call_id: "call_1",
  grant_id: "entry_1",
  fence: "9007199254740991",
  attempt: 1,
  digest: "a".repeat(64),
  finished_at_unix_ms: 5,
  succeeded: { result_json: '"ü"' },
};
const BODY = { credential: "rk_1", binding: "shop", subject: "user_1", runner_id: "tab_1", receipts: [RECEIPT] };

let gateway: TestGateway;
let asked: FlushRequest[] = [];
let answer: (request: FlushRequest) => Promise<readonly FlushedReceipt[]>;
beforeAll(async () => {
  gateway = await startTestGateway({
    flush: {
      flush(request) {
        asked.push(request);
        return answer(request);
      },
    },
  });
});
beforeEach(() => {
  asked = [];
  answer = async ({ receipts }) => receipts.map(() => ({ kind: "taken", disposition: "settled" }));
});
afterAll(stopTestGateways);

const send = (body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> =>
  gateway.request("POST", PATH, typeof body === "string" || body instanceof Buffer ? body : JSON.stringify(body), {
    authorization: "",
    "content-type": "text/plain;charset=UTF-8",
    ...headers,
  });

describe("POST /v1/runner/flush (R4)", () => {
  it("takes text without any header of its own, and answers each receipt in order", async () => {
    answer = async () => [
      { kind: "taken", disposition: "repeated" },
      { kind: "refused", message: "receipt: digest: expected 64 hexadecimal digits (SHA-256)" },
      { kind: "failed", error: new Error("secret cause") },
    ];
    const { status, json } = await send({ ...BODY, receipts: [RECEIPT, { ...RECEIPT, grantId: "entry_2", grant_id: undefined }, RECEIPT] });
    expect(status).toBe(200);
    expect(json).toEqual({
      data: [
        { call_id: "call_1", grant_id: "entry_1", disposition: "repeated", error: null },
        { call_id: "call_1", grant_id: "entry_2", disposition: null, error: expect.objectContaining({ code: "body_invalid" }) },
        { call_id: "call_1", grant_id: "entry_1", disposition: null, error: expect.objectContaining({ code: "internal" }) },
      ],
    });
    expect(JSON.stringify(json)).not.toContain("secret");
    expect(asked[0]).toMatchObject({ credential: "rk_1", binding: "shop", subject: "user_1", runnerId: "tab_1" });
    expect(asked[0]?.receipts[0]?.outcome).toEqual({ $case: "succeeded", value: { resultJson: '"ü"' } });
  });

  it("lets the page that sent it read the answer, and no origin that may not open a session send anything", async () => {
    const page = await send(BODY, { origin: "http://localhost:5173" });
    expect([page.status, page.headers.get("access-control-allow-origin"), page.headers.get("vary")]).toEqual([
      200,
      "http://localhost:5173",
      "Origin",
    ]);
    expect(page.headers.get("access-control-allow-credentials")).toBeNull();
    asked = [];
    for (const headers of [{ origin: "https://evil.example" }, { origin: "null" }, { origin: "file://" }]) {
      const refused = await send(BODY, headers);
      expect([refused.status, errorOf(refused).code, refused.headers.get("access-control-allow-origin")]).toEqual([
        403,
        "origin_not_permitted",
        null,
      ]);
    }
    expect(asked).toEqual([]);
  });

  it("refuses what is not of its form, with the fault's path, before it asks anybody", async () => {
    const bad: readonly (readonly [unknown, string, Readonly<Record<string, string>>?])[] = [
      ["", "/credential"],
      ["{", ""],
      ["[]", ""],
      ["null", ""],
      [Buffer.from([0x7b, 0xff, 0x7d]), ""],
      [{}, "/credential"],
      [{ ...BODY, credential: undefined }, "/credential"],
      [{ ...BODY, credential: "" }, "/credential"],
      [{ ...BODY, credential: 7 }, "/credential"],
      [{ ...BODY, credential: "k".repeat(8_193) }, "/credential"],
      [{ ...BODY, binding: ["shop"] }, "/binding"],
      [{ ...BODY, binding: "b".repeat(257) }, "/binding"],
      [{ ...BODY, subject: null }, "/subject"],
      [{ ...BODY, subject: "s".repeat(257) }, "/subject"],
      [{ ...BODY, runner_id: "" }, "/runner_id"],
      [{ ...BODY, receipts: {} }, "/receipts"],
      [{ ...BODY, receipts: [] }, "/receipts"],
      [{ ...BODY, receipts: Array(FLUSH_RECEIPTS_MAX + 1).fill({}) }, "/receipts"],
      [{ ...BODY, receipts: [RECEIPT, null] }, "/receipts/1"],
      [{ ...BODY, receipts: ["receipt"] }, "/receipts/0"],
      [{ ...BODY, receipts: [{ ...RECEIPT, fence: "many" }] }, "/receipts/0"],
      [{ ...BODY, receipts: [RECEIPT, { ...RECEIPT, attempt: -1 }] }, "/receipts/1"],
      [{ ...BODY, receipts: [{ ...RECEIPT, failed: { code: "x" } }] }, "/receipts/0"],
      [{ ...BODY, receipts: [{ ...RECEIPT, succeeded: "yes" }] }, "/receipts/0"],
      [{ ...BODY, zebra: 1 }, "/zebra"],
      [BODY, "", { "content-type": "application/json" }],
      [BODY, "", { "content-type": "text/html" }],
      [BODY, "", { "content-type": "text/plain; charset=utf-16" }],
      [BODY, "", { "content-encoding": "gzip" }],
    ];
    for (const [body, path, headers] of bad) {
      const refused = await send(body, headers);
      const { code, details } = errorOf(refused);
      expect([
        JSON.stringify(body).slice(0, 120),
        headers,
        refused.status,
        code,
        details?.some((detail) => detail.path === path) || path === "",
      ]).toEqual([JSON.stringify(body).slice(0, 120), headers, 400, path === "/zebra" ? "field_unknown" : "body_invalid", true]);
      expect(refused.text).not.toContain("rk_1");
    }
    expect(asked).toEqual([]);
  });

  it("is at most 64 KiB, takes no query, and has no other method", async () => {
    const padded = `${JSON.stringify(BODY)}${" ".repeat(FLUSH_BODY_BYTES_MAX - Buffer.byteLength(JSON.stringify(BODY)))}`;
    expect((await send(padded)).status).toBe(200);
    expect(await send(`${padded} `)).toMatchObject({ status: 413 });
    const query = await gateway.request("POST", `${PATH}?credential=rk_1`, JSON.stringify(BODY), { "content-type": "text/plain" });
    expect([query.status, errorOf(query).code]).toEqual([400, "field_unknown"]);
    for (const method of ["GET", "PUT", "DELETE", "PATCH"]) expect((await gateway.request(method, PATH)).status).toBe(404);
    const options = await gateway.request("OPTIONS", PATH);
    expect([options.status, options.headers.get("allow"), options.headers.get("access-control-allow-origin")]).toEqual([
      204,
      "POST, OPTIONS",
      null,
    ]);
  });

  it("passes on a refusal of all of it, and says nothing of what nobody foresaw", async () => {
    answer = async () => {
      throw new BrokerError("key_invalid", "The credential is unknown, revoked, or not a runner key.");
    };
    expect(await send(BODY)).toMatchObject({ status: 401 });
    answer = async () => {
      throw new Error("secret cause");
    };
    const failed = await send(BODY, { origin: "http://localhost:1" });
    expect([failed.status, errorOf(failed).code, failed.text.includes("secret")]).toEqual([500, "internal", false]);
    expect(JSON.stringify(gateway.log.lines)).not.toContain("rk_1");
  });
});
