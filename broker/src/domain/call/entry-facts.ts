/** What an entry of the log contributes to a state: grants, receipts and errors in the form in which a state holds them. */
import type { CallError, CallState, Grant, ReceiptFacts, ReconcileGrant } from "./call-state.js";
import type { GrantFacts, PlacedEntry, ReceiptEntryFacts } from "./entries.js";

/** The grant that the entry makes: named by its id, fenced by its version. */
export function grantOf(entry: PlacedEntry, { attempt, holder }: GrantFacts): Grant {
  return {
    runnerId: holder.runnerId,
    sessionEpoch: holder.sessionEpoch,
    journalId: holder.journalId,
    brokerId: holder.brokerId,
    handlerReadOnly: holder.handlerReadOnly,
    handlerIdempotent: holder.handlerIdempotent,
    handlerCancellable: holder.handlerCancellable,
    grantId: entry.entryId,
    fence: entry.version,
    attempt,
    grantedAtMs: entry.at,
  };
}

/** The question that the entry puts: a grant too (G4). */
export function reconcileGrantOf(entry: Extract<PlacedEntry, { kind: "reconcile_granted" }>): ReconcileGrant {
  const { runnerId, sessionEpoch, journalId, brokerId } = entry.holder;
  const { entryId, version, at, expiresAtMs } = entry;
  return { runnerId, sessionEpoch, journalId, brokerId, grantId: entryId, fence: version, grantedAtMs: at, expiresAtMs };
}

export function plainError(code: string, message: string): CallError {
  return { code, message, retryable: false, retryAfterMs: null, details: [] };
}

/** Why a call is cancelled that said nothing about it itself. */
export function cancelledError(before: CallState): CallError {
  const reason = before.kind === "running" || before.kind === "needs_reconciliation" ? before.cancel?.reason : undefined;
  return plainError("call_cancelled", reason ?? "the call was cancelled");
}

export function evidenceKey(receipt: { readonly grantId: string; readonly digest: string }): string {
  return `${receipt.grantId}/${receipt.digest}`;
}

export function receiptFacts(receipt: ReceiptEntryFacts, receivedAtMs: number): ReceiptFacts {
  const { grantId, attempt, fence, runnerId, digest, outcome } = receipt;
  return { grantId, attempt, fence, runnerId, digest, outcome, receivedAtMs };
}
