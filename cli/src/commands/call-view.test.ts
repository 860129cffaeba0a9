import { describe, expect, it } from "vitest";
import { describeCall, exitCodeOf } from "./call-view.js";

const CALL = {
  id: "call_1",
  toolset: "shop",
  tool: "refund",
  state: "queued",
  attempt: 0,
  waiting_for: null,
  created_at: "2026-01-01T00:00:00.000Z",
  deadline_at: "2026-01-01T00:05:00.000Z",
  settled_at: null,
  receipt: null,
  result: null,
  result_ref: null,
  error: null,
};

describe("the exit code of a call", () => {
  it.each([
    ["succeeded", 0],
    ["submitted", 0],
    ["failed", 1],
    ["cancelled", 1],
    ["timed_out", 1],
    ["denied", 1],
    ["queued", 3],
    ["running", 3],
    ["awaiting_confirmation", 3],
    ["needs_reconciliation", 3],
    [undefined, 3],
  ])("%s is %i", (state, code) => {
    expect(exitCodeOf(state)).toBe(code);
  });
});

describe("a call for people", () => {
  it("says what an open call waits for, and until when", () => {
    expect(describeCall({ ...CALL, waiting_for: "runner" })).toBe(
      "call_1  shop/refund  queued, waits for runner\n  attempt 0, until 2026-01-01T00:05:00.000Z\n",
    );
  });

  it("shows a text as it is, anything else as indented JSON, and where a large result is", () => {
    const settled = { ...CALL, state: "succeeded", settled_at: "2026-01-01T00:00:01.500Z", receipt: { runner_id: "r1" }, attempt: 1 };
    expect(describeCall({ ...settled, result: "two\nlines" })).toBe(
      "call_1  shop/refund  succeeded\n  attempt 1, runner r1, 1500 ms\ntwo\nlines\n",
    );
    expect(describeCall({ ...settled, result: { a: [1] } })).toMatch(/\n\{\n {2}"a": \[\n {4}1\n {2}\]\n\}\n$/);
    expect(describeCall({ ...settled, result: undefined, result_ref: "/v1/calls/call_1/result" })).toContain(
      "read it at /v1/calls/call_1/result",
    );
  });

  it("names the error and each of its details", () => {
    const error = { code: "result_invalid", message: "no", details: [{ path: "/a", expected: "string", actual: "number" }] };
    expect(describeCall({ ...CALL, state: "failed", error })).toContain("  result_invalid: no\n    /a: expected string, got number\n");
  });

  it("lets no control character of a result or an error reach the terminal", () => {
    const hostile = "\u001b[2J\u0007red\u009b31m\rover\ttab\u202e";
    const text = describeCall({ ...CALL, result: hostile, error: { code: hostile, message: `${hostile}\n${hostile}`, details: [] } });
    expect(text.replace(/[\n\t]/g, "")).not.toMatch(/\p{Cc}/u);
    expect(text.split("\n")).toHaveLength(5);
  });
});
