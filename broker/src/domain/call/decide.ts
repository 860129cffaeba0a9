/**
 * Decisions: what entry a command or a timer leads to in a given state. Pure; the caller appends the entry and
 * then carries out the effects of its transition.
 */

import type { FaultDetail } from "../fault.js";
import { EVIDENCE_PER_CALL_MAX, SUBMISSION_TIMEOUT_SECONDS_DEFAULT } from "../limits.js";
import { type CallError, type CallState, isRepeatable, isSettledState, type StoredText } from "./call-state.js";
import type { CallEntry, ReceiptEntryFacts } from "./entries.js";
import { evidenceKey } from "./entry-facts.js";

export interface BackOff {
  /** First delay; doubles with each attempt. */
  readonly baseMs: number;
  readonly maxMs: number;
  /** Part of the delay that is random, 0 to 1. */
  readonly jitter: number;
}

export const RETRY_BACK_OFF: BackOff = { baseMs: 500, maxMs: 60_000, jitter: 0.5 };

/** Delay before try number `attempt` + 1, `random` in [0, 1). */
export function backOffMs(attempt: number, random: number, backOff: BackOff = RETRY_BACK_OFF): number {
  const full = Math.min(backOff.maxMs, backOff.baseMs * 2 ** Math.max(0, attempt - 1));
  return Math.round(full * (1 - backOff.jitter + backOff.jitter * random));
}

export function callError(code: string, message: string, extra: Partial<CallError> = {}): CallError {
  return { code, message, retryable: false, retryAfterMs: null, details: [], ...extra };
}

/** Between two offers of a call that runner after runner declines: the first one costs no time. */
export const DECLINE_BACK_OFF: BackOff = { baseMs: 250, maxMs: 5_000, jitter: 0.5 };

/** Until when a call is offered to nobody after one more runner could not take it (B3); null: it is offered at once. */
export function declinedUntilMs(state: Exclude<CallState, { kind: "requested" }>, nowMs: number, random: number): number | null {
  const { declines } = state.record;
  return declines === 0 ? null : nowMs + backOffMs(declines, random, DECLINE_BACK_OFF);
}

const NULL_TEXT: StoredText = { kind: "inline", json: "null", bytes: 4 };

export type ReceiptDecision =
  | { readonly kind: "append"; readonly disposition: "settled" | "evidence"; readonly entry: CallEntry }
  | { readonly kind: "repeated" }
  /** Nothing is stored: the grant is none of this call's, or the call holds all the evidence that it may. */
  | { readonly kind: "expired" };

export interface ReceiptContext {
  readonly nowMs: number;
  readonly random: number;
  /** Faults of the result against the tool's output schema; asked only for an inline or loaded value. */
  readonly resultFaults: readonly FaultDetail[];
}

/** Rule G5: every well-formed receipt has a disposition, and a receipt of the newest grant settles. */
export function decideReceipt(
  state: Exclude<CallState, { kind: "requested" }>,
  receipt: ReceiptEntryFacts,
  context: ReceiptContext,
): ReceiptDecision {
  const { record } = state;
  const known =
    (isSettledState(state) &&
      state.settlement.receipt?.grantId === receipt.grantId &&
      state.settlement.receipt.digest === receipt.digest) ||
    (record.consumedReceipt?.grantId === receipt.grantId && record.consumedReceipt.digest === receipt.digest) ||
    record.evidence.includes(evidenceKey(receipt));
  if (known) {
    return { kind: "repeated" };
  }
  if (!record.grantIds.includes(receipt.grantId)) {
    return { kind: "expired" };
  }
  const stale = record.newestGrant?.grantId !== receipt.grantId;
  // After a submission only the final receipt is to come.
  const consumed = record.consumedReceipt?.grantId === receipt.grantId && (state.kind !== "submitted" || receipt.outcome === "submitted");
  if (stale || consumed || isSettledState(state) || state.kind === "awaiting_confirmation") {
    if (record.evidence.length >= EVIDENCE_PER_CALL_MAX) {
      return { kind: "expired" };
    }
    return { kind: "append", disposition: "evidence", entry: { kind: "evidence", at: context.nowMs, receipt } };
  }
  const fault =
    receipt.outcome === "succeeded" && context.resultFaults.length > 0
      ? callError("result_invalid", resultInvalidMessage(record.request.tool, context.resultFaults), { details: context.resultFaults })
      : null;
  return {
    kind: "append",
    disposition: "settled",
    entry: {
      kind: "receipt",
      at: context.nowMs,
      receipt: receipt.outcome === "submitted" && receipt.value === null ? { ...receipt, value: NULL_TEXT } : receipt,
      fault,
      retryAtMs: retryAt(state, receipt, context),
      submissionExpiresAtMs:
        receipt.outcome === "submitted"
          ? context.nowMs + (record.request.submissionTimeoutMs ?? SUBMISSION_TIMEOUT_SECONDS_DEFAULT * 1_000)
          : null,
    },
  };
}

function resultInvalidMessage(tool: string, faults: readonly FaultDetail[]): string {
  const first = faults[0];
  return first === undefined
    ? `the result of ${tool} breaks its output schema`
    : `the result of ${tool} breaks its output schema at "${first.path}": expected ${first.expected}, got ${first.actual}`;
}

function retryAt(state: CallState, receipt: ReceiptEntryFacts, context: ReceiptContext): number | null {
  if (state.kind !== "running" || state.cancel !== null || receipt.outcome !== "failed" || receipt.error?.retryable !== true) {
    return null;
  }
  const { request, attempts, deadlineAtMs } = state.record;
  if (!isRepeatable(request, state.grant) || attempts >= request.maxAttempts) {
    return null;
  }
  const asked = receipt.error.retryAfterMs;
  const delayMs = asked !== null && Number.isFinite(asked) && asked >= 0 ? asked : backOffMs(attempts, context.random);
  const atMs = context.nowMs + delayMs;
  return deadlineAtMs !== null && atMs >= deadlineAtMs ? null : atMs;
}

const RESTARTED = "the runner restarted";
const OUTCOME_UNKNOWN = "while the call ran: its outcome is unknown, do not repeat it";
/** Why nobody knows what became of a call whose runner came back without knowing it. */
export const UNKNOWN_AFTER_RESTART = `${RESTARTED} ${OUTCOME_UNKNOWN}`;

/** The runner that held the grant is silent past its lease, or came back without knowing what became of it. */
export function decideLeaseLost(
  state: CallState,
  cause: "lease" | "runner_restarted",
  nowMs: number,
  random: number,
): CallEntry | undefined {
  if (state.kind !== "running") {
    return undefined;
  }
  const repeatable = isRepeatable(state.record.request, state.grant);
  if (repeatable && state.cancel !== null) {
    // Who asked for the cancel waits for the end of the call, not for another attempt.
    return { kind: "cancelled", at: nowMs, error: callError("call_cancelled", state.cancel.reason), letRun: false };
  }
  const why = cause === "lease" ? "the runner went silent" : RESTARTED;
  return {
    kind: "lease_lost",
    at: nowMs,
    grantId: state.grant.grantId,
    cause,
    message: repeatable ? `${why}; the call is safe to repeat` : `${why} ${OUTCOME_UNKNOWN}`,
    retryAtMs: repeatable ? nowMs + backOffMs(state.record.attempts, random) : null,
  };
}

/** The call's time is up, in the ledger's time. */
export function decideDeadline(state: CallState, nowMs: number): CallEntry | undefined {
  switch (state.kind) {
    case "awaiting_confirmation":
      return nowMs < state.expiresAtMs
        ? undefined
        : { kind: "denied", at: nowMs, error: callError("confirmation_expired", "nobody confirmed the call in time") };
    case "queued":
    case "running": {
      const { deadlineAtMs, request } = state.record;
      if (deadlineAtMs === null || nowMs < deadlineAtMs) {
        return undefined;
      }
      const seconds = Math.round(request.timeoutMs / 1_000);
      const message =
        state.kind === "queued"
          ? `no runner finished the call within its ${seconds} s`
          : `the call was still running when its ${seconds} s were up`;
      return { kind: "timed_out", at: nowMs, error: callError("call_timed_out", message) };
    }
    case "submitted":
      return nowMs < state.expiresAtMs
        ? undefined
        : {
            kind: "timed_out",
            at: nowMs,
            error: callError("call_timed_out", "the final receipt of the submitted call did not come in time"),
          };
    default:
      return undefined;
  }
}

/** Who made the call may not any more: it is granted to nobody (G7). */
export function decideUnauthorized(state: CallState, nowMs: number): CallEntry | undefined {
  const message = "the key that made the call was revoked before a runner took it";
  return state.kind === "queued" ? { kind: "denied", at: nowMs, error: callError("no_longer_authorized", message) } : undefined;
}

/** A queued call without attempts left is over. */
export function decideExhausted(state: CallState, nowMs: number): CallEntry | undefined {
  if (state.kind !== "queued" || state.record.attempts < state.record.request.maxAttempts) {
    return undefined;
  }
  return {
    kind: "exhausted",
    at: nowMs,
    error: callError("attempts_exhausted", `all ${state.record.request.maxAttempts} attempts were used up`),
  };
}

export type CancelDecision =
  | { readonly kind: "append"; readonly entry: CallEntry }
  /** Nothing to do: the call is settled, or the same cancel is under way. */
  | { readonly kind: "unchanged" }
  | { readonly kind: "not_cancellable"; readonly message: string };

export function decideCancel(
  state: Exclude<CallState, { kind: "requested" }>,
  mode: "kill" | "skip" | "killnowait",
  reason: string | undefined,
  nowMs: number,
): CancelDecision {
  const settle: CancelDecision = {
    kind: "append",
    entry: {
      kind: "cancelled",
      at: nowMs,
      error: callError("call_cancelled", reason ?? "the call was cancelled"),
      letRun: mode === "skip",
    },
  };
  switch (state.kind) {
    case "awaiting_confirmation":
    case "queued":
    case "submitted":
      return settle;
    case "running": {
      if (mode !== "kill") {
        return settle;
      }
      if (!(state.record.request.cancellable && state.grant.handlerCancellable)) {
        return {
          kind: "not_cancellable",
          message: `the handler of ${state.record.request.tool} cannot be cancelled; mode skip or killnowait settles the call without it`,
        };
      }
      if (state.cancel !== null) {
        return { kind: "unchanged" };
      }
      return { kind: "append", entry: { kind: "cancel_requested", at: nowMs, reason: reason ?? "the call was cancelled" } };
    }
    case "needs_reconciliation":
      return { kind: "not_cancellable", message: "nobody knows whether the call was applied: reconcile it" };
    default:
      return { kind: "unchanged" };
  }
}

export interface ReconcileInput {
  readonly outcome: "applied" | "not_applied" | "abandon";
  readonly value: StoredText | null;
  readonly resultFaults: readonly FaultDetail[];
  readonly by: string;
  readonly note: string | null;
  /** The reconcile grant that this answers, where it is a handler's word: heard only while that one is asked. */
  readonly askId?: string;
}

export function decideReconcile(state: CallState, input: ReconcileInput, nowMs: number): CallEntry | undefined {
  if (state.kind !== "needs_reconciliation" || (input.askId !== undefined && state.asked?.grantId !== input.askId)) {
    return undefined;
  }
  const { request, attempts, deadlineAtMs } = state.record;
  let error: CallError | null = null;
  if (input.outcome === "abandon") {
    error = callError("outcome_unknown", "the call was given up: nobody knows whether it was applied");
  } else if (input.outcome === "applied" && input.resultFaults.length > 0) {
    error = callError("result_invalid", resultInvalidMessage(request.tool, input.resultFaults), { details: input.resultFaults });
  } else if (
    input.outcome === "not_applied" &&
    state.cancel === null &&
    (attempts >= request.maxAttempts || (deadlineAtMs !== null && nowMs >= deadlineAtMs))
  ) {
    error = callError(
      "not_applied",
      "the call was found not to have been applied, and neither time nor attempts were left to run it again",
    );
  }
  return {
    kind: "reconciled",
    at: nowMs,
    outcome: input.outcome,
    by: input.by,
    note: input.note,
    value: input.outcome === "applied" ? (input.value ?? NULL_TEXT) : null,
    error,
    ...(input.outcome === "not_applied" && error === null && state.cancel !== null ? { cancelled: true as const } : {}),
    ...(input.askId === undefined ? {} : { askId: input.askId }),
  };
}
