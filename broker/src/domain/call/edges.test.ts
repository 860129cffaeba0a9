import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyEntry, anyWalk, forAll, walk } from "../../testing/arbitrary-call.js";
import {
  acceptedEntry,
  placed,
  receiptEntry,
  receiptFacts,
  SAMPLE_START_MS,
  sampleHolder,
  sampleRequest,
} from "../../testing/sample-call.js";
import { CALL_STATES, SETTLED_STATES } from "../call-view.js";
import type { CallState } from "./call-state.js";
import { EDGES, type Edge, edgeFor, markFor } from "./edges.js";
import type { CallEntry } from "./entries.js";
import { accepts, transition } from "./transition.js";

const AT = SAMPLE_START_MS;
const error = { code: "call_timed_out", message: "late", retryable: false, retryAfterMs: null, details: [] };

// Ways to each state. A grant's id is the number of its entry.
const requested: readonly CallEntry[] = [];
const accepted = acceptedEntry(sampleRequest());
const granted: CallEntry = { kind: "granted", at: AT, driver: "broker_a", grant: { attempt: 1, holder: sampleHolder() } };
const grantedUnsafe: CallEntry = { ...granted, grant: { attempt: 1, holder: sampleHolder({ handlerIdempotent: false }) } };
const queued = [accepted];
const waiting = [acceptedEntry(sampleRequest(), { confirmationExpiresAtMs: AT + 1, deadlineAtMs: null })];
const running = [accepted, granted];
const runningUnsafe = [accepted, grantedUnsafe];
const submittedReceipt = receiptEntry(receiptFacts("entry_2", { outcome: "submitted" }), { submissionExpiresAtMs: AT + 9 });
const submitted = [...running, submittedReceipt];
const returned: Extract<CallEntry, { kind: "returned" }> = {
  kind: "returned",
  at: AT,
  grantId: "entry_2",
  reason: "unavailable",
  message: "busy",
  notBeforeMs: null,
};
const leaseLost: Extract<CallEntry, { kind: "lease_lost" }> = {
  kind: "lease_lost",
  at: AT,
  grantId: "entry_2",
  cause: "lease",
  message: "silent",
  retryAtMs: null,
};
const requeued = [...running, { ...leaseLost, retryAtMs: AT + 5 }];
const unknown = [...runningUnsafe, leaseLost];
const cancelAsked: CallEntry = { kind: "cancel_requested", at: AT, reason: "no" };
const cancelled: CallEntry = { kind: "cancelled", at: AT, error, letRun: false };
const timedOut: CallEntry = { kind: "timed_out", at: AT, error };
const evidence: CallEntry = { kind: "evidence", at: AT, receipt: receiptFacts("entry_old") };
const adopted: CallEntry = { kind: "adopted", at: AT, driver: "broker_b", from: "broker_a" };
const asked: Extract<CallEntry, { kind: "reconcile_granted" }> = {
  kind: "reconcile_granted",
  at: AT,
  startedGrantId: "entry_2",
  holder: { runnerId: "runner_a", sessionEpoch: 2, journalId: "jrn_a", brokerId: "broker_a" },
  expiresAtMs: AT + 30_000,
  message: "restarted",
};
const unanswered: CallEntry = {
  kind: "reconcile_unanswered",
  at: AT,
  grantId: "entry_4",
  reason: "unknown",
  message: "cannot tell",
  askAgainAtMs: AT + 1,
};
const reconciled: Extract<CallEntry, { kind: "reconciled" }> = {
  kind: "reconciled",
  at: AT,
  outcome: "applied",
  by: "key",
  note: null,
  value: null,
  error: null,
};

const receipts = (from: readonly CallEntry[], name: string): [string, readonly CallEntry[], CallEntry][] => [
  [`${name} receipt succeeded`, from, receiptEntry(receiptFacts("entry_2", { digest: "final" }))],
  [`${name} receipt failed`, from, receiptEntry(receiptFacts("entry_2", { digest: "final", outcome: "failed" }))],
  [`${name} receipt cancelled`, from, receiptEntry(receiptFacts("entry_2", { digest: "final", outcome: "cancelled" }))],
];

/** For each edge the shortest story that walks it: `from on to`, how its state comes about, and its entry. */
const STORIES: readonly [string, readonly CallEntry[], CallEntry][] = [
  ["requested accepted awaiting_confirmation", requested, acceptedEntry(sampleRequest(), { confirmationExpiresAtMs: AT + 1 })],
  ["requested accepted running", requested, acceptedEntry(sampleRequest(), { grant: { attempt: 1, holder: sampleHolder() } })],
  ["requested accepted queued", requested, accepted],
  ["awaiting_confirmation confirmed queued", waiting, { kind: "confirmed", at: AT, by: "key", deadlineAtMs: AT + 9 }],
  ["awaiting_confirmation denied denied", waiting, { kind: "denied", at: AT, error }],
  ["awaiting_confirmation cancelled cancelled", waiting, cancelled],
  ["queued waiting queued", queued, { kind: "waiting", at: AT, waitingFor: "runner" }],
  ["queued granted running", queued, granted],
  ["queued cancelled cancelled", queued, cancelled],
  ["queued denied denied", queued, { kind: "denied", at: AT, error }],
  ["queued timed_out timed_out", queued, timedOut],
  ["queued exhausted failed", queued, { kind: "exhausted", at: AT, error }],
  ...receipts(requeued, "queued"),
  ["queued receipt submitted", requeued, submittedReceipt],
  ...receipts(running, "running"),
  ["running receipt submitted", running, submittedReceipt],
  ["running receipt queued", running, receiptEntry(receiptFacts("entry_2", { outcome: "failed" }), { retryAtMs: AT + 5 })],
  ["running returned queued", running, returned],
  ["running returned cancelled", [...running, cancelAsked], returned],
  ["running returned needs_reconciliation", runningUnsafe, { ...returned, live: { startedAtMs: AT, startedSeq: 4, lastSeq: 4 } }],
  ["running returned denied", running, { ...returned, reason: "forbidden" }],
  ["running lease_lost queued", running, { ...leaseLost, retryAtMs: AT + 5 }],
  ["running lease_lost needs_reconciliation", runningUnsafe, leaseLost],
  ["running timed_out timed_out", running, timedOut],
  ["running timed_out needs_reconciliation", runningUnsafe, timedOut],
  ["running cancel_requested running", running, cancelAsked],
  ["running cancel_answered running", [...running, cancelAsked], { kind: "cancel_answered", at: AT, level: "ignored" }],
  ["running cancelled cancelled", running, cancelled],
  ...receipts(submitted, "submitted"),
  ["submitted updated submitted", submitted, { kind: "updated", at: AT, updateId: "update_1", digest: "d", data: { text: "half" } }],
  ["submitted cancelled cancelled", submitted, cancelled],
  ["submitted timed_out timed_out", submitted, timedOut],
  ...receipts(unknown, "needs_reconciliation"),
  ["needs_reconciliation receipt submitted", unknown, submittedReceipt],
  ["running reconcile_granted needs_reconciliation", runningUnsafe, asked],
  ["needs_reconciliation reconcile_granted needs_reconciliation", unknown, asked],
  ["needs_reconciliation reconcile_unanswered needs_reconciliation", [...unknown, asked], unanswered],
  ["needs_reconciliation reconciled succeeded", unknown, reconciled],
  ["needs_reconciliation reconciled queued", unknown, { ...reconciled, outcome: "not_applied" }],
  ["needs_reconciliation reconciled cancelled", unknown, { ...reconciled, outcome: "not_applied", cancelled: true }],
  ["needs_reconciliation reconciled failed", unknown, { ...reconciled, outcome: "abandon", error }],
  ["awaiting_confirmation adopted awaiting_confirmation", waiting, adopted],
  ["queued adopted queued", queued, adopted],
  ["running adopted running", running, adopted],
  ["submitted adopted submitted", submitted, adopted],
  ["needs_reconciliation adopted needs_reconciliation", unknown, adopted],
  ["awaiting_confirmation evidence awaiting_confirmation", waiting, evidence],
  ["queued evidence queued", queued, evidence],
  ["running evidence running", running, evidence],
  ["submitted evidence submitted", submitted, evidence],
  ["needs_reconciliation evidence needs_reconciliation", unknown, evidence],
  ["succeeded evidence succeeded", [...unknown, reconciled], evidence],
  ["failed evidence failed", [...unknown, { ...reconciled, error }], evidence],
  ["cancelled evidence cancelled", [...queued, cancelled], evidence],
  ["timed_out evidence timed_out", [...queued, timedOut], evidence],
  ["denied evidence denied", [...waiting, { kind: "denied", at: AT, error }], evidence],
];

/** Entries about a reconcile handler that walk no edge: of a grant that is not the newest, of a question that is not open. */
const REFUSED: readonly [string, readonly CallEntry[], CallEntry][] = [
  ["a question about a call that is safe to repeat", running, asked],
  ["a question about an older grant", unknown, { ...asked, startedGrantId: "entry_1" }],
  ["a question about a call that waits", requeued, asked],
  ["a question about a call that settled", [...unknown, reconciled], asked],
  ["an answer where nobody was asked", unknown, { ...reconciled, askId: "entry_4" }],
  ["an answer to an older question", [...unknown, asked, asked], { ...reconciled, askId: "entry_4" }],
  ["an answer to a question that was given up", [...unknown, asked, unanswered], { ...reconciled, askId: "entry_4" }],
  ["an answer after a person's word", [...unknown, asked, reconciled], { ...reconciled, askId: "entry_4" }],
  ["no answer to an older question", [...unknown, asked, asked], unanswered],
];

const nameOf = (edge: Edge): string => `${edge.from} ${edge.on} ${edge.to}`;

function stateAfter(entries: readonly CallEntry[]): CallState {
  let state: CallState = { kind: "requested" };
  for (const entry of placed(entries)) {
    const outcome = transition(state, entry);
    if (outcome.kind === "rejected") {
      throw new Error(`the story is wrong: ${outcome.reason}`);
    }
    state = outcome.state;
  }
  return state;
}

describe("the edge table", () => {
  it.each(STORIES)("%s is walked", (name, before, entry) => {
    const state = stateAfter(before);
    const edge = edgeFor(state, entry);
    expect(edge && nameOf(edge)).toBe(name);
    expect(stateAfter([...before, entry]).kind).toBe(edge?.to);
  });

  it.each(REFUSED)("has no edge for %s (G4)", (_name, before, entry) => {
    expect(accepts(stateAfter(before), entry)).toBe(false);
  });

  it("has a story for every edge, and no edge without one", () => {
    expect(STORIES.map(([name]) => name).sort()).toEqual(EDGES.map(nameOf).sort());
  });

  it("names an edge at most once", () => {
    expect(new Set(EDGES.map(nameOf)).size).toBe(EDGES.length);
  });

  it("has every edge walked by generated sequences too", () => {
    const walked = new Set<Edge>();
    for (const seeds of fc.sample(anyWalk, { seed: 20_260_101, numRuns: 2_500 })) {
      for (const { edge } of walk(seeds)) {
        if (edge !== undefined) {
          walked.add(edge);
        }
      }
    }
    expect(EDGES.filter((edge) => !walked.has(edge)).map(nameOf)).toEqual([]);
  }, 60_000);

  it("never has two edges for one state and entry", () => {
    forAll(
      fc.property(anyWalk, anyEntry, (seeds, foreign) => {
        for (const { before, entry, after } of walk(seeds)) {
          for (const [state, candidate] of [
            [before, entry],
            [after, entry],
            [after, foreign],
          ] as const) {
            const fitting = EDGES.filter(
              (edge) =>
                edge.from === state.kind && edge.on === candidate.kind && (edge.when === undefined || edge.when.holds(state, candidate)),
            );
            expect(fitting.length, fitting.map(nameOf).join(" and ")).toBeLessThanOrEqual(1);
          }
        }
      }),
      300,
    );
  });

  it("gives every state a way in, every open state a way to an end, and a settled state no way out", () => {
    const reachable = new Set<string>(["requested"]);
    for (let size = -1; size !== reachable.size; ) {
      size = reachable.size;
      for (const edge of EDGES.filter(({ from }) => reachable.has(from))) {
        reachable.add(edge.to);
      }
    }
    expect([...reachable].sort()).toEqual(["requested", ...CALL_STATES].sort());
    const settled: readonly string[] = SETTLED_STATES;
    for (const state of CALL_STATES.filter((name) => !settled.includes(name))) {
      expect(
        EDGES.some(({ from, to }) => from === state && settled.includes(to)),
        state,
      ).toBe(true);
    }
    expect(EDGES.filter(({ from, to }) => settled.includes(from) && from !== to)).toEqual([]);
  });

  it("marks the ledger's index of open calls: acceptance opens, the settling entry settles, all others do nothing", () => {
    const settled: readonly string[] = SETTLED_STATES;
    for (const edge of EDGES) {
      const expected = edge.from === "requested" ? "opens" : settled.includes(edge.to) && !settled.includes(edge.from) ? "settles" : "none";
      expect(markFor(edge), nameOf(edge)).toBe(expected);
    }
  });

  it("says with accepts what transition does", () => {
    forAll(
      fc.property(anyWalk, (seeds) => {
        for (const { before, entry, edge } of walk(seeds)) {
          expect(accepts(before, entry)).toBe(edge !== undefined);
        }
      }),
      100,
    );
  });
});
