/**
 * Decisions about a call whose work goes on elsewhere: updates, and a final receipt that names no grant since it comes from
 * whoever holds the binding's key and not from the journal that took the grant (X5).
 *
 * Invariants: what was stored is answered as it was the first time, also after the call settled; without a fence a final
 * receipt settles only a submitted call; with one it counts as a receipt of the newest grant or not at all (I5).
 */
import { UPDATES_PER_CALL_MAX } from "../limits.js";
import type { Json } from "../ports/catalog.js";
import type { Version } from "../ports/ledger.js";
import { type CallState, isSettledState } from "./call-state.js";
import { decideReceipt, type ReceiptContext } from "./decide.js";
import type { CallEntry, ReceiptEntryFacts } from "./entries.js";

/** News of a submitted call. */
export interface UpdateFacts {
  readonly id: string;
  /** SHA-256 of what it says. */
  readonly digest: string;
  readonly data: { readonly [key: string]: Json };
}

/** What a final receipt says without naming its grant. */
export type FinalFacts = Pick<ReceiptEntryFacts, "runnerId" | "digest" | "value" | "error"> & {
  readonly outcome: "succeeded" | "failed" | "cancelled";
};

/** Codes of the error table. */
export type SubmissionRefusal =
  | "not_submitted"
  | "call_settled"
  | "receipt_conflict"
  | "fence_stale"
  | "updates_exhausted"
  | "idempotency_conflict";

export type UpdateDecision =
  | { readonly kind: "append"; readonly entry: CallEntry }
  | { readonly kind: "stored"; readonly seq: number }
  | { readonly kind: "refused"; readonly code: SubmissionRefusal; readonly message: string };

export type FinalDecision =
  /** `refused`: the entry keeps what came too late. */
  | { readonly kind: "append"; readonly entry: CallEntry; readonly refused: boolean }
  | { readonly kind: "stored" }
  | { readonly kind: "refused"; readonly code: SubmissionRefusal; readonly message: string };

type KnownState = Exclude<CallState, { readonly kind: "requested" }>;

/** A repeat is `stored`, whatever became of the call since. */
export function decideUpdate(state: KnownState, update: UpdateFacts, nowMs: number): UpdateDecision {
  const { updates, request } = state.record;
  const known = updates.find(({ id }) => id === update.id);
  if (known !== undefined) {
    return known.digest === update.digest
      ? { kind: "stored", seq: known.seq }
      : refused("idempotency_conflict", `call ${request.callId} has another update with this key: use a new key for a new update`);
  }
  if (isSettledState(state)) {
    return refused("call_settled", `call ${request.callId} is ${state.kind}: it takes no more updates`);
  }
  if (state.kind !== "submitted") {
    return refused("not_submitted", notSubmitted(state));
  }
  if (updates.length >= UPDATES_PER_CALL_MAX) {
    return refused("updates_exhausted", `call ${request.callId} has ${UPDATES_PER_CALL_MAX} updates, which is as many as a call may have`);
  }
  return { kind: "append", entry: { kind: "updated", at: nowMs, updateId: update.id, digest: update.digest, data: update.data } };
}

/** `fence`: of the grant that the work was begun for, where the sender knows it. */
export function decideFinal(state: KnownState, final: FinalFacts, fence: Version | null, context: ReceiptContext): FinalDecision {
  const { request, newestGrant } = state.record;
  if (newestGrant === null) {
    return refused("not_submitted", notSubmitted(state));
  }
  if (fence !== null && fence !== newestGrant.fence) {
    return refused("fence_stale", `call ${request.callId} was granted again: its newest fence is not ${fence}`);
  }
  if (isSettledState(state) && state.settlement.receipt?.digest === final.digest && state.settlement.receipt.outcome === final.outcome) {
    return { kind: "stored" };
  }
  if (!isSettledState(state) && state.kind !== "submitted" && fence === null) {
    return refused("not_submitted", notSubmitted(state));
  }
  const { grantId, attempt } = newestGrant;
  const receipt: ReceiptEntryFacts = { ...final, grantId, attempt, fence: newestGrant.fence, startedAtMs: null };
  const decision = decideReceipt(state, receipt, context);
  if (decision.kind === "append") {
    return { kind: "append", entry: decision.entry, refused: decision.disposition === "evidence" };
  }
  return refused("receipt_conflict", settledOtherwise(state));
}

/** What is said to who comes with another outcome. */
export function settledOtherwise(state: KnownState): string {
  return `call ${state.record.request.callId} is ${state.kind}, with another receipt than this one`;
}

function notSubmitted(state: KnownState): string {
  return `call ${state.record.request.callId} is ${state.kind}: no handle of it has arrived`;
}

function refused(
  code: SubmissionRefusal,
  message: string,
): { readonly kind: "refused"; readonly code: SubmissionRefusal; readonly message: string } {
  return { kind: "refused", code, message };
}
