import { describe, expect, it } from "vitest";
import { checkHistory } from "./check-history.js";
import { VIOLATIONS, type ViolationKind } from "./history.js";
import { leaseLost, plainCall, reconciledCall, repeatedCall, Scribe } from "./history.test.kit.js";
import { callHistory } from "./report.js";

/** A history that is clean but for what `plant` does to it. */
function planted(plant: (scribe: Scribe) => void): readonly string[] {
  const scribe = new Scribe();
  plainCall(scribe, "call_a");
  plant(scribe);
  repeatedCall(scribe, "call_y");
  reconciledCall(scribe, "call_z");
  return [...new Set(checkHistory(scribe.history).map(({ kind }) => kind))].sort();
}

const cancelled = { code: "call_cancelled", message: "", retryable: false, retryAfterMs: null, details: [] };

/** For each kind a history that has it. What else it breaks is named with it. */
const PLANTED: Readonly<Record<ViolationKind, { readonly plant: (scribe: Scribe) => void; readonly also?: readonly ViolationKind[] }>> = {
  call_lost: { plant: (s) => void s.sees("call_never", "queued") },
  call_open: { plant: (s) => void s.granted(s.accepted("call_b").call) },
  key_of_two_calls: {
    plant: (s) => {
      plainCall(s, "call_b");
      s.history.sights.push({ ...s.sees("call_b", "succeeded", { paid: true }), key: "key of call_a" });
    },
  },
  refused: {
    plant: (s) => void s.history.refusals.push({ agent: "agent-1", key: "k", atMs: s.nowMs, code: "call_unknown", message: "" }),
  },
  answer_changed: { plant: (s) => void s.sees("call_a", "running") },
  answer_unknown: { plant: (s) => void s.sees("call_a", "failed", undefined, "turn", "handler_error") },
  outcome_differs: {
    plant: (s) => {
      const [first] = reconciledCall(s, "call_b");
      const late = s.sees("call_b", "needs_reconciliation", undefined, "final");
      // Asked for before the call was answered otherwise, so that it is no change.
      s.history.sights[s.history.sights.length - 1] = { ...late, askedAtMs: first.entry.at };
    },
  },
  started_twice: {
    also: ["repeat_unsafe"],
    plant: (s) => {
      s.accepted("call_b");
      const first = s.granted("call_b");
      s.started(first);
      s.entry("call_b", leaseLost(first, s.nowMs, s.nowMs));
      const second = s.granted("call_b", 2);
      s.started(second, 2);
      s.ended(second);
      s.receipt(second);
    },
  },
  grant_started_twice: {
    plant: (s) => {
      const grant = plainCall(s, "call_b");
      s.started(grant);
    },
  },
  start_without_grant: {
    plant: (s) => {
      const grant = plainCall(s, "call_b");
      s.history.starts.push({ ...(s.history.starts.pop() as (typeof s.history.starts)[number]), fence: grant.version + 1 });
    },
  },
  start_after_newer: {
    plant: (s) => {
      const [first] = repeatedCall(s, "call_b");
      const late = s.history.starts.find(({ grant }) => grant === first.entryId);
      s.history.starts = s.history.starts.filter((start) => start !== late);
      s.started(first);
    },
  },
  start_of_returned: {
    plant: (s) => {
      s.accepted("call_b");
      const first = s.granted("call_b");
      s.entry("call_b", {
        kind: "returned",
        at: s.nowMs,
        grantId: first.entryId,
        reason: "never_started",
        message: "",
        notBeforeMs: null,
      });
      s.started(first);
      s.entry("call_b", { kind: "cancelled", at: s.nowMs, error: cancelled, letRun: false });
    },
  },
  start_after_not_applied: {
    plant: (s) => {
      const [first] = reconciledCall(s, "call_b");
      const second = s.history.starts.pop() as (typeof s.history.starts)[number];
      s.started(first);
      s.history.starts.push({ ...second, atMs: s.nowMs });
    },
  },
  two_live_grants: {
    plant: (s) => {
      s.accepted("call_b", { idempotent: true });
      s.granted("call_b", 1, true);
      const second = s.granted("call_b", 2, true);
      s.ended(second);
      s.receipt(second);
    },
  },
  attempt_order: {
    plant: (s) => {
      s.accepted("call_b");
      const grant = s.granted("call_b", 2);
      s.ended(grant);
      s.receipt(grant);
    },
  },
  attempts_exceeded: {
    plant: (s) => {
      s.accepted("call_b", { idempotent: true, maxAttempts: 1 });
      s.entry("call_b", leaseLost(s.granted("call_b", 1, true), s.nowMs, s.nowMs));
      const second = s.granted("call_b", 2, true);
      s.ended(second);
      s.receipt(second);
    },
  },
  repeat_unsafe: {
    plant: (s) => {
      s.accepted("call_b");
      s.entry("call_b", leaseLost(s.granted("call_b"), s.nowMs, s.nowMs));
      const second = s.granted("call_b", 2);
      s.ended(second);
      s.receipt(second);
    },
  },
  receipt_lost: {
    plant: (s) => void s.history.acknowledged.push({ ...s.acknowledged(plainCall(s, "call_b")), digest: "of another outcome" }),
  },
  receipt_unfounded: {
    plant: (s) => {
      plainCall(s, "call_b");
      s.history.ends.pop();
    },
  },
  settled_twice: {
    plant: (s) => {
      plainCall(s, "call_b");
      s.entry("call_b", { kind: "cancelled", at: s.nowMs, error: cancelled, letRun: false });
    },
  },
  stale_settled: {
    plant: (s) => {
      s.accepted("call_b", { idempotent: true });
      const first = s.granted("call_b", 1, true);
      s.entry("call_b", leaseLost(first, s.nowMs, s.nowMs));
      s.granted("call_b", 2, true);
      s.ended(first);
      s.receipt(first);
    },
  },
  forked: {
    plant: (s) => {
      plainCall(s, "call_b");
      const last = s.entry("call_b", { kind: "adopted", at: s.nowMs, driver: "broker_2", from: "broker_1" });
      s.history.entries[s.history.entries.length - 1] = { ...last, previous: last.previous - 1 };
    },
  },
  order_of_entries: {
    plant: (s) => {
      s.accepted("call_b");
      s.entry("call_b", { kind: "reconciled", at: s.nowMs, outcome: "abandon", by: "x", note: null, value: null, error: cancelled });
    },
  },
  alarm: { plant: (s) => void s.history.alarms.push({ process: "broker-1", event: "ledger_forked", call: "call_a" }) },
};

describe("the checker of histories", () => {
  it("finds nothing in a clean one", () => {
    expect(planted(() => {})).toEqual([]);
  });

  it.each(Object.keys(VIOLATIONS) as ViolationKind[])("finds a planted %s, and nothing else", (kind) => {
    const { plant, also = [] } = PLANTED[kind];
    expect(planted(plant)).toEqual([kind, ...also].sort());
  });

  it("does not mistake two answers that overtake each other for a change", () => {
    const found = planted((s) => {
      const late = s.sees("call_b", "queued");
      plainCall(s, "call_b");
      s.history.sights.push({ ...late, atMs: s.nowMs });
    });
    expect(found).toEqual([]);
  });

  it("takes an entry that is no broker's own for a fork, not for the call's", () => {
    const found = planted((s) => {
      plainCall(s, "call_b");
      const stray = s.accepted("call_c");
      s.history.entries[s.history.entries.length - 1] = { ...stray, call: "call_b", previous: 0 };
    });
    expect(found).toEqual(["forked"]);
  });

  it("tells a call's whole history in the order of time, without payloads", () => {
    const scribe = new Scribe();
    reconciledCall(scribe, "call_b");
    const lines = callHistory("call_b", scribe.history);
    expect(lines.map((line) => line.split(" ").slice(1, 4).join(" "))).toEqual([
      "ledger 0→1 accepted",
      "ledger 1→2 granted",
      "ledger 2→3 lease_lost",
      "agent-1 (turn, charge)",
      "operator says not_applied",
      "ledger 3→4 reconciled",
      "ledger 4→5 granted",
      "runner-1 starts attempt",
      "runner-1 fence 5",
      "ledger 5→6 receipt",
      "runner-1 sees the",
      "agent-1 (final, charge)",
    ]);
    expect(lines.join("\n")).not.toContain("paid");
  });
});
