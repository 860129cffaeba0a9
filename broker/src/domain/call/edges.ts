/**
 * The edge table of the call machine: the only place that says which entry leads from which state to which.
 * It is the source of the run-time guard in `transition`, of the diagram in `docs/state-machine.md`,
 * and of the test that every edge was walked.
 */
import { SETTLED_STATES } from "../call-view.js";
import { type CallState, type CallStateKind, isRepeatable } from "./call-state.js";
import type { CallEntry, CallEntryKind } from "./entries.js";

export interface Edge {
  readonly from: CallStateKind;
  readonly on: CallEntryKind;
  readonly to: CallStateKind;
  /** Edges of the same `from` and `on` exclude each other by their conditions; the text is for the diagram. */
  readonly when?: { readonly text: string; readonly holds: (state: CallState, entry: CallEntry) => boolean };
}

type Of<K extends CallEntryKind> = Extract<CallEntry, { readonly kind: K }>;

function when<K extends CallEntryKind>(
  _on: K,
  text: string,
  holds: (entry: Of<K>, state: CallState) => boolean,
): NonNullable<Edge["when"]> {
  // The transition function only asks an edge about entries of the edge's own kind.
  return { text, holds: (state, entry) => holds(entry as Of<K>, state) };
}

const newestGrant = (state: CallState): string | null => ("record" in state ? (state.record.newestGrant?.grantId ?? null) : null);
const isNewest = (entry: Of<"receipt">, state: CallState): boolean => entry.receipt.grantId === newestGrant(state);
const isHeld = (entry: { readonly grantId: string }, state: CallState): boolean =>
  state.kind === "running" && state.grant.grantId === entry.grantId;
/** The handler is known to have begun, by the log or by news that comes with the entry. */
const hasBegun = (entry: CallEntry, state: CallState): boolean =>
  ("record" in state && state.record.startedAtMs !== null) || (entry.live?.startedAtMs ?? null) !== null;
const asksAbout = (entry: Of<"reconcile_granted">, state: CallState): boolean =>
  (state.kind === "running" || state.kind === "needs_reconciliation") && state.grant.grantId === entry.startedGrantId;
const isAsked = (grantId: string | undefined, state: CallState): boolean =>
  state.kind === "needs_reconciliation" && state.asked !== null && state.asked.grantId === grantId;
/** A person's word, or the answer of the handler that is asked now. */
const mayTell = (entry: Of<"reconciled">, state: CallState): boolean => entry.askId === undefined || isAsked(entry.askId, state);
const cancelAsked = (state: CallState): boolean => state.kind === "running" && state.cancel !== null;
const safe = (state: CallState): boolean => state.kind === "running" && isRepeatable(state.record.request, state.grant);

function receiptEdges(from: CallStateKind): Edge[] {
  return [
    {
      from,
      on: "receipt",
      to: "succeeded",
      when: when("receipt", "succeeded, result valid", (e, s) => isNewest(e, s) && e.receipt.outcome === "succeeded" && e.fault === null),
    },
    {
      from,
      on: "receipt",
      to: "failed",
      when: when(
        "receipt",
        "failed, or result invalid",
        (e, s) =>
          isNewest(e, s) &&
          ((e.receipt.outcome === "failed" && e.retryAtMs === null) || (e.receipt.outcome === "succeeded" && e.fault !== null)),
      ),
    },
    {
      from,
      on: "receipt",
      to: "cancelled",
      when: when("receipt", "cancelled", (e, s) => isNewest(e, s) && e.receipt.outcome === "cancelled"),
    },
  ];
}

function submittedEdge(from: CallStateKind): Edge {
  return {
    from,
    on: "receipt",
    to: "submitted",
    when: when("receipt", "submitted", (e, s) => isNewest(e, s) && e.receipt.outcome === "submitted" && e.receipt.value !== null),
  };
}

const SETTLED = SETTLED_STATES;
const OPEN = ["awaiting_confirmation", "queued", "running", "submitted", "needs_reconciliation"] as const;

export const EDGES: readonly Edge[] = [
  {
    from: "requested",
    on: "accepted",
    to: "awaiting_confirmation",
    when: when("accepted", "a person must confirm", (e) => e.confirmationExpiresAtMs !== null && e.grant === null),
  },
  {
    from: "requested",
    on: "accepted",
    to: "running",
    when: when("accepted", "a claim was free", (e) => e.confirmationExpiresAtMs === null && e.grant !== null),
  },
  {
    from: "requested",
    on: "accepted",
    to: "queued",
    when: when("accepted", "no claim was free", (e) => e.confirmationExpiresAtMs === null && e.grant === null),
  },

  { from: "awaiting_confirmation", on: "confirmed", to: "queued" },
  { from: "awaiting_confirmation", on: "denied", to: "denied" },
  { from: "awaiting_confirmation", on: "cancelled", to: "cancelled" },

  { from: "queued", on: "waiting", to: "queued" },
  { from: "queued", on: "granted", to: "running" },
  { from: "queued", on: "cancelled", to: "cancelled" },
  { from: "queued", on: "denied", to: "denied" },
  { from: "queued", on: "timed_out", to: "timed_out" },
  { from: "queued", on: "exhausted", to: "failed" },
  ...receiptEdges("queued"),
  submittedEdge("queued"),

  ...receiptEdges("running"),
  submittedEdge("running"),
  {
    from: "running",
    on: "receipt",
    to: "queued",
    when: when(
      "receipt",
      "failed, retryable, safe to repeat, attempts left",
      (e, s) => isNewest(e, s) && e.receipt.outcome === "failed" && e.retryAtMs !== null && safe(s),
    ),
  },
  {
    from: "running",
    on: "returned",
    to: "queued",
    when: when(
      "returned",
      "not begun, or safe to repeat",
      (e, s) => isHeld(e, s) && e.reason !== "forbidden" && (safe(s) || !hasBegun(e, s)) && !cancelAsked(s),
    ),
  },
  {
    from: "running",
    on: "returned",
    to: "cancelled",
    when: when(
      "returned",
      "not begun, or safe to repeat, and a cancel was asked for",
      (e, s) => isHeld(e, s) && e.reason !== "forbidden" && (safe(s) || !hasBegun(e, s)) && cancelAsked(s),
    ),
  },
  {
    from: "running",
    on: "returned",
    to: "needs_reconciliation",
    when: when(
      "returned",
      "was known to have begun, not safe to repeat",
      (e, s) => isHeld(e, s) && e.reason !== "forbidden" && !safe(s) && hasBegun(e, s),
    ),
  },
  {
    from: "running",
    on: "returned",
    to: "denied",
    when: when("returned", "forbidden", (e, s) => isHeld(e, s) && e.reason === "forbidden"),
  },
  {
    from: "running",
    on: "lease_lost",
    to: "queued",
    when: when("lease_lost", "safe to repeat", (e, s) => isHeld(e, s) && e.retryAtMs !== null && safe(s)),
  },
  {
    from: "running",
    on: "lease_lost",
    to: "needs_reconciliation",
    when: when("lease_lost", "not safe to repeat", (e, s) => isHeld(e, s) && e.retryAtMs === null && !safe(s)),
  },
  {
    from: "running",
    on: "reconcile_granted",
    to: "needs_reconciliation",
    when: when("reconcile_granted", "not safe to repeat, and its process is gone", (e, s) => asksAbout(e, s) && !safe(s)),
  },
  { from: "running", on: "timed_out", to: "timed_out", when: when("timed_out", "safe to repeat", (_e, s) => safe(s)) },
  { from: "running", on: "timed_out", to: "needs_reconciliation", when: when("timed_out", "not safe to repeat", (_e, s) => !safe(s)) },
  { from: "running", on: "cancel_requested", to: "running" },
  { from: "running", on: "cancel_answered", to: "running" },
  { from: "running", on: "cancelled", to: "cancelled" },

  ...receiptEdges("submitted"),
  { from: "submitted", on: "updated", to: "submitted" },
  { from: "submitted", on: "cancelled", to: "cancelled" },
  { from: "submitted", on: "timed_out", to: "timed_out" },

  ...receiptEdges("needs_reconciliation"),
  submittedEdge("needs_reconciliation"),
  {
    from: "needs_reconciliation",
    on: "reconciled",
    to: "succeeded",
    when: when("reconciled", "applied", (e, s) => mayTell(e, s) && e.outcome === "applied" && e.error === null),
  },
  {
    from: "needs_reconciliation",
    on: "reconciled",
    to: "queued",
    when: when(
      "reconciled",
      "not applied, time and attempts left",
      (e, s) => mayTell(e, s) && e.outcome === "not_applied" && e.error === null && e.cancelled !== true,
    ),
  },
  {
    from: "needs_reconciliation",
    on: "reconciled",
    to: "cancelled",
    when: when(
      "reconciled",
      "not applied, and a cancel was asked for",
      (e, s) => mayTell(e, s) && e.outcome === "not_applied" && e.error === null && e.cancelled === true,
    ),
  },
  {
    from: "needs_reconciliation",
    on: "reconciled",
    to: "failed",
    when: when("reconciled", "abandoned, nothing left, or result invalid", (e, s) => mayTell(e, s) && e.error !== null),
  },
  {
    from: "needs_reconciliation",
    on: "reconcile_granted",
    to: "needs_reconciliation",
    when: when("reconcile_granted", "its process is gone", (e, s) => asksAbout(e, s)),
  },
  {
    from: "needs_reconciliation",
    on: "reconcile_unanswered",
    to: "needs_reconciliation",
    when: when("reconcile_unanswered", "the handler that is asked", (e, s) => isAsked(e.grantId, s)),
  },

  ...OPEN.map((state): Edge => ({ from: state, on: "adopted", to: state })),
  ...[...OPEN, ...SETTLED].map((state): Edge => ({ from: state, on: "evidence", to: state })),
];

/** The one edge that `entry` walks from `state`, or undefined. */
export function edgeFor(state: CallState, entry: CallEntry): Edge | undefined {
  return EDGES.find(
    (edge) => edge.from === state.kind && edge.on === entry.kind && (edge.when === undefined || edge.when.holds(state, entry)),
  );
}

/** What the entry that walks `edge` does to the ledger's index of open calls. */
export function markFor(edge: Edge): "opens" | "settles" | "none" {
  if (edge.from === "requested") {
    return "opens";
  }
  return isSettledKind(edge.to) && !isSettledKind(edge.from) ? "settles" : "none";
}

function isSettledKind(kind: CallState["kind"]): boolean {
  return (SETTLED_STATES as readonly string[]).includes(kind);
}
