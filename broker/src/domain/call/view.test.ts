import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyWalk, forAll, walk } from "../../testing/arbitrary-call.js";
import {
  acceptedEntry,
  inlineText,
  placed,
  receiptEntry,
  receiptFacts,
  SAMPLE_START_MS,
  sampleHolder,
  sampleRequest,
} from "../../testing/sample-call.js";
import { type CallView, isSettled } from "../call-view.js";
import { RESULT_INLINE_BYTES_MAX } from "../limits.js";
import type { CallState, StoredText } from "./call-state.js";
import { callError } from "./decide.js";
import type { CallEntry } from "./entries.js";
import { replay } from "./replay.js";
import { callView, errorView, eventView, resultRef, type ViewOptions } from "./view.js";

const AT = SAMPLE_START_MS;
const options: ViewOptions = { modelText: (code, message) => `[${code}] ${message}` };

function stateOf(entries: readonly CallEntry[]): Exclude<CallState, { kind: "requested" }> {
  const { state } = replay(placed(entries), (_entry, reason) => {
    throw new Error(`the story is wrong: ${reason}`);
  });
  if (state.kind === "requested") {
    throw new Error("the story is empty");
  }
  return state;
}

const view = (entries: readonly CallEntry[], more: Partial<ViewOptions> = {}): CallView =>
  callView(stateOf(entries), { ...options, ...more });

const request = sampleRequest({ subject: "user_42", session: "chat_1" });
const queued = [acceptedEntry(request)];
const granted: CallEntry = { kind: "granted", at: AT + 100, driver: "broker_a", grant: { attempt: 1, holder: sampleHolder() } };
const running = [...queued, granted];
const runningUnsafe: CallEntry[] = [
  ...queued,
  { kind: "granted", at: AT, driver: "broker_a", grant: { attempt: 1, holder: sampleHolder({ handlerIdempotent: false }) } },
];
const lost: CallEntry = {
  kind: "lease_lost",
  at: AT,
  grantId: "entry_2",
  cause: "lease",
  message: "the runner went silent",
  retryAtMs: null,
};
const settledBy = (receipt: Partial<ReturnType<typeof receiptFacts>>): CallEntry[] => [
  ...running,
  receiptEntry(receiptFacts("entry_2", { attempt: 1, fence: 2, ...receipt })),
];

/** What every view of the sample call shows. */
const COMMON = {
  type: "call",
  id: "call_sample",
  toolset: "shop",
  toolset_version: 3,
  tool: "refund",
  binding: "shop",
  agent: "helper",
  subject: "user_42",
  session: "chat_1",
  created_at: "2026-01-01T00:00:00.000Z",
};
const NOTHING_YET = { settled_at: null, receipt: null, result: null, result_ref: null, error: null, model_result: null };
const DEADLINE = "2026-01-01T00:05:00.000Z";

describe("callView", () => {
  it("shows a call that a person must confirm, without a deadline: the time stands still (X9)", () => {
    const entries = [acceptedEntry(request, { confirmationExpiresAtMs: AT + 600_000, deadlineAtMs: null })];
    expect(view(entries)).toEqual({
      ...COMMON,
      ...NOTHING_YET,
      state: "awaiting_confirmation",
      attempt: 0,
      waiting_for: "confirmation",
      deadline_at: null,
    });
  });

  it("shows a waiting call with what it waits for, as its driver knows it or as the log says", () => {
    expect(view(queued)).toEqual({ ...COMMON, ...NOTHING_YET, state: "queued", attempt: 0, waiting_for: null, deadline_at: DEADLINE });
    const told: CallEntry = { kind: "waiting", at: AT, waitingFor: "handler" };
    expect(view([...queued, told]).waiting_for).toBe("handler");
    expect(view([...queued, told], { waitingFor: "capacity" }).waiting_for).toBe("capacity");
  });

  it("shows a running call, which waits for nothing", () => {
    expect(view(running, { waitingFor: "runner" })).toEqual({
      ...COMMON,
      ...NOTHING_YET,
      state: "running",
      attempt: 1,
      waiting_for: null,
      deadline_at: DEADLINE,
    });
  });

  it("shows a success with result, receipt and the compact JSON for the model", () => {
    const entries = settledBy({ value: inlineText("done"), digest: "sha", runnerId: "runner_b" });
    expect(view(entries)).toEqual({
      ...COMMON,
      state: "succeeded",
      attempt: 1,
      waiting_for: null,
      deadline_at: DEADLINE,
      settled_at: "2026-01-01T00:00:01.000Z",
      receipt: {
        attempt: 1,
        fence: 2,
        outcome: "succeeded",
        runner_id: "runner_b",
        received_at: "2026-01-01T00:00:01.000Z",
        digest: "sha",
      },
      result: "done",
      result_ref: null,
      error: null,
      // A string keeps its quotes.
      model_result: { text: '"done"', bytes_before: 6, bytes_after: 6, truncated: false },
    });
  });

  it("shows a success without a value as null, also to the model", () => {
    expect(view(settledBy({ value: null }))).toMatchObject({ result: null, model_result: { text: "null" } });
  });

  it("shows a submission as the handle, with its receipt and without a deadline (X5)", () => {
    const entries = [
      ...running,
      receiptEntry(receiptFacts("entry_2", { outcome: "submitted", value: inlineText({ job: 7 }) }), { submissionExpiresAtMs: AT + 9 }),
    ];
    expect(view(entries)).toMatchObject({
      state: "submitted",
      settled_at: null,
      deadline_at: null,
      result: { job: 7 },
      receipt: { outcome: "submitted" },
      error: null,
      model_result: { text: '{"job":7}' },
    });
  });

  it("tells the model of a call whose outcome is unknown not to repeat it, and shows no error (I6)", () => {
    expect(view([...runningUnsafe, lost])).toMatchObject({
      state: "needs_reconciliation",
      settled_at: null,
      error: null,
      result: null,
      model_result: { text: "[outcome_unknown] the runner went silent", truncated: false },
    });
  });

  it("shows a failure's error with its seconds and details, and a short text for the model", () => {
    const details = [{ path: "/a", expected: "b", actual: "c" }];
    const error = callError("out_of_stock", "nothing left", { retryable: true, retryAfterMs: 1_500, details });
    expect(view(settledBy({ outcome: "failed", value: null, error }))).toMatchObject({
      state: "failed",
      result: null,
      receipt: { outcome: "failed" },
      error: { code: "out_of_stock", message: "nothing left", retryable: true, retry_after_seconds: 1.5, details },
      model_result: { text: "[out_of_stock] nothing left" },
    });
  });

  it("shows a result that broke its schema beside the error, and tells the model the error (X1)", () => {
    const entries = [
      ...running,
      receiptEntry(receiptFacts("entry_2", { value: inlineText(7) }), { fault: callError("result_invalid", "bad") }),
    ];
    expect(view(entries)).toMatchObject({
      state: "failed",
      result: 7,
      receipt: { outcome: "succeeded" },
      error: { code: "result_invalid" },
      model_result: { text: "[result_invalid] bad" },
    });
  });

  it.each<[string, CallEntry[], string]>([
    [
      "cancelled",
      [...queued, { kind: "cancelled", at: AT, error: callError("call_cancelled", "stop"), letRun: false }],
      "[call_cancelled] stop",
    ],
    ["cancelled", settledBy({ outcome: "cancelled", value: null }), "[call_cancelled] the call was cancelled"],
    ["timed_out", [...queued, { kind: "timed_out", at: AT, error: callError("call_timed_out", "late") }], "[call_timed_out] late"],
    [
      "denied",
      [
        acceptedEntry(request, { confirmationExpiresAtMs: AT, deadlineAtMs: null }),
        { kind: "denied", at: AT, error: callError("confirmation_denied", "no") },
      ],
      "[confirmation_denied] no",
    ],
  ])("shows a call that is %s with an error and a text for the model", (state, entries, text) => {
    expect(view(entries)).toMatchObject({
      state,
      result: null,
      model_result: { text, truncated: false },
      error: { retry_after_seconds: null },
    });
  });

  it("leaves a result over 256 KiB out and gives its address, not at the limit itself", () => {
    const sized = (bytes: number): StoredText => {
      const json = JSON.stringify("a".repeat(bytes - 2));
      return { kind: "inline", json, bytes };
    };
    const whole = view(settledBy({ value: sized(RESULT_INLINE_BYTES_MAX) }));
    expect(whole).toMatchObject({ result_ref: null });
    expect(whole.result).toHaveLength(RESULT_INLINE_BYTES_MAX - 2);
    const large = view(settledBy({ value: sized(RESULT_INLINE_BYTES_MAX + 1) }));
    expect(large).not.toHaveProperty("result");
    expect(large).toMatchObject({
      result_ref: "/v1/calls/call_sample/result",
      model_result: { truncated: true, bytes_before: RESULT_INLINE_BYTES_MAX + 1 },
    });
  });

  it("shows the model a result from a blob by the text that was loaded", () => {
    const json = JSON.stringify("b".repeat(300_000));
    const value: StoredText = { kind: "blob", name: "call_sample/entry_3", bytes: Buffer.byteLength(json) };
    const shown = view(settledBy({ value }), { blobText: json });
    expect(shown).not.toHaveProperty("result");
    expect(shown.model_result?.text).toMatch(/^"bbb[\s\S]* bytes cut [\s\S]*bbb"$/);
    expect(shown.model_result?.bytes_before).toBe(300_002);
  });

  it("refuses to show a call whose result is in a blob that was not loaded: the model would be told null", () => {
    const value: StoredText = { kind: "blob", name: "call_sample/entry_3", bytes: 300_000 };
    expect(() => view(settledBy({ value }))).toThrow(/call_sample\/entry_3/);
  });

  it("keeps texts for the model within the tool's budget", () => {
    const small = sampleRequest({ modelResultBytesMax: 1_024 });
    const entries: CallEntry[] = [
      acceptedEntry(small),
      granted,
      receiptEntry(receiptFacts("entry_2", { outcome: "failed", error: callError("handler_error", "x".repeat(5_000)) })),
    ];
    const { model_result: shown } = view(entries);
    expect(shown).toMatchObject({ truncated: true });
    expect(shown?.bytes_after).toBeLessThanOrEqual(1_024);
  });

  it("shows for any call: times and an error or a result exactly where it is settled, a text for the model once the turn is answered", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        for (const { after } of walk(seed)) {
          if (after.kind === "requested") {
            continue;
          }
          const inline = structuredClone(after);
          const shown = callView(inline, { ...options, blobText: '"from a blob"' });
          expect(shown.settled_at !== null).toBe(isSettled(shown.state));
          expect(shown.model_result !== null).toBe(isSettled(shown.state) || ["submitted", "needs_reconciliation"].includes(shown.state));
          expect(shown.error !== null).toBe(isSettled(shown.state) && shown.state !== "succeeded");
          expect(shown.waiting_for === "confirmation").toBe(shown.state === "awaiting_confirmation");
          expect(JSON.parse(JSON.stringify(shown))).toMatchObject({ type: "call", id: "call_sample", state: after.kind });
        }
      }),
      150,
    );
  });
});

describe("the parts of a view", () => {
  it("name a result's address", () => {
    expect(resultRef("call_x")).toBe("/v1/calls/call_x/result");
  });

  it("give an error without a retry no seconds", () => {
    expect(errorView(callError("handler_error", "m"))).toEqual({
      code: "handler_error",
      message: "m",
      retryable: false,
      retry_after_seconds: null,
      details: [],
    });
  });

  it("show an event with its call, number and time", () => {
    expect(eventView("call_x", { seq: 3, atMs: AT, event: "granted", data: { attempt: 1 } })).toEqual({
      type: "event",
      call_id: "call_x",
      seq: 3,
      at: "2026-01-01T00:00:00.000Z",
      event: "granted",
      data: { attempt: 1 },
    });
  });
});
