/**
 * The state of one call: what acceptance fixed, what the log of its entries added, and the union of states,
 * each holding just what it owns. Everything here can be rebuilt from the call's entries.
 */
import type { SettledStateName, WaitingFor } from "../call-view.js";
import type { FaultDetail } from "../fault.js";
import type { BindingKind, CallLimits } from "../ports/catalog.js";
import type { Version } from "../ports/ledger.js";

/** What acceptance fixed for ever. Times are Unix milliseconds. */
export interface CallRequest {
  readonly callId: string;
  readonly application: string;
  readonly agent: string | null;
  readonly keyId: string;
  readonly subject: string | null;
  readonly session: string | null;
  readonly toolset: string;
  readonly toolsetVersion: number;
  readonly tool: string;
  /** The handler's version. */
  readonly version: string;
  readonly binding: string;
  readonly bindingKind: BindingKind;
  readonly readOnly: boolean;
  readonly idempotent: boolean;
  readonly cancellable: boolean;
  readonly submission: boolean;
  /** How long a submission waits for its final receipt; absent: the default. */
  readonly submissionTimeoutMs?: number;
  readonly modelResultBytesMax: number;
  readonly scopes: readonly string[];
  /** SHA-256 of the request's canonical body: the same key with another hash is a conflict. */
  readonly requestHash: string;
  readonly timeoutMs: number;
  readonly maxAttempts: number;
  readonly priority: "interactive" | "background";
  /** Calls of the application with the same key run one at a time, in the order in which they were acknowledged. Absent: none. */
  readonly orderingKey?: string;
  /** The limits that held when it was accepted. Absent: none. */
  readonly limits?: CallLimits;
  readonly traceparent: string | null;
  readonly createdAtMs: number;
}

/** Who got a grant, and what its handler declared. Stored with the grant's entry. */
export interface GrantHolder {
  readonly runnerId: string;
  readonly sessionEpoch: number;
  readonly journalId: string;
  /** Incarnation of the broker that holds the runner's session. */
  readonly brokerId: string;
  readonly handlerReadOnly: boolean;
  readonly handlerIdempotent: boolean;
  readonly handlerCancellable: boolean;
}

export interface Grant extends GrantHolder {
  /** The id of the grant's entry. */
  readonly grantId: string;
  /** The version of the grant's entry. */
  readonly fence: Version;
  readonly attempt: number;
  readonly grantedAtMs: number;
}

/** Whose reconcile handler is asked. */
export type ReconcileHolder = Pick<GrantHolder, "runnerId" | "sessionEpoch" | "journalId" | "brokerId">;

/** A reconcile handler's order to find out what became of the grant that its journal saw started (G4). */
export interface ReconcileGrant extends ReconcileHolder {
  /** The id of its own entry. */
  readonly grantId: string;
  /** The version of its own entry: newer than the fence of the grant that it asks about. */
  readonly fence: Version;
  readonly grantedAtMs: number;
  /** Without an answer by then there will be none. */
  readonly expiresAtMs: number;
}

export interface CallError {
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  readonly retryAfterMs: number | null;
  readonly details: readonly FaultDetail[];
}

/** A JSON text: inside the entry, or in a blob beside it. */
export type StoredText =
  | { readonly kind: "inline"; readonly json: string; readonly bytes: number }
  | { readonly kind: "blob"; readonly name: string; readonly bytes: number };

export interface ReceiptFacts {
  readonly grantId: string;
  readonly attempt: number;
  readonly fence: Version;
  readonly runnerId: string;
  readonly digest: string;
  readonly outcome: "succeeded" | "failed" | "cancelled" | "submitted";
  readonly receivedAtMs: number;
}

export interface CancelRequest {
  readonly reason: string;
  readonly requestedAtMs: number;
  readonly ignored: boolean;
}

/** What the log says about a call in whatever state it is. */
export interface CallRecord {
  readonly request: CallRequest;
  readonly argumentsJson: string;
  /** Incarnation of the broker that drives the call. */
  readonly driver: string;
  /** Version of the last entry. */
  readonly version: Version;
  /** Number of the last event. */
  readonly eventSeq: number;
  /** Grants that count: those that were returned unstarted do not. */
  readonly attempts: number;
  /** Runners that could not take it, in a row. */
  readonly declines: number;
  /** Null while a person decides and after settlement of a submission. */
  readonly deadlineAtMs: number | null;
  /** The newest grant, also after it ended: its receipt still settles. */
  readonly newestGrant: Grant | null;
  /** Ids of the call's newest grants, the last one last: a receipt of any other is none of this call's. */
  readonly grantIds: readonly string[];
  /** The newest grant's handler is known to have begun. */
  readonly startedAtMs: number | null;
  /** Grant whose receipt led to a retry or a submission: a repeat of it is only acknowledged. */
  readonly consumedReceipt: { readonly grantId: string; readonly digest: string } | null;
  /** `grantId/digest` of each receipt that is stored and can do no more: late ones, and those that led to earlier retries. */
  readonly evidence: readonly string[];
  /** The updates that the call got while it was submitted, oldest first. */
  readonly updates: readonly StoredUpdate[];
}

/** An update that is stored; its text is in the event of this number. */
export interface StoredUpdate {
  /** Chosen by who sent it: a repeat has the same. */
  readonly id: string;
  /** SHA-256 of what it says. */
  readonly digest: string;
  readonly seq: number;
}

export interface Settlement {
  readonly atMs: number;
  readonly receipt: ReceiptFacts | null;
  readonly result: StoredText | null;
  readonly error: CallError | null;
  /** Cancelled with `skip`: the handler is left to run. */
  readonly letRun: boolean;
}

export type CallState =
  | { readonly kind: "requested" }
  | { readonly kind: "awaiting_confirmation"; readonly record: CallRecord; readonly expiresAtMs: number }
  | { readonly kind: "queued"; readonly record: CallRecord; readonly notBeforeMs: number | null; readonly waitingFor: WaitingFor | null }
  | { readonly kind: "running"; readonly record: CallRecord; readonly grant: Grant; readonly cancel: CancelRequest | null }
  | {
      readonly kind: "submitted";
      readonly record: CallRecord;
      readonly grant: Grant;
      readonly receipt: ReceiptFacts;
      readonly handle: StoredText;
      readonly expiresAtMs: number;
    }
  | {
      readonly kind: "needs_reconciliation";
      readonly record: CallRecord;
      /** The grant whose outcome nobody knows. */
      readonly grant: Grant;
      readonly cause: string;
      /** Somebody asked for a cancel before: what was not applied is not run again. */
      readonly cancel: CancelRequest | null;
      /** The handler that is being asked; null: none is. */
      readonly asked: ReconcileGrant | null;
      /** How often a handler was asked about this grant, and when last. */
      readonly asks: number;
      readonly lastAskAtMs: number | null;
      /** When the handler is asked again by itself; null: not before its runner connects anew. */
      readonly askAgainAtMs: number | null;
    }
  | { readonly kind: SettledStateName; readonly record: CallRecord; readonly settlement: Settlement };

export type CallStateKind = CallState["kind"];
export type OpenCallState = Exclude<CallState, { readonly kind: SettledStateName | "requested" }>;
export type SettledCallState = Extract<CallState, { readonly kind: SettledStateName }>;

/** Nothing that is not safe to repeat is started twice: safe is the weaker of what the tool and what the handler says. */
export function isRepeatable(request: CallRequest, holder: GrantHolder): boolean {
  return (request.readOnly || request.idempotent) && (holder.handlerReadOnly || holder.handlerIdempotent);
}

export function recordOf(state: Exclude<CallState, { readonly kind: "requested" }>): CallRecord {
  return state.record;
}

export function isSettledState(state: CallState): state is SettledCallState {
  return "settlement" in state;
}
