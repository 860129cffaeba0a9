import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyEntry, anyWalk, forAll, type WalkStep, walk } from "../../testing/arbitrary-call.js";
import {
  acceptedEntry,
  placed,
  receiptEntry,
  receiptFacts,
  SAMPLE_START_MS,
  sampleHolder,
  sampleRequest,
} from "../../testing/sample-call.js";
import { SETTLED_STATES } from "../call-view.js";
import { PROGRESS_EVENTS_PER_ATTEMPT_MAX } from "../limits.js";
import { type CallState, isSettledState } from "./call-state.js";
import type { CallEntry } from "./entries.js";
import { replay } from "./replay.js";
import { type Transition, transition } from "./transition.js";

const AT = SAMPLE_START_MS;
const granted: CallEntry = { kind: "granted", at: AT, driver: "broker_a", grant: { attempt: 1, holder: sampleHolder() } };

/** The last step of a story in which every entry is accepted. */
function lastOf(entries: readonly CallEntry[]): Transition {
  let last: Transition | undefined;
  let state: CallState = { kind: "requested" };
  for (const entry of placed(entries)) {
    const outcome = transition(state, entry);
    if (outcome.kind === "rejected") {
      throw new Error(`the story is wrong: ${outcome.reason}`);
    }
    last = outcome;
    state = outcome.state;
  }
  if (last === undefined) {
    throw new Error("the story is empty");
  }
  return last;
}

const settledNames: readonly string[] = SETTLED_STATES;

function forAllSteps(check: (step: WalkStep, index: number, steps: readonly WalkStep[]) => void): void {
  forAll(
    fc.property(anyWalk, (seed) => {
      for (const [index, step] of walk(seed).entries()) {
        check(step, index, walk(seed));
      }
    }),
    150,
  );
}

describe("transition, for any entries in any order", () => {
  it("is total: every entry of any kind moves any state or is rejected with a reason, and nothing throws", () => {
    forAll(
      fc.property(anyWalk, fc.array(anyEntry, { maxLength: 6 }), (seed, foreign) => {
        const states: CallState[] = [{ kind: "requested" }, ...walk(seed).map(({ after }) => after)];
        for (const state of states) {
          for (const entry of foreign) {
            const outcome = transition(state, { ...entry, entryId: "entry_foreign", version: 1_000 });
            if (outcome.kind === "rejected") {
              expect(outcome.reason).toContain(state.kind);
            } else {
              expect(outcome.state.kind).toBe(outcome.edge.to);
            }
          }
        }
      }),
      200,
    );
  });

  it("is total for times that no date can have", () => {
    for (const at of [Number.NaN, Number.POSITIVE_INFINITY, -1e300, 1e300]) {
      const accepted = acceptedEntry(sampleRequest(), { at, confirmationExpiresAtMs: at });
      expect(transition({ kind: "requested" }, { ...accepted, entryId: "entry_1", version: 1 }).kind).toBe("moved");
      const failed = receiptEntry(receiptFacts("entry_2", { outcome: "failed" }), { at, retryAtMs: at });
      expect(lastOf([acceptedEntry(sampleRequest()), granted, failed]).state.kind).toBe("queued");
      const lost: CallEntry = { kind: "lease_lost", at, grantId: "entry_2", cause: "lease", message: "", retryAtMs: at };
      expect(lastOf([acceptedEntry(sampleRequest()), granted, lost]).state.kind).toBe("queued");
    }
  });

  it("is pure: it changes neither the state nor the entry, and answers the same again", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        for (const { before, entry } of walk(seed)) {
          const copy = structuredClone({ before, entry });
          expect(transition(before, entry)).toEqual(transition(copy.before, copy.entry));
          expect({ before, entry }).toEqual(copy);
        }
      }),
      80,
    );
  });

  it("never changes a settled state's kind or settlement (I4)", () => {
    forAllSteps(({ before, after }) => {
      if (isSettledState(before)) {
        expect(after.kind).toBe(before.kind);
        expect("settlement" in after && after.settlement).toEqual(before.settlement);
      }
    });
  });

  it("settles at most once, tells so once, and tells only of late receipts afterwards (I4, I6)", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        const steps = walk(seed);
        const settling = steps.filter(({ before, after }) => !settledNames.includes(before.kind) && settledNames.includes(after.kind));
        expect(settling.length).toBeLessThanOrEqual(1);
        expect(steps.flatMap(({ effects }) => effects).filter((kind) => kind === "settled")).toHaveLength(settling.length);
        const told = steps.flatMap(({ events }) => events).map(({ event }) => event);
        const end = told.indexOf("settled");
        expect(end >= 0).toBe(settling.length === 1);
        if (end >= 0) {
          expect(new Set(told.slice(end + 1))).toEqual(new Set(told.length > end + 1 ? ["late_receipt"] : []));
        }
      }),
      200,
    );
  });

  it("numbers events from 1 and by one, with gaps only where progress was told live or a driver may have told it", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        let next = 1;
        for (const { entry, edge, events, after } of walk(seed)) {
          if (edge === undefined) {
            continue;
          }
          const mayGap = entry.live !== undefined || entry.kind === "adopted";
          for (const { seq } of events) {
            expect(seq).toBeGreaterThanOrEqual(next);
            if (!mayGap) {
              expect(seq).toBe(next);
            }
            next = seq + 1;
          }
          const last = "record" in after ? after.record.eventSeq : 0;
          expect(last).toBeGreaterThanOrEqual(next - 1);
          if (!mayGap) {
            expect(last).toBe(next - 1);
          }
          next = last + 1;
        }
      }),
      200,
    );
  });

  it("gives fences that rise strictly, each the version of its grant's entry (I2)", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        let fence = 0;
        for (const { entry, edge, after } of walk(seed)) {
          const grants = edge !== undefined && (entry.kind === "granted" || (entry.kind === "accepted" && entry.grant !== null));
          if (grants && after.kind === "running") {
            expect(after.grant.fence).toBe(entry.version);
            expect(after.grant.grantId).toBe(entry.entryId);
            expect(after.grant.fence).toBeGreaterThan(fence);
            fence = after.grant.fence;
          }
        }
      }),
      200,
    );
  });

  it("settles, submits or repeats by a receipt only when it is the newest grant's (I5)", () => {
    forAllSteps(({ before, entry, edge }) => {
      if (entry.kind === "receipt" && edge !== undefined) {
        expect("record" in before && before.record.newestGrant?.grantId).toBe(entry.receipt.grantId);
      }
    });
  });

  it("begins a call that is not safe to repeat a second time only after it was found not to have begun or not to be applied (I3)", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        let mayHaveBegun = false;
        let known = false;
        for (const { before, entry, edge, after } of walk(seed)) {
          if (edge === undefined) {
            continue;
          }
          if (after.kind === "running" && before.kind !== "running") {
            expect(mayHaveBegun, `granted again at version ${entry.version}`).toBe(false);
          }
          if (after.kind === "running") {
            const { request } = after.record;
            const { handlerReadOnly, handlerIdempotent } = after.grant;
            const safe = (request.readOnly || request.idempotent) && (handlerReadOnly || handlerIdempotent);
            mayHaveBegun = mayHaveBegun || !safe;
            known = after.record.startedAtMs !== null;
          }
          const unstarted = entry.kind === "returned" && after.kind === "queued" && !known;
          if (unstarted || (entry.kind === "reconciled" && entry.outcome === "not_applied")) {
            mayHaveBegun = false;
          }
        }
      }),
      300,
    );
  });

  it("counts grants that began: one that came back does not count", () => {
    forAllSteps(({ before, entry, edge, after }) => {
      if (edge?.on === "returned" && after.kind === "queued" && before.kind === "running") {
        expect(after.record.attempts).toBe(before.grant.attempt - 1);
      } else if (edge !== undefined && entry.kind !== "granted" && "record" in before && "record" in after) {
        expect(after.record.attempts).toBe(before.record.attempts);
      }
    });
  });

  it("replays to the same state and events as entry by entry, and passes over what is rejected", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        const steps = walk(seed);
        const rejected: string[] = [];
        const replayed = replay(
          steps.map(({ entry }) => entry),
          (entry) => void rejected.push(entry.entryId),
        );
        expect(replayed.state).toEqual(steps.at(-1)?.after);
        expect(replayed.events).toEqual(steps.flatMap(({ events }) => events));
        expect(rejected).toEqual(steps.filter(({ edge }) => edge === undefined).map(({ entry }) => entry.entryId));
      }),
      150,
    );
  });

  it("frees a runner that is told nothing else: a running grant that ends by anything but its own news is revoked", () => {
    forAllSteps(({ before, entry, edge, after, effects }) => {
      if (before.kind === "needs_reconciliation") {
        // A handler that is asked is told when its answer is no more wanted.
        expect(effects.includes("revoke")).toBe(before.asked !== null && after.kind !== "needs_reconciliation");
        return;
      }
      if (edge === undefined || before.kind !== "running" || after.kind === "running") {
        expect(edge === undefined || before.kind === "submitted" || !effects.includes("revoke")).toBe(true);
        return;
      }
      const fromRunner = entry.kind === "receipt" || entry.kind === "returned" || (entry.kind === "cancelled" && entry.letRun);
      expect(effects.includes("revoke"), entry.kind).toBe(!fromRunner);
    });
  });

  it("asks the handler for whom a question is stored, and again when it did not say and is to be asked again (G4)", () => {
    forAllSteps(({ entry, edge, effects }) => {
      expect(effects.includes("send_reconcile")).toBe(edge !== undefined && entry.kind === "reconcile_granted");
      expect(effects.includes("reconcile_again")).toBe(
        edge !== undefined && entry.kind === "reconcile_unanswered" && entry.askAgainAtMs !== null,
      );
    });
  });

  it("looks for a runner whenever a call comes to wait, and never otherwise", () => {
    forAllSteps(({ entry, edge, after, effects }) => {
      const comesToWait = edge !== undefined && after.kind === "queued" && entry.kind !== "waiting" && entry.kind !== "evidence";
      expect(effects.includes("offer")).toBe(comesToWait);
    });
  });
});

describe("transition, step by step", () => {
  const accepted = acceptedEntry(sampleRequest());
  const eventsOf = (entries: readonly CallEntry[]): string[] => replay(placed(entries), () => {}).events.map(({ event }) => event);

  it("tells the fast path as requested, queued, granted, started, settled", () => {
    const entries = [
      acceptedEntry(sampleRequest(), { grant: { attempt: 1, holder: sampleHolder() } }),
      receiptEntry(receiptFacts("entry_1"), { live: { startedAtMs: AT + 1, startedSeq: 4, lastSeq: 4 } }),
    ];
    expect(eventsOf(entries)).toEqual(["requested", "queued", "granted", "started", "settled"]);
    expect(replay(placed(entries), () => {}).events.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5]);
  });

  it("tells the start once, from the receipt when the live news of it was lost, also across a submission", () => {
    const submitted = receiptEntry(receiptFacts("entry_2", { outcome: "submitted", startedAtMs: AT + 1 }), {
      submissionExpiresAtMs: AT + 9,
    });
    const final = receiptEntry(receiptFacts("entry_2", { digest: "final", startedAtMs: AT + 1 }));
    expect(eventsOf([accepted, granted, submitted, final])).toEqual(["requested", "queued", "granted", "started", "submitted", "settled"]);
  });

  it("leaves room for progress that a broker told and nobody stored, when another takes over", () => {
    const { state } = lastOf([accepted, granted, { kind: "adopted", at: AT, driver: "broker_b", from: "broker_a" }]);
    expect(state.record.driver).toBe("broker_b");
    expect(state.record.eventSeq).toBe(3 + PROGRESS_EVENTS_PER_ATTEMPT_MAX);
  });

  it("settles a call as cancelled when its grant comes back unbegun after a cancel was asked for (K2)", () => {
    const asked: CallEntry = { kind: "cancel_requested", at: AT, reason: "the user left" };
    const back: CallEntry = { kind: "returned", at: AT, grantId: "entry_2", reason: "unavailable", message: "", notBeforeMs: null };
    const { state } = lastOf([accepted, granted, asked, back]);
    expect(state).toMatchObject({ kind: "cancelled", settlement: { error: { code: "call_cancelled", message: "the user left" } } });
  });

  it("does not believe that a call never began once it said that it did, when it is not safe to repeat (I3)", () => {
    const unsafe: CallEntry = { ...granted, grant: { attempt: 1, holder: sampleHolder({ handlerIdempotent: false }) } };
    const begun: CallEntry = {
      kind: "cancel_requested",
      at: AT,
      reason: "",
      live: { startedAtMs: AT, startedSeq: 4, lastSeq: 4 },
    };
    for (const reason of ["never_started", "unavailable", "unsent"] as const) {
      const back: CallEntry = { kind: "returned", at: AT, grantId: "entry_2", reason, message: "", notBeforeMs: null };
      expect(lastOf([accepted, unsafe, begun, back]).state.kind).toBe("needs_reconciliation");
    }
  });

  it.each(["failed", "cancelled"] as const)("gives a call that is %s by a receipt without an error one that says so", (outcome) => {
    const { state } = lastOf([accepted, granted, receiptEntry(receiptFacts("entry_2", { outcome, value: null }))]);
    expect(state).toMatchObject({
      kind: outcome,
      settlement: { error: { code: outcome === "failed" ? "handler_error" : "call_cancelled" } },
    });
  });

  it("gives a call that succeeded no error, whatever its receipt carries", () => {
    const error = { code: "handler_error", message: "warning", retryable: false, retryAfterMs: null, details: [] };
    expect(lastOf([accepted, granted, receiptEntry(receiptFacts("entry_2", { error }))]).state).toMatchObject({
      kind: "succeeded",
      settlement: { error: null },
    });
  });

  it("keeps the result of a call that failed by it (X1)", () => {
    const fault = { code: "result_invalid", message: "bad", retryable: false, retryAfterMs: null, details: [] };
    const { state } = lastOf([accepted, granted, receiptEntry(receiptFacts("entry_2"), { fault })]);
    expect(state).toMatchObject({
      kind: "failed",
      settlement: { error: { code: "result_invalid" }, result: { json: '{"refunded":true}' } },
    });
  });
});

describe("a call that was found not to have been applied", () => {
  it("waits for as long as its last runner may yet begin it (G3), or not at all", () => {
    const timedOut: CallEntry = {
      kind: "timed_out",
      at: AT,
      error: { code: "call_timed_out", message: "", retryable: false, retryAfterMs: null, details: [] },
    };
    const reconciled = { kind: "reconciled", at: AT, outcome: "not_applied", by: "key", note: null, value: null, error: null } as const;
    const story = [acceptedEntry(sampleRequest({ idempotent: false })), granted, timedOut];
    expect(lastOf([...story, { ...reconciled, notBeforeMs: AT + 15_000 }]).state).toMatchObject({
      kind: "queued",
      notBeforeMs: AT + 15_000,
    });
    expect(lastOf([...story, reconciled]).state).toMatchObject({ kind: "queued", notBeforeMs: null });
  });
});
