/**
 * Decisions about reconcile handlers (G4): when one is asked what became of a grant, and what it comes to when it does not say.
 *
 * Invariants: only a call whose outcome nobody knows, or whose runner lost it, is asked about, and never one that is safe to
 * repeat: that is repeated; a handler that cannot tell is asked again a bounded number of times, with growing pauses, also when
 * its runner dies of the question.
 */
import { RECONCILE_ASKS_BY_TIME_MAX, RECONCILE_ASKS_MAX } from "../limits.js";
import { type CallState, isRepeatable, type ReconcileHolder } from "./call-state.js";
import { type BackOff, backOffMs, UNKNOWN_AFTER_RESTART } from "./decide.js";
import type { CallEntry } from "./entries.js";

/** Between two questions about one grant. */
export const ASK_BACK_OFF: BackOff = { baseMs: 1_000, maxMs: 60_000, jitter: 0.5 };

type Of<K extends CallEntry["kind"]> = Extract<CallEntry, { readonly kind: K }>;

/** The grant whose outcome a reconcile handler may be asked for in this state; undefined: there is none. */
export function askableGrant(state: CallState): Extract<CallState, { kind: "running" | "needs_reconciliation" }>["grant"] | undefined {
  switch (state.kind) {
    case "needs_reconciliation":
      return state.asks < RECONCILE_ASKS_MAX ? state.grant : undefined;
    case "running":
      return isRepeatable(state.record.request, state.grant) ? undefined : state.grant;
    default:
      return undefined;
  }
}

/** The earliest moment of the next question, in the ledger's time: 0 for the first one. */
export function askNotBeforeMs(state: CallState): number {
  if (state.kind !== "needs_reconciliation" || state.lastAskAtMs === null) {
    return 0;
  }
  return state.askAgainAtMs ?? state.lastAskAtMs + backOffMs(state.asks, 1, ASK_BACK_OFF);
}

/** The question to `holder`, whose journal saw grant `startedGrantId` start in a process that is gone; undefined: not now. */
export function decideAsk(
  state: CallState,
  startedGrantId: string,
  holder: ReconcileHolder,
  times: { readonly nowMs: number; readonly answerMs: number },
): Of<"reconcile_granted"> | undefined {
  const grant = askableGrant(state);
  if (grant?.grantId !== startedGrantId || grant.journalId !== holder.journalId || times.nowMs < askNotBeforeMs(state)) {
    return undefined;
  }
  return {
    kind: "reconcile_granted",
    at: times.nowMs,
    startedGrantId,
    holder,
    expiresAtMs: times.nowMs + times.answerMs,
    message: UNKNOWN_AFTER_RESTART,
  };
}

/** The handler that is asked will not say; undefined: it is not asked any more. */
export function decideUnanswered(
  state: CallState,
  askId: string,
  why: { readonly reason: Of<"reconcile_unanswered">["reason"]; readonly message: string },
  nowMs: number,
  random: number,
): Of<"reconcile_unanswered"> | undefined {
  if (state.kind !== "needs_reconciliation" || state.asked?.grantId !== askId) {
    return undefined;
  }
  const again = state.asks < RECONCILE_ASKS_BY_TIME_MAX;
  return {
    kind: "reconcile_unanswered",
    at: nowMs,
    grantId: askId,
    ...why,
    askAgainAtMs: again ? nowMs + backOffMs(state.asks, random, ASK_BACK_OFF) : null,
  };
}

/** The handler that is asked did not answer in its time. */
export function decideAskExpired(state: CallState, nowMs: number, random: number): CallEntry | undefined {
  if (state.kind !== "needs_reconciliation" || state.asked === null || nowMs < state.asked.expiresAtMs) {
    return undefined;
  }
  const why = { reason: "timed_out", message: "the reconcile handler did not answer in time" } as const;
  return decideUnanswered(state, state.asked.grantId, why, nowMs, random);
}

/**
 * Until when the agent's turn waits for the handler's first answer, in the ledger's time; undefined: it does not. The turn is
 * answered once (I6), and "it was done" is a better answer than "nobody knows".
 */
export function turnWaitsUntilMs(state: CallState, turnMs: number): number | undefined {
  return state.kind === "needs_reconciliation" && state.asked !== null && state.asks === 1 ? state.asked.grantedAtMs + turnMs : undefined;
}
