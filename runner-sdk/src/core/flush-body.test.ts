import { describe, expect, it } from "vitest";
import { FLUSH_BYTES_MAX, FLUSH_RECEIPTS_MAX, flushBody } from "./flush-body.js";
import type { Outcome, Receipt } from "./messages.js";

const SENDER = { credential: "k", binding: "shop", subject: "ü", runnerId: "tab_1" };
const receipt = (id: string, outcome: Outcome): Receipt => ({
  callId: `call_${id}`,
  grantId: id,
  fence: 7,
  attempt: 2,
  digest: "d",
  startedAtUnixMs: 1,
  finishedAtUnixMs: 2,
  outcome,
});
const result = (id: string, characters: number, character = "x") =>
  receipt(id, { kind: "succeeded", resultJson: JSON.stringify(character.repeat(characters)) });
const idsIn = (body: string) => (JSON.parse(body) as { receipts: { grant_id: string }[] }).receipts.map(({ grant_id }) => grant_id);

describe("the last request of a page (R4)", () => {
  it("holds receipts of every outcome as the broker reads them, the oldest first", () => {
    const flush = flushBody(SENDER, [
      result("a", 1),
      receipt("b", { kind: "submitted", handleJson: "{}" }),
      receipt("c", { kind: "cancelled", message: "m" }),
      receipt("d", {
        kind: "failed",
        code: "no",
        message: "n",
        retryable: true,
        retryAfterMs: 5,
        details: [{ path: "/a", expected: "b", actual: "c" }],
      }),
    ]);
    const common = { fence: 7, attempt: 2, digest: "d", started_at_unix_ms: 1, finished_at_unix_ms: 2 };
    expect(JSON.parse(flush?.body ?? "")).toEqual({
      credential: "k",
      binding: "shop",
      subject: "ü",
      runner_id: "tab_1",
      receipts: [
        { call_id: "call_a", grant_id: "a", ...common, succeeded: { result_json: '"x"' } },
        { call_id: "call_b", grant_id: "b", ...common, submitted: { handle_json: "{}" } },
        { call_id: "call_c", grant_id: "c", ...common, cancelled: { message: "m" } },
        {
          call_id: "call_d",
          grant_id: "d",
          ...common,
          failed: { code: "no", message: "n", retryable: true, retry_after_ms: 5, details: [{ path: "/a", expected: "b", actual: "c" }] },
        },
      ],
    });
    expect(flush?.count).toBe(4);
    expect(JSON.parse(flushBody({ ...SENDER, subject: "" }, [result("a", 1)])?.body ?? "")).not.toHaveProperty("subject");
  });

  it("is never over its bytes, whatever its texts are made of, and a large receipt holds up no smaller one", () => {
    for (const character of ["x", "ü", "😀", "\u0000", '"']) {
      const sizes = [40_000, 9_000, 70_000, 3_000, 20_000, 1, 500];
      const flush = flushBody(
        SENDER,
        sizes.map((size, index) => result(`r${index}`, size, character)),
      );
      const bytes = Buffer.byteLength(flush?.body ?? "");
      expect(bytes).toBeLessThanOrEqual(FLUSH_BYTES_MAX);
      expect(bytes).toBeGreaterThan(3_000);
      expect(idsIn(flush?.body ?? "")).toEqual(expect.arrayContaining(["r5", "r6"]));
      expect(idsIn(flush?.body ?? "")).not.toContain("r2");
    }
    expect(idsIn(flushBody(SENDER, [result("a", 40_000), result("b", 40_000), result("c", 10)])?.body ?? "")).toEqual(["a", "c"]);
  });

  it("fills its room to the byte", () => {
    const empty = Buffer.byteLength(flushBody(SENDER, [result("a", 0)])?.body ?? "");
    expect(Buffer.byteLength(flushBody(SENDER, [result("a", FLUSH_BYTES_MAX - empty)])?.body ?? "")).toBe(FLUSH_BYTES_MAX);
    expect(flushBody(SENDER, [result("a", FLUSH_BYTES_MAX - empty + 1)])).toBeNull();
  });

  it("is at most so many receipts, and none at all for none", () => {
    const many = Array.from({ length: 400 }, (_, index) => result(`r${index}`, 0));
    expect(flushBody({ ...SENDER, subject: "" }, many)?.count).toBeLessThanOrEqual(FLUSH_RECEIPTS_MAX);
    expect(flushBody(SENDER, [])).toBeNull();
  });
});
