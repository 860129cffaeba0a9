/**
 * What brokers ask of each other. All of it is JSON on the bus; nothing in it is durable truth, and every command
 * can be repeated: drivers decide by the call's log.
 */
import type { GrantHolder, StoredText } from "../domain/call/call-state.js";
import type { FinalFacts, UpdateFacts } from "../domain/call/decide-submission.js";
import type { ReceiptEntryFacts } from "../domain/call/entries.js";
import type { CallEventView, CallStateName, CallView } from "../domain/call-view.js";
import type { Json } from "../domain/ports/catalog.js";
import type { CancelMode, FinalReceiptView, ReconcileOutcome } from "./operations.js";
import type { Requirement } from "./requirement.js";
import type { SessionRef, Sight } from "./session.js";

/** Where news of a runner stands among all of it: what comes late, or twice, over the bus is told from what comes next. */
export interface NewsOrder {
  readonly sessionEpoch: number;
  readonly number: number;
}

/** The same of one progress event: its numbers in the log say who told it, this says when the runner did. */
export interface ProgressOrder extends NewsOrder {
  readonly grantId: string;
}

export type HeldPhase = "not_started" | "running" | "outcome_unknown" | "finished";

/** Whose runner speaks: a call of another application, binding or subject is none of its business (I8). */
export interface RunnerRef {
  readonly application: string;
  readonly binding: string;
  /** Null on a backend. */
  readonly subject: string | null;
  readonly journalId: string;
}

/** Who speaks by a binding's key and no session: a call of another application or binding is none of its business (I8). */
export interface BindingRef {
  readonly application: string;
  /** `*`: the development key, which serves any. */
  readonly binding: string;
}

/** To the driver of a call. */
export type DriverCommand =
  | { readonly op: "receipt"; readonly runner: RunnerRef; readonly receipt: ReceiptEntryFacts }
  /** Would a receipt like this be stored? Asked before a large value is. `done`: it would. */
  | { readonly op: "receipt_probe"; readonly runner: RunnerRef; readonly receipt: ReceiptEntryFacts }
  | {
      readonly op: "decline";
      readonly runner: RunnerRef;
      readonly grantId: string;
      readonly reason: "unavailable" | "forbidden";
      readonly message: string;
    }
  | { readonly op: "started"; readonly runner: RunnerRef; readonly grantId: string; readonly atMs: number }
  | {
      readonly op: "progress";
      readonly runner: RunnerRef;
      readonly grantId: string;
      readonly order: NewsOrder;
      readonly data: { readonly [key: string]: Json };
    }
  | {
      readonly op: "cancel_answer";
      readonly runner: RunnerRef;
      readonly grantId: string;
      readonly level: "delivered" | "stopped" | "ignored";
    }
  /** News of a submitted call, from a session or by the binding's key. */
  | ({ readonly op: "update"; readonly update: UpdateFacts } & ({ readonly runner: RunnerRef } | { readonly key: BindingRef }))
  /** The final receipt of a submitted call, by the binding's key. `fence`: of the grant that the work was begun for. */
  | { readonly op: "final_receipt"; readonly key: BindingRef; readonly receipt: FinalFacts; readonly fence: number | null }
  /** A runner says that it holds a grant: in its hello, or in the answer to a ping. */
  | { readonly op: "held"; readonly runner: RunnerRef; readonly grantId: string; readonly phase: HeldPhase; readonly session: SessionRef }
  | { readonly op: "cancel"; readonly mode: CancelMode; readonly reason: string | null }
  | { readonly op: "confirm"; readonly decision: "allow" | "deny"; readonly by: string }
  | {
      readonly op: "reconcile";
      /** The grant whose outcome was unknown to who decided: a decision that comes late is not one about a later grant. */
      readonly grantId: string;
      readonly outcome: ReconcileOutcome;
      readonly value: StoredText | null;
      readonly by: string;
      readonly note: string | null;
    }
  /** What a reconcile handler said. */
  | {
      readonly op: "reconcile_answer";
      readonly runner: RunnerRef;
      /** The reconcile grant. */
      readonly grantId: string;
      readonly outcome: "applied" | "not_applied" | "unknown" | "unavailable";
      readonly value: StoredText | null;
      /** Of the last two: why. */
      readonly message: string;
    }
  /** Another broker took calls over: do not believe your memory. */
  | { readonly op: "verify" }
  /** `isSure`, on this broker only: the driver stored something since the question was asked, so what it remembers is true. */
  | { readonly op: "view"; readonly isSure?: boolean }
  /** Waits up to `waitMs` for events after `afterSeq`. */
  | { readonly op: "events"; readonly afterSeq: number; readonly waitMs: number };

export type DriverAnswer =
  | { readonly kind: "disposition"; readonly disposition: ReceiptDispositionName }
  /**
   * `keep` false: the grant counts no longer, the runner has to give it up. `over`: nobody will ask what became of it, so a runner
   * that does not know may forget it.
   */
  | { readonly kind: "held"; readonly keep: boolean; readonly over?: boolean }
  | { readonly kind: "view"; readonly view: CallView; readonly answered: boolean }
  | {
      readonly kind: "events";
      readonly events: readonly CallEventView[];
      /** Where each of `events` stands among the runner's news; null: it is no progress. Left out when none is. */
      readonly orders?: readonly (ProgressOrder | null)[];
      /** There are more events than one answer holds: ask again after the last one. */
      readonly more: boolean;
      /** The agent's turn waits for the reconcile handler that is being asked, for this long yet. Left out when it does not. */
      readonly turnWaitsMs?: number;
      readonly settled: boolean;
      readonly state: CallStateName;
    }
  | { readonly kind: "updated"; readonly event: CallEventView }
  | { readonly kind: "settled"; readonly receipt: FinalReceiptView }
  | { readonly kind: "done" }
  | { readonly kind: "refused"; readonly code: string; readonly message: string }
  /** There is no such call for who asks. */
  | { readonly kind: "not_found" }
  /** The answering broker does not drive the call. */
  | { readonly kind: "not_driver" };

export type ReceiptDispositionName = "settled" | "repeated" | "evidence" | "expired";

/** To the broker that holds a runner's session. */
export type SessionCommand =
  | { readonly op: "grant"; readonly grant: GrantToSend }
  /** Would a question about a call of this tool be sent? */
  | { readonly op: "can_reconcile"; readonly tool: { readonly tool: string; readonly version: string; readonly journalId: string } }
  | { readonly op: "reconcile"; readonly question: QuestionToSend }
  | { readonly op: "cancel"; readonly callId: string; readonly grantId: string; readonly fence: number; readonly reason: string }
  | { readonly op: "revoke"; readonly callId: string; readonly grantId: string; readonly fence: number; readonly reason: string };

/** `sent` and `never_sent` are certain; `gone`: it may have been sent, on a session that is over or before it was dealt with. */
export type SessionAnswer = "sent" | "never_sent" | "gone";

/** Everything that a grant frame says, made by the driver. */
export interface GrantToSend {
  readonly driver: string;
  /**
   * The answer to an offer that this grant takes up, on another broker; `local`: reserved on this one; null: it is asked
   * again for a grant that its driver did not make. A grant without a claim is never sent (G1).
   */
  readonly offerId: string | null;
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
  readonly attempt: number;
  readonly tool: string;
  readonly version: string;
  readonly toolset: string;
  readonly toolsetVersion: number;
  readonly argumentsJson: string;
  readonly subject: string | null;
  readonly agent: string | null;
  readonly session: string | null;
  readonly deadlineAtMs: number;
  readonly scopes: readonly string[];
  readonly traceparent: string | null;
}

/** Everything that a reconcile frame says, made by the driver. */
export interface QuestionToSend {
  /** The reconcile grant; its deadline is that of the answer. */
  readonly grant: GrantToSend;
  readonly startedGrantId: string;
  readonly startedFence: number;
  /** The journal that saw the start. */
  readonly journalId: string;
}

/** Broadcast to brokers that have a matching handler connected: who has a free runner answers. Or asked of one broker, which answers null then. */
export interface Offer {
  readonly callId: string;
  readonly requirement: Requirement;
}

export interface OfferAnswer {
  /** Names the reserved claim in the grant that takes it up. */
  readonly offerId: string;
  readonly holder: GrantHolder;
  readonly session: SessionRef;
  readonly sight: Sight;
  readonly focused: boolean;
  readonly load: number;
}

/** Broadcast: a runner of this binding and subject has a free slot at this broker. */
export interface ClaimAppeared {
  readonly place: string;
  readonly brokerId: string;
}

/** Broadcast: the call was granted for this answer, or for none. Whoever reserved another claim for it frees it. */
export interface OfferTaken {
  readonly callId: string;
  readonly offerId: string | null;
}
