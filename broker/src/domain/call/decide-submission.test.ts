import { describe, expect, it } from "vitest";
import {
  acceptedEntry,
  placed,
  receiptEntry,
  receiptFacts,
  SAMPLE_START_MS,
  sampleHolder,
  sampleRequest,
} from "../../testing/sample-call.js";
import { SUBMISSION_TIMEOUT_SECONDS_DEFAULT, UPDATES_PER_CALL_MAX } from "../limits.js";
import type { CallState } from "./call-state.js";
import { decideDeadline, decideReceipt } from "./decide.js";
import { decideFinal, decideUpdate, type FinalFacts, type UpdateFacts } from "./decide-submission.js";
import type { CallEntry } from "./entries.js";
import { replay } from "./replay.js";

const AT = SAMPLE_START_MS;
const NOW = AT + 10_000;
const CONTEXT = { nowMs: NOW, random: 0, resultFaults: [] };
const granted: CallEntry = { kind: "granted", at: AT, driver: "broker_a", grant: { attempt: 1, holder: sampleHolder() } };
const handle = receiptEntry(receiptFacts("entry_2", { outcome: "submitted", digest: "handle" }), { submissionExpiresAtMs: NOW + 1 });
const cancelled: CallEntry = {
  kind: "cancelled",
  at: NOW,
  error: { code: "call_cancelled", message: "no", retryable: false, retryAfterMs: null, details: [] },
  letRun: false,
};
const running = [acceptedEntry(sampleRequest()), granted];
const submitted = [...running, handle];

function stateAfter(entries: readonly CallEntry[]): Exclude<CallState, { kind: "requested" }> {
  const { state } = replay(placed(entries), (_entry, reason) => {
    throw new Error(reason);
  });
  if (state.kind === "requested") throw new Error("the story is empty");
  return state;
}

const update = (id: string, digest = "d"): UpdateFacts => ({ id, digest, data: { text: id } });
const final = (digest = "final", more: Partial<FinalFacts> = {}): FinalFacts => ({
  runnerId: "rkey_a",
  digest,
  outcome: "succeeded",
  value: { kind: "inline", json: "7", bytes: 1 },
  error: null,
  ...more,
});
const updated = (id: string, digest = "d"): CallEntry => ({ kind: "updated", at: NOW, updateId: id, digest, data: { text: id } });

describe("updates of a submitted call (X5)", () => {
  it("are stored as progress under the call's next number", () => {
    const decision = decideUpdate(stateAfter(submitted), update("a"), NOW);
    expect(decision).toEqual({ kind: "append", entry: updated("a") });
    const { events } = replay(placed([...submitted, updated("a"), updated("b")]), () => undefined);
    expect(events.slice(-2)).toMatchObject([
      { event: "progress", data: { text: "a" } },
      { event: "progress", data: { text: "b" } },
    ]);
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_event, index) => index + 1));
  });

  it("are stored once for each key, also when the call has settled since", () => {
    const state = stateAfter([...submitted, updated("a"), updated("b")]);
    const seq = state.record.updates[0]?.seq;
    expect(decideUpdate(state, update("a"), NOW)).toEqual({ kind: "stored", seq });
    expect(decideUpdate(state, update("a", "another"), NOW)).toMatchObject({ kind: "refused", code: "idempotency_conflict" });
    const settled = stateAfter([...submitted, updated("a"), cancelled]);
    expect(decideUpdate(settled, update("a"), NOW)).toEqual({ kind: "stored", seq });
    expect(decideUpdate(settled, update("c"), NOW)).toMatchObject({ kind: "refused", code: "call_settled" });
  });

  it("are refused before the handle, and beyond their number", () => {
    expect(decideUpdate(stateAfter(running), update("a"), NOW)).toMatchObject({ kind: "refused", code: "not_submitted" });
    const full = stateAfter([...submitted, ...Array.from({ length: UPDATES_PER_CALL_MAX }, (_, index) => updated(`u${index}`))]);
    expect(decideUpdate(full, update("one more"), NOW)).toMatchObject({ kind: "refused", code: "updates_exhausted" });
    expect(decideFinal(full, final(), null, CONTEXT)).toMatchObject({ kind: "append", refused: false });
  });
});

describe("a final receipt without a grant (X5)", () => {
  const settles = (entries: readonly CallEntry[], facts: FinalFacts, fence: number | null = null) => {
    const decision = decideFinal(stateAfter(entries), facts, fence, CONTEXT);
    return decision.kind === "append" ? { refused: decision.refused, state: stateAfter([...entries, decision.entry]).kind } : decision;
  };

  it("settles a submitted call with each outcome", () => {
    expect(settles(submitted, final())).toEqual({ refused: false, state: "succeeded" });
    expect(settles(submitted, final("f", { outcome: "cancelled", value: null }))).toEqual({ refused: false, state: "cancelled" });
    const error = { code: "no_stock", message: "none", retryable: true, retryAfterMs: 5, details: [] };
    expect(settles(submitted, final("f", { outcome: "failed", value: null, error }))).toEqual({ refused: false, state: "failed" });
  });

  it("is checked against the output schema, and its result is kept when it breaks it (X1)", () => {
    const resultFaults = [{ path: "/a", expected: "string", actual: "7" }];
    const decision = decideFinal(stateAfter(submitted), final(), null, { ...CONTEXT, resultFaults });
    if (decision.kind !== "append") throw new Error(decision.kind);
    expect(stateAfter([...submitted, decision.entry])).toMatchObject({
      kind: "failed",
      settlement: { error: { code: "result_invalid" }, result: { json: "7" } },
    });
  });

  it("is answered as before when it is repeated, and with another outcome is refused and kept", () => {
    const first = decideFinal(stateAfter(submitted), final(), null, CONTEXT);
    if (first.kind !== "append") throw new Error(first.kind);
    const settled = [...submitted, first.entry];
    expect(settles(settled, final())).toEqual({ kind: "stored" });
    expect(settles(settled, final("other"))).toEqual({ refused: true, state: "succeeded" });
    const kept = decideFinal(stateAfter(settled), final("other"), null, CONTEXT);
    if (kept.kind !== "append") throw new Error(kept.kind);
    expect(settles([...settled, kept.entry], final("other"))).toMatchObject({ kind: "refused", code: "receipt_conflict" });
    expect(settles([...submitted, cancelled], final())).toEqual({ refused: true, state: "cancelled" });
  });

  it("settles before the handle arrived only with the newest grant's fence; an older fence is refused (I5)", () => {
    expect(settles(running, final())).toMatchObject({ kind: "refused", code: "not_submitted" });
    const fence = stateAfter(running).record.newestGrant?.fence ?? 0;
    expect(settles(running, final(), fence)).toEqual({ refused: false, state: "succeeded" });
    expect(settles(submitted, final(), fence)).toEqual({ refused: false, state: "succeeded" });
    const lost: CallEntry = { kind: "lease_lost", at: AT, grantId: "entry_2", cause: "lease", message: "silent", retryAtMs: NOW };
    const again = [...running, lost, { ...granted, grant: { attempt: 2, holder: sampleHolder() } }];
    expect(settles(again, final(), fence)).toMatchObject({ kind: "refused", code: "fence_stale" });
    expect(settles([acceptedEntry(sampleRequest())], final(), 1)).toMatchObject({ kind: "refused", code: "not_submitted" });
  });
});

describe("how long a submitted call waits", () => {
  it.each([
    [undefined, SUBMISSION_TIMEOUT_SECONDS_DEFAULT * 1_000],
    [60_000, 60_000],
  ])("is the tool's time, 7 days where it has none (%s)", (submissionTimeoutMs, waitsMs) => {
    const request = sampleRequest(submissionTimeoutMs === undefined ? {} : { submissionTimeoutMs });
    const story = [acceptedEntry(request), granted];
    const decision = decideReceipt(stateAfter(story), receiptFacts("entry_2", { outcome: "submitted" }), CONTEXT);
    if (decision.kind !== "append") throw new Error(decision.kind);
    const state = stateAfter([...story, decision.entry]);
    expect(decideDeadline(state, NOW + waitsMs - 1)).toBeUndefined();
    expect(decideDeadline(state, NOW + waitsMs)).toMatchObject({ kind: "timed_out", error: { code: "call_timed_out" } });
  });
});
