/** The entries of a call's log: facts that happened, each the event of one edge of the call machine. */
import type { WaitingFor } from "../call-view.js";
import type { Json } from "../ports/catalog.js";
import type { Version } from "../ports/ledger.js";
import type { CallError, CallRequest, GrantHolder, ReconcileHolder, StoredText } from "./call-state.js";

interface EntryBase {
  readonly at: number;
  /** Of entries on a settled call, the one that settles it included: whose the call is, for when retention took what came before. */
  readonly application?: string;
  /**
   * News of the running attempt that was told live but not stored when it came: the handler's start, and how far
   * the numbers of events went with progress. Absent when there was none.
   */
  readonly live?: { readonly startedAtMs: number | null; readonly startedSeq: number | null; readonly lastSeq: number };
}

export interface GrantFacts {
  readonly attempt: number;
  readonly holder: GrantHolder;
}

export interface ReceiptEntryFacts {
  readonly grantId: string;
  readonly attempt: number;
  readonly fence: Version;
  readonly runnerId: string;
  readonly digest: string;
  readonly startedAtMs: number | null;
  readonly outcome: "succeeded" | "failed" | "cancelled" | "submitted";
  /** Result or handle. */
  readonly value: StoredText | null;
  readonly error: CallError | null;
}

export type CallEntry =
  | (EntryBase & {
      readonly kind: "accepted";
      readonly request: CallRequest;
      readonly argumentsJson: string;
      readonly driver: string;
      readonly deadlineAtMs: number | null;
      /** Set when a person has to confirm first. */
      readonly confirmationExpiresAtMs: number | null;
      /** Set on the fast path: accepted and granted in one append. */
      readonly grant: GrantFacts | null;
    })
  | (EntryBase & { readonly kind: "confirmed"; readonly by: string; readonly deadlineAtMs: number })
  | (EntryBase & { readonly kind: "denied"; readonly error: CallError })
  | (EntryBase & { readonly kind: "waiting"; readonly waitingFor: WaitingFor })
  | (EntryBase & { readonly kind: "granted"; readonly driver: string; readonly grant: GrantFacts })
  | (EntryBase & {
      readonly kind: "returned";
      readonly grantId: string;
      /** Why the grant came back without its handler having begun. */
      readonly reason: "unavailable" | "forbidden" | "never_started" | "unsent";
      readonly message: string;
      readonly notBeforeMs: number | null;
    })
  | (EntryBase & {
      readonly kind: "receipt";
      readonly receipt: ReceiptEntryFacts;
      /** What is wrong with the result; it is kept all the same. */
      readonly fault: CallError | null;
      /** Set when the failure leads to another attempt. */
      readonly retryAtMs: number | null;
      /** Set with outcome submitted. */
      readonly submissionExpiresAtMs: number | null;
    })
  | (EntryBase & {
      readonly kind: "lease_lost";
      readonly grantId: string;
      readonly cause: "lease" | "runner_restarted";
      readonly message: string;
      /** Set when the call is safe to repeat. */
      readonly retryAtMs: number | null;
    })
  | (EntryBase & { readonly kind: "exhausted"; readonly error: CallError })
  | (EntryBase & { readonly kind: "timed_out"; readonly error: CallError })
  | (EntryBase & { readonly kind: "cancel_requested"; readonly reason: string })
  | (EntryBase & { readonly kind: "cancel_answered"; readonly level: "delivered" | "ignored" })
  | (EntryBase & { readonly kind: "cancelled"; readonly error: CallError; readonly letRun: boolean })
  | (EntryBase & {
      /** The holder of the journal that saw the grant start is asked what became of it; its process is gone (G4). */
      readonly kind: "reconcile_granted";
      /** The grant that is asked about: the newest one. */
      readonly startedGrantId: string;
      readonly holder: ReconcileHolder;
      readonly expiresAtMs: number;
      /** Why the outcome is unknown: told when the call ran until now. */
      readonly message: string;
    })
  | (EntryBase & {
      /** The handler could not tell, or did not answer. */
      readonly kind: "reconcile_unanswered";
      /** The reconcile grant. */
      readonly grantId: string;
      readonly reason: "unknown" | "unavailable" | "timed_out" | "gone";
      readonly message: string;
      /** When it is asked again; null: only when its runner connects anew. */
      readonly askAgainAtMs: number | null;
    })
  | (EntryBase & {
      readonly kind: "reconciled";
      readonly outcome: "applied" | "not_applied" | "abandon";
      readonly by: string;
      readonly note: string | null;
      readonly value: StoredText | null;
      /** Set when the call fails: result_invalid, not_applied without attempts, outcome_unknown. */
      readonly error: CallError | null;
      /** With `not_applied`: a cancel was asked for before, so the call ends instead of running again. */
      readonly cancelled?: true;
      /** The reconcile grant whose answer this is; absent: a person's word. */
      readonly askId?: string;
      /** With `not_applied`: the runner that held the last grant may begin until then (G3), so nobody else does. */
      readonly notBeforeMs?: number;
    })
  | (EntryBase & {
      /** News of a submitted call. */
      readonly kind: "updated";
      readonly updateId: string;
      readonly digest: string;
      readonly data: { readonly [key: string]: Json };
    })
  | (EntryBase & { readonly kind: "evidence"; readonly receipt: ReceiptEntryFacts })
  | (EntryBase & { readonly kind: "adopted"; readonly driver: string; readonly from: string });

export type CallEntryKind = CallEntry["kind"];

/** An entry with its place in the log. */
export type PlacedEntry = CallEntry & { readonly entryId: string; readonly version: Version };
