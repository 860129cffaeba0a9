import { describe, expect, it } from "vitest";
import {
  acceptedEntry,
  inlineText,
  placed,
  receiptFacts,
  SAMPLE_START_MS,
  sampleHolder,
  sampleRequest,
} from "../../testing/sample-call.js";
import { EVIDENCE_PER_CALL_MAX, SUBMISSION_TIMEOUT_SECONDS_DEFAULT } from "../limits.js";
import type { CallError, CallRequest, CallState, GrantHolder } from "./call-state.js";
import {
  backOffMs,
  callError,
  decideCancel,
  decideDeadline,
  decideExhausted,
  decideLeaseLost,
  decideReceipt,
  decideReconcile,
  RETRY_BACK_OFF,
  type ReceiptContext,
} from "./decide.js";
import type { CallEntry } from "./entries.js";
import { replay } from "./replay.js";

type KnownState = Exclude<CallState, { kind: "requested" }>;

const NOW = SAMPLE_START_MS + 1_000;
const context: ReceiptContext = { nowMs: NOW, random: 0, resultFaults: [] };
const fault = { path: "/total", expected: "integer", actual: "string" };

function stateOf(entries: readonly CallEntry[]): KnownState {
  const { state } = replay(placed(entries), (_entry, reason) => {
    throw new Error(`the story is wrong: ${reason}`);
  });
  if (state.kind === "requested") {
    throw new Error("the story is empty");
  }
  return state;
}

function story(request: Partial<CallRequest> = {}, holder: Partial<GrantHolder> = {}): CallEntry[] {
  return [
    acceptedEntry(sampleRequest(request)),
    { kind: "granted", at: SAMPLE_START_MS, driver: "broker_a", grant: { attempt: 1, holder: sampleHolder(holder) } },
  ];
}

const UNSAFE = { handlerIdempotent: false };
const failure = (error: Partial<CallError> = {}): { outcome: "failed"; value: null; error: CallError } => ({
  outcome: "failed",
  value: null,
  error: callError("handler_error", "it broke", { retryable: true, ...error }),
});

/** The decision's entry appended to the story. */
function follow(entries: readonly CallEntry[], receipt = receiptFacts("entry_2"), how = context): CallEntry[] {
  const decision = decideReceipt(stateOf(entries), receipt, how);
  if (decision.kind !== "append") {
    throw new Error("nothing to append");
  }
  return [...entries, decision.entry];
}

const dispositionOf = (entries: readonly CallEntry[], receipt: ReturnType<typeof receiptFacts>): string => {
  const decision = decideReceipt(stateOf(entries), receipt, context);
  return decision.kind === "append" ? decision.disposition : decision.kind;
};

describe("decideReceipt (G5)", () => {
  it("settles by the newest grant's receipt while the call runs, waits again, or is unknown", () => {
    const lost = (message: string, retryAtMs: number | null): CallEntry => ({
      kind: "lease_lost",
      at: NOW,
      grantId: "entry_2",
      cause: "lease",
      message,
      retryAtMs,
    });
    expect(stateOf(follow(story())).kind).toBe("succeeded");
    expect(stateOf(follow([...story(), lost("", NOW)])).kind).toBe("succeeded");
    expect(stateOf(follow([...story({}, UNSAFE), lost("", null)])).kind).toBe("succeeded");
  });

  it("only acknowledges a repeat of the receipt that settled, and keeps another one as evidence, once", () => {
    const settled = follow(story());
    expect(dispositionOf(settled, receiptFacts("entry_2"))).toBe("repeated");
    const other = receiptFacts("entry_2", { digest: "digest_2" });
    expect(dispositionOf(settled, other)).toBe("evidence");
    expect(dispositionOf(follow(settled, other), other)).toBe("repeated");
    expect(stateOf(follow(settled, other)).kind).toBe("succeeded");
  });

  it("keeps a receipt of a grant that was replaced as evidence, once, while the newer one runs (I5)", () => {
    const regranted: CallEntry[] = [
      ...story(),
      { kind: "lease_lost", at: NOW, grantId: "entry_2", cause: "lease", message: "", retryAtMs: NOW },
      { kind: "granted", at: NOW, driver: "broker_a", grant: { attempt: 2, holder: sampleHolder() } },
    ];
    expect(dispositionOf(regranted, receiptFacts("entry_2"))).toBe("evidence");
    const kept = follow(regranted, receiptFacts("entry_2"));
    expect(stateOf(kept).kind).toBe("running");
    expect(dispositionOf(kept, receiptFacts("entry_2"))).toBe("repeated");
    expect(dispositionOf(kept, receiptFacts("entry_4"))).toBe("settled");
  });

  it("stores nothing of a receipt whose grant is none of the call's", () => {
    expect(dispositionOf(story(), receiptFacts("entry_foreign"))).toBe("expired");
    const waiting = [acceptedEntry(sampleRequest(), { confirmationExpiresAtMs: NOW, deadlineAtMs: null })];
    expect(dispositionOf(waiting, receiptFacts("entry_1"))).toBe("expired");
  });

  it("keeps evidence up to its limit, so that a runner cannot fill the ledger with receipts of one grant", () => {
    let entries = follow(story());
    for (let index = 0; index < EVIDENCE_PER_CALL_MAX; index += 1) {
      entries = follow(entries, receiptFacts("entry_2", { digest: `late_${index}` }));
    }
    expect(dispositionOf(entries, receiptFacts("entry_2", { digest: "one too many" }))).toBe("expired");
    expect(dispositionOf(entries, receiptFacts("entry_2", { digest: "late_0" }))).toBe("repeated");
  });

  it("keeps a receipt after a settled cancel as evidence, and the call cancelled", () => {
    const cancelled: CallEntry[] = [...story(), { kind: "cancelled", at: NOW, error: callError("call_cancelled", ""), letRun: true }];
    expect(dispositionOf(cancelled, receiptFacts("entry_2"))).toBe("evidence");
    expect(stateOf(follow(cancelled)).kind).toBe("cancelled");
  });

  it("only acknowledges repeats of every receipt that led to a retry, also of the first after the second", () => {
    let entries: CallEntry[] = story();
    const receipts = [1, 2].map((attempt) => receiptFacts(`entry_${attempt * 2}`, { attempt, digest: `failed_${attempt}`, ...failure() }));
    for (const [index, receipt] of receipts.entries()) {
      entries = follow(entries, receipt);
      expect(stateOf(entries).kind).toBe("queued");
      expect(dispositionOf(entries, { ...receipt, digest: "changed" })).toBe("evidence");
      entries = [...entries, { kind: "granted", at: NOW, driver: "broker_a", grant: { attempt: index + 2, holder: sampleHolder() } }];
      for (const earlier of receipts.slice(0, index + 1)) {
        expect(dispositionOf(entries, earlier), `after ${index + 1} retries`).toBe("repeated");
      }
    }
    entries = follow(entries, receiptFacts("entry_6"));
    expect(receipts.map((receipt) => dispositionOf(entries, receipt))).toEqual(["repeated", "repeated"]);
  });

  it("submits once, only acknowledges a repeat of that, and settles by the grant's final receipt", () => {
    const handle = receiptFacts("entry_2", { outcome: "submitted", digest: "handle", value: inlineText("job 7") });
    const submitted = follow(story({ submission: true }), handle);
    expect(stateOf(submitted)).toMatchObject({
      kind: "submitted",
      handle: { json: '"job 7"' },
      expiresAtMs: NOW + SUBMISSION_TIMEOUT_SECONDS_DEFAULT * 1_000,
      record: { deadlineAtMs: null },
    });
    expect(dispositionOf(submitted, handle)).toBe("repeated");
    expect(dispositionOf(submitted, { ...handle, digest: "other handle" })).toBe("evidence");
    expect(dispositionOf(submitted, receiptFacts("entry_foreign"))).toBe("expired");
    const final = follow(submitted, receiptFacts("entry_2", { digest: "final" }));
    expect(stateOf(final).kind).toBe("succeeded");
    expect([handle, receiptFacts("entry_2", { digest: "final" })].map((receipt) => dispositionOf(final, receipt))).toEqual([
      "repeated",
      "repeated",
    ]);
  });

  it("takes a submission without a handle as one with the handle null", () => {
    const submitted = follow(story({ submission: true }), receiptFacts("entry_2", { outcome: "submitted", value: null }));
    expect(stateOf(submitted)).toMatchObject({ kind: "submitted", handle: { json: "null" } });
  });

  it("fails a call whose result breaks the output schema, names the first fault and keeps the result (X1)", () => {
    const state = stateOf(follow(story(), receiptFacts("entry_2"), { ...context, resultFaults: [fault, { ...fault, path: "/b" }] }));
    expect(state).toMatchObject({
      kind: "failed",
      settlement: {
        error: { code: "result_invalid", retryable: false, details: [{ path: "/total" }, { path: "/b" }] },
        result: { json: '{"refunded":true}' },
      },
    });
    expect("settlement" in state && state.settlement.error?.message).toMatch(/refund.*"\/total".*integer.*string/);
  });

  it("looks at result faults only where the call succeeded", () => {
    const state = stateOf(follow(story({ maxAttempts: 1 }), receiptFacts("entry_2", failure()), { ...context, resultFaults: [fault] }));
    expect(state).toMatchObject({ kind: "failed", settlement: { error: { code: "handler_error" } } });
  });
});

describe("the retry of a failure (X7)", () => {
  const retryAt = (entries: readonly CallEntry[], error: Partial<CallError> = {}, how = context): number | null => {
    const decision = decideReceipt(stateOf(entries), receiptFacts("entry_2", failure(error)), how);
    return decision.kind === "append" && decision.entry.kind === "receipt" ? decision.entry.retryAtMs : null;
  };

  it("comes after the back-off when the failure says retryable, the call is safe to repeat, and attempts and time are left", () => {
    expect(retryAt(story())).toBe(NOW + 250);
    expect(retryAt(story({ readOnly: true, idempotent: false }, { handlerReadOnly: true, handlerIdempotent: false }))).toBe(NOW + 250);
  });

  it("comes after retry_after when the failure names it", () => {
    expect(retryAt(story(), { retryAfterMs: 7_000 })).toBe(NOW + 7_000);
    expect(retryAt(story(), { retryAfterMs: 0 })).toBe(NOW);
    for (const retryAfterMs of [Number.NaN, -1, Number.POSITIVE_INFINITY]) {
      expect(retryAt(story(), { retryAfterMs })).toBe(NOW + 250);
    }
  });

  it.each<[string, Partial<CallRequest>, Partial<GrantHolder>, Partial<CallError>]>([
    ["the failure is one of the business", {}, {}, { retryable: false }],
    ["the tool is not safe to repeat", { idempotent: false }, {}, {}],
    ["the handler is not safe to repeat: the weaker of both counts", {}, UNSAFE, {}],
    ["no attempt is left", { maxAttempts: 1 }, {}, {}],
    ["no time is left", { timeoutMs: 5_000 }, {}, { retryAfterMs: 4_000 }],
  ])("does not come when %s", (_why, request, holder, error) => {
    expect(retryAt(story(request, holder), error)).toBeNull();
    expect(stateOf(follow(story(request, holder), receiptFacts("entry_2", failure(error)))).kind).toBe("failed");
  });

  it("comes with one millisecond left, not with none", () => {
    expect(retryAt(story({ timeoutMs: 5_000 }), { retryAfterMs: 3_999 })).toBe(NOW + 3_999);
  });

  it("does not come after a cancel was asked for: who cancelled waits for the end (K2)", () => {
    expect(retryAt([...story(), { kind: "cancel_requested", at: NOW, reason: "no" }])).toBeNull();
  });

  it("backs off from 0.5 s, doubling, half of it at random, to 60 s at most", () => {
    expect([1, 2, 3, 4].map((attempt) => backOffMs(attempt, 0))).toEqual([250, 500, 1_000, 2_000]);
    expect([1, 2, 3].map((attempt) => backOffMs(attempt, 0.999_999))).toEqual([500, 1_000, 2_000]);
    expect(backOffMs(1_000, 0.999_999)).toBe(RETRY_BACK_OFF.maxMs);
    expect(backOffMs(0, 0)).toBe(250);
  });
});

describe("decideLeaseLost", () => {
  it("repeats what is safe to repeat, and puts up for reconciliation what is not", () => {
    expect(decideLeaseLost(stateOf(story()), "lease", NOW, 0)).toMatchObject({
      kind: "lease_lost",
      grantId: "entry_2",
      retryAtMs: NOW + 250,
    });
    expect(decideLeaseLost(stateOf(story({}, UNSAFE)), "runner_restarted", NOW, 0)).toMatchObject({
      retryAtMs: null,
      message: /do not repeat/,
    });
  });

  it("ends a call that is safe to repeat and was to be cancelled, instead of running it again (K2)", () => {
    const asked: CallEntry = { kind: "cancel_requested", at: NOW, reason: "the user left" };
    const entry = decideLeaseLost(stateOf([...story(), asked]), "lease", NOW, 0);
    expect(entry).toMatchObject({ kind: "cancelled", error: { code: "call_cancelled", message: "the user left" }, letRun: false });
    expect(decideLeaseLost(stateOf([...story({}, UNSAFE), asked]), "lease", NOW, 0)).toMatchObject({ kind: "lease_lost", retryAtMs: null });
  });

  it("says nothing of a call that does not run", () => {
    expect(decideLeaseLost(stateOf([acceptedEntry(sampleRequest())]), "lease", NOW, 0)).toBeUndefined();
    expect(decideLeaseLost(stateOf(follow(story())), "lease", NOW, 0)).toBeUndefined();
  });
});

describe("decideDeadline", () => {
  const deadlineMs = SAMPLE_START_MS + 300_000;

  it("is silent until the moment, and acts from it on", () => {
    for (const entries of [[acceptedEntry(sampleRequest())], story()]) {
      expect(decideDeadline(stateOf(entries), deadlineMs - 1)).toBeUndefined();
      expect(decideDeadline(stateOf(entries), deadlineMs)).toMatchObject({
        kind: "timed_out",
        error: { code: "call_timed_out", message: /300 s/ },
      });
    }
  });

  it("times out what waits or is safe to repeat, and puts up for reconciliation what is not (X9)", () => {
    const stateAfter = (entries: readonly CallEntry[]): string => {
      const entry = decideDeadline(stateOf(entries), deadlineMs);
      return entry === undefined ? "nothing" : stateOf([...entries, entry]).kind;
    };
    expect(stateAfter([acceptedEntry(sampleRequest())])).toBe("timed_out");
    expect(stateAfter(story())).toBe("timed_out");
    expect(stateAfter(story({}, UNSAFE))).toBe("needs_reconciliation");
    expect(stateAfter(follow(story()))).toBe("nothing");
  });

  it("denies a call that nobody confirmed in time, whatever its deadline", () => {
    const waiting = [acceptedEntry(sampleRequest(), { confirmationExpiresAtMs: NOW, deadlineAtMs: null })];
    expect(decideDeadline(stateOf(waiting), NOW - 1)).toBeUndefined();
    expect(decideDeadline(stateOf(waiting), NOW)).toMatchObject({ kind: "denied", error: { code: "confirmation_expired" } });
  });

  it("times out a submission after its own time, not the call's (X5)", () => {
    const submitted = follow(story(), receiptFacts("entry_2", { outcome: "submitted" }));
    const endMs = NOW + SUBMISSION_TIMEOUT_SECONDS_DEFAULT * 1_000;
    expect(decideDeadline(stateOf(submitted), endMs - 1)).toBeUndefined();
    expect(decideDeadline(stateOf(submitted), endMs)).toMatchObject({ kind: "timed_out" });
  });
});

describe("decideExhausted", () => {
  it("fails a waiting call that has used up its attempts, and no other", () => {
    const lost: CallEntry = { kind: "lease_lost", at: NOW, grantId: "entry_2", cause: "lease", message: "", retryAtMs: NOW };
    expect(decideExhausted(stateOf([...story({ maxAttempts: 1 }), lost]), NOW)).toMatchObject({
      kind: "exhausted",
      error: { code: "attempts_exhausted", message: /all 1/ },
    });
    expect(decideExhausted(stateOf([...story({ maxAttempts: 2 }), lost]), NOW)).toBeUndefined();
    expect(decideExhausted(stateOf(story({ maxAttempts: 1 })), NOW)).toBeUndefined();
  });

  it("does not count an attempt that came back unbegun", () => {
    const back: CallEntry = { kind: "returned", at: NOW, grantId: "entry_2", reason: "unavailable", message: "", notBeforeMs: null };
    expect(decideExhausted(stateOf([...story({ maxAttempts: 1 }), back]), NOW)).toBeUndefined();
  });
});

describe("decideCancel (K1, K2)", () => {
  const modes = ["kill", "skip", "killnowait"] as const;
  const stateAfter = (entries: readonly CallEntry[], mode: (typeof modes)[number]): string => {
    const decision = decideCancel(stateOf(entries), mode, undefined, NOW);
    return decision.kind === "append" ? stateOf([...entries, decision.entry]).kind : decision.kind;
  };
  const lost: CallEntry = { kind: "lease_lost", at: NOW, grantId: "entry_2", cause: "lease", message: "", retryAtMs: null };

  it.each(modes)("settles at once before a grant and after a submission, with %s", (mode) => {
    expect(stateAfter([acceptedEntry(sampleRequest())], mode)).toBe("cancelled");
    expect(stateAfter([acceptedEntry(sampleRequest(), { confirmationExpiresAtMs: NOW, deadlineAtMs: null })], mode)).toBe("cancelled");
    expect(stateAfter(follow(story(), receiptFacts("entry_2", { outcome: "submitted" })), mode)).toBe("cancelled");
  });

  it("asks a running handler with kill, once, and settles at once with skip and killnowait", () => {
    expect(stateAfter(story(), "kill")).toBe("running");
    expect(stateAfter([...story(), { kind: "cancel_requested", at: NOW, reason: "" }], "kill")).toBe("unchanged");
    expect(stateAfter(story(), "skip")).toBe("cancelled");
    expect(stateAfter(story(), "killnowait")).toBe("cancelled");
    expect(decideCancel(stateOf(story()), "skip", "why", NOW)).toMatchObject({ entry: { letRun: true, error: { message: "why" } } });
    expect(decideCancel(stateOf(story()), "killnowait", undefined, NOW)).toMatchObject({ entry: { letRun: false } });
  });

  it("refuses kill when tool or handler cannot be cancelled, and for a call whose outcome nobody knows", () => {
    expect(stateAfter(story({ cancellable: false }), "kill")).toBe("not_cancellable");
    expect(stateAfter(story({}, { handlerCancellable: false }), "kill")).toBe("not_cancellable");
    expect(stateAfter(story({ cancellable: false }), "skip")).toBe("cancelled");
    for (const mode of modes) {
      expect(stateAfter([...story({}, UNSAFE), lost], mode)).toBe("not_cancellable");
      expect(stateAfter(follow(story()), mode)).toBe("unchanged");
    }
  });
});

describe("decideReconcile", () => {
  const unknown: CallEntry[] = [
    ...story({ maxAttempts: 2 }, UNSAFE),
    { kind: "lease_lost", at: NOW, grantId: "entry_2", cause: "lease", message: "", retryAtMs: null },
  ];
  const input = { value: null, resultFaults: [], by: "key", note: null };
  const stateAfter = (entries: readonly CallEntry[], more: Partial<Parameters<typeof decideReconcile>[1]>, nowMs = NOW): KnownState => {
    const entry = decideReconcile(stateOf(entries), { outcome: "applied", ...input, ...more }, nowMs);
    if (entry === undefined) {
      throw new Error("nothing was decided");
    }
    return stateOf([...entries, entry]);
  };

  it("settles as succeeded when it was applied, with the result given or null", () => {
    expect(stateAfter(unknown, { value: inlineText(7) })).toMatchObject({
      kind: "succeeded",
      settlement: { result: { json: "7" }, error: null },
    });
    expect(stateAfter(unknown, {})).toMatchObject({ kind: "succeeded", settlement: { result: { json: "null" } } });
  });

  it("fails with result_invalid when the result given breaks the schema, and keeps it", () => {
    expect(stateAfter(unknown, { value: inlineText(7), resultFaults: [fault] })).toMatchObject({
      kind: "failed",
      settlement: { error: { code: "result_invalid" }, result: { json: "7" } },
    });
  });

  it("runs again what was not applied, while attempts and time are left, else fails with not_applied", () => {
    expect(stateAfter(unknown, { outcome: "not_applied" }).kind).toBe("queued");
    expect(stateAfter(unknown, { outcome: "not_applied" }, SAMPLE_START_MS + 300_000)).toMatchObject({
      kind: "failed",
      settlement: { error: { code: "not_applied" } },
    });
    const usedUp = [...story({ maxAttempts: 1 }, UNSAFE), ...unknown.slice(2)];
    expect(stateAfter(usedUp, { outcome: "not_applied" })).toMatchObject({
      kind: "failed",
      settlement: { error: { code: "not_applied" } },
    });
  });

  it("fails with outcome_unknown when it is given up", () => {
    expect(stateAfter(unknown, { outcome: "abandon", value: inlineText(1) })).toMatchObject({
      kind: "failed",
      settlement: { error: { code: "outcome_unknown" }, result: null },
    });
  });

  it("decides nothing in any other state", () => {
    expect(decideReconcile(stateOf(story()), { outcome: "applied", ...input }, NOW)).toBeUndefined();
    expect(decideReconcile(stateOf(follow(story())), { outcome: "applied", ...input }, NOW)).toBeUndefined();
  });
});
