/**
 * The call machine: `transition(state, entry)` is pure and total. It looks the entry's edge up, builds the next state,
 * and says what has to happen outside (`effects`) and what the agent is told (`events`). Effects follow the append of the
 * entry, never precede it.
 *
 * Invariants: settled states never change (only evidence is added); a receipt settles only as the newest grant's;
 * event numbers rise by one, and only progress leaves gaps.
 */

import { assertNever } from "../assert-never.js";
import type { EventName } from "../call-view.js";
import { isoTime } from "../iso-time.js";
import { GRANTS_REMEMBERED, PROGRESS_EVENTS_PER_ATTEMPT_MAX } from "../limits.js";
import type { Json } from "../ports/catalog.js";
import type { CallError, CallRecord, CallState, Grant, ReceiptFacts, ReconcileGrant, SettledCallState, Settlement } from "./call-state.js";
import { type Edge, edgeFor } from "./edges.js";
import type { CallEntry, GrantFacts, PlacedEntry } from "./entries.js";
import { cancelledError, evidenceKey, grantOf, plainError, receiptFacts, reconcileGrantOf } from "./entry-facts.js";
import { NOTHING_YET, withUpdate } from "./record-changes.js";

export type CallEffect =
  /** Look for a runner, not before the state's `notBeforeMs`. */
  | { readonly kind: "offer" }
  | { readonly kind: "send_grant"; readonly grant: Grant }
  | { readonly kind: "push_cancel"; readonly grant: Grant; readonly reason: string }
  /** Tell the runner that the grant counts no longer. */
  | { readonly kind: "revoke"; readonly grant: Grant | ReconcileGrant; readonly reason: string }
  /** Ask the reconcile handler. */
  | { readonly kind: "send_reconcile"; readonly asked: ReconcileGrant }
  /** Ask it once more, not before the state's `askAgainAtMs`. */
  | { readonly kind: "reconcile_again" }
  | { readonly kind: "settled" };

export interface CallEvent {
  readonly seq: number;
  readonly atMs: number;
  readonly event: EventName;
  readonly data: { readonly [key: string]: Json };
}

export interface Transition {
  readonly kind: "moved";
  readonly edge: Edge;
  readonly state: Exclude<CallState, { readonly kind: "requested" }>;
  readonly effects: readonly CallEffect[];
  readonly events: readonly CallEvent[];
}

export interface Rejection {
  readonly kind: "rejected";
  readonly reason: string;
}

/** May this entry be appended in this state? The place of the entry does not matter. */
export function accepts(state: CallState, entry: CallEntry): boolean {
  return edgeFor(state, entry) !== undefined;
}

export function transition(state: CallState, entry: PlacedEntry): Transition | Rejection {
  const edge = edgeFor(state, entry);
  if (edge === undefined) {
    return { kind: "rejected", reason: `${entry.kind} has no edge from ${state.kind}` };
  }
  const step = new Step(state, entry);
  const next = step.walk(edge);
  return { kind: "moved", edge, state: next, effects: step.effects, events: step.events };
}

type Moved = Transition["state"];

/** One step of the machine: collects effects and events while the next state is built. */
class Step {
  readonly effects: CallEffect[] = [];
  readonly events: CallEvent[] = [];
  private seq: number;

  constructor(
    private readonly before: CallState,
    private readonly entry: PlacedEntry,
  ) {
    this.seq = before.kind === "requested" ? 0 : before.record.eventSeq;
  }

  walk(edge: Edge): Moved {
    const { entry, before } = this;
    if (entry.kind === "accepted") {
      return this.accept(entry, edge.to);
    }
    if (before.kind === "requested") {
      // The table has only `accepted` edges from `requested`.
      throw new Error(`edge ${edge.on} from requested`);
    }
    this.tellLive(before.record);
    if (before.kind === "needs_reconciliation" && before.asked !== null && edge.to !== "needs_reconciliation") {
      // Whatever its handler would say now, the call is past it.
      this.effects.push({ kind: "revoke", grant: before.asked, reason: "the outcome is known" });
    }
    switch (entry.kind) {
      case "confirmed":
        this.tell("confirmed", { by: entry.by });
        return this.queue({ ...before.record, deadlineAtMs: entry.deadlineAtMs }, null, {});
      case "denied":
        return this.settle("denied", before.record, { error: entry.error });
      case "waiting":
        this.tell("waiting", { waiting_for: entry.waitingFor });
        return {
          kind: "queued",
          record: this.advance(before.record),
          notBeforeMs: before.kind === "queued" ? before.notBeforeMs : null,
          waitingFor: entry.waitingFor,
        };
      case "granted":
        return this.grant({ ...before.record, driver: entry.driver }, entry.grant);
      case "returned":
        return this.giveBack(before, entry, edge);
      case "receipt":
        return this.receipt(before, entry, edge);
      case "lease_lost":
        return this.leaseLost(before, entry);
      case "exhausted":
        return this.settle("failed", before.record, { error: entry.error });
      case "timed_out":
        return this.timeOut(before, entry.error, edge);
      case "cancel_requested":
        return this.requestCancel(before, entry.reason);
      case "cancel_answered":
        return this.cancelAnswered(before, entry.level);
      case "cancelled":
        this.endGrant(before, entry.letRun ? null : "call_cancelled");
        return this.settle("cancelled", before.record, { error: entry.error, letRun: entry.letRun });
      case "reconcile_granted":
        return this.ask(before, entry);
      case "reconcile_unanswered":
        return this.unanswered(before, entry);
      case "reconciled":
        return this.reconcile(before, entry, edge);
      case "updated":
        this.tell("progress", entry.data);
        return this.withRecord(before, withUpdate(before.record, entry, this.seq));
      case "evidence":
        this.tell("late_receipt", {
          attempt: entry.receipt.attempt,
          fence: entry.receipt.fence,
          outcome: entry.receipt.outcome,
          runner_id: entry.receipt.runnerId,
        });
        return this.withRecord(before, { ...before.record, evidence: [...before.record.evidence, evidenceKey(entry.receipt)] });
      case "adopted":
        return this.adopt(before, entry.driver);
      default:
        return assertNever(entry);
    }
  }

  private accept(entry: Extract<PlacedEntry, { kind: "accepted" }>, to: CallState["kind"]): Moved {
    const record: CallRecord = {
      request: entry.request,
      argumentsJson: entry.argumentsJson,
      driver: entry.driver,
      version: entry.version,
      eventSeq: 0,
      attempts: 0,
      declines: 0,
      deadlineAtMs: entry.deadlineAtMs,
      ...NOTHING_YET,
    };
    this.tell("requested", { toolset: entry.request.toolset, tool: entry.request.tool, binding: entry.request.binding });
    if (to === "awaiting_confirmation") {
      const expiresAtMs = entry.confirmationExpiresAtMs ?? entry.at;
      this.tell("confirmation_requested", { expires_at: isoTime(expiresAtMs) });
      return { kind: "awaiting_confirmation", record: this.advance(record), expiresAtMs };
    }
    if (entry.grant !== null) {
      this.tell("queued", {});
      return this.grant(record, entry.grant);
    }
    return this.queue(record, null, {});
  }

  private queue(record: CallRecord, notBeforeMs: number | null, data: { readonly [key: string]: Json } | null): Moved {
    if (data !== null) {
      this.tell("queued", data);
    }
    this.effects.push({ kind: "offer" });
    return { kind: "queued", record: this.advance(record), notBeforeMs, waitingFor: null };
  }

  private grant(record: CallRecord, facts: GrantFacts): Moved {
    const grant = grantOf(this.entry, facts);
    this.tell("granted", { attempt: grant.attempt, fence: grant.fence, runner_id: grant.runnerId });
    this.effects.push({ kind: "send_grant", grant });
    return {
      kind: "running",
      record: {
        ...record,
        version: this.entry.version,
        eventSeq: this.seq,
        attempts: facts.attempt,
        newestGrant: grant,
        grantIds: [...record.grantIds.slice(1 - GRANTS_REMEMBERED), grant.grantId],
        startedAtMs: null,
      },
      grant,
      cancel: null,
    };
  }

  private giveBack(before: Moved, entry: Extract<PlacedEntry, { kind: "returned" }>, edge: Edge): Moved {
    const grant = this.endGrant(before, null);
    if (entry.reason === "forbidden") {
      return this.settle("denied", before.record, { error: plainError("forbidden", entry.message) });
    }
    if (edge.to === "needs_reconciliation") {
      return this.toReconciliation(before, grant, "the runner said that the call began, then that it did not: its outcome is unknown");
    }
    if (edge.to === "cancelled") {
      return this.settle("cancelled", before.record, { error: cancelledError(before) });
    }
    const attempts = grant === null ? before.record.attempts : grant.attempt - 1;
    const declines = before.record.declines + (entry.reason === "unavailable" ? 1 : 0);
    return this.queue({ ...before.record, attempts, declines }, entry.notBeforeMs, { reason: entry.reason });
  }

  private receipt(before: Moved, entry: Extract<PlacedEntry, { kind: "receipt" }>, edge: Edge): Moved {
    const { receipt } = entry;
    if (receipt.startedAtMs !== null && before.record.startedAtMs === null && (entry.live?.startedSeq ?? null) === null) {
      // The news of the start was lost with a session or a broker; the receipt says it again.
      this.tell("started", { attempt: receipt.attempt }, receipt.startedAtMs);
    }
    const grant = this.endGrant(before, null) ?? before.record.newestGrant;
    const facts = receiptFacts(receipt, entry.at);
    const earlier = before.record.consumedReceipt;
    const consumed: CallRecord = {
      ...before.record,
      declines: 0,
      consumedReceipt: { grantId: receipt.grantId, digest: receipt.digest },
      evidence: earlier === null ? before.record.evidence : [...before.record.evidence, evidenceKey(earlier)],
    };
    if (edge.to === "submitted") {
      if (grant === null || receipt.value === null) {
        throw new Error("submitted without a grant and a handle");
      }
      this.tell("submitted", {});
      return {
        kind: "submitted",
        record: this.advance({ ...consumed, deadlineAtMs: null }),
        grant,
        receipt: facts,
        handle: receipt.value,
        expiresAtMs: entry.submissionExpiresAtMs ?? entry.at,
      };
    }
    if (edge.to === "queued") {
      this.tell("retry_scheduled", {
        attempt: receipt.attempt,
        not_before: isoTime(entry.retryAtMs ?? entry.at),
        code: receipt.error?.code ?? "handler_error",
      });
      return this.queue(consumed, entry.retryAtMs, null);
    }
    const settled = { receipt: facts, result: receipt.value };
    switch (edge.to) {
      case "succeeded":
        return this.settle(edge.to, before.record, settled);
      case "failed": {
        const error = entry.fault ?? receipt.error ?? plainError("handler_error", "the handler failed and gave no reason");
        return this.settle(edge.to, before.record, { ...settled, error });
      }
      case "cancelled":
        return this.settle(edge.to, before.record, { ...settled, error: receipt.error ?? cancelledError(before) });
      default:
        throw new Error(`receipt leads to ${edge.to}`);
    }
  }

  private leaseLost(before: Moved, entry: Extract<PlacedEntry, { kind: "lease_lost" }>): Moved {
    const grant = this.endGrant(before, "lease_lost");
    this.tell("lease_lost", { attempt: grant?.attempt ?? 0, cause: entry.cause });
    if (entry.retryAtMs !== null) {
      this.tell("retry_scheduled", {
        attempt: grant?.attempt ?? 0,
        not_before: isoTime(entry.retryAtMs),
        code: entry.cause,
      });
      return this.queue({ ...before.record, declines: 0 }, entry.retryAtMs, null);
    }
    return this.toReconciliation(before, grant, entry.message);
  }

  private timeOut(before: Moved, error: CallError, edge: Edge): Moved {
    const grant = this.endGrant(before, "deadline");
    return edge.to === "needs_reconciliation"
      ? this.toReconciliation(before, grant, error.message)
      : this.settle("timed_out", before.record, { error });
  }

  private requestCancel(before: Moved, reason: string): Moved {
    if (before.kind !== "running") {
      throw new Error("cancel_requested outside running");
    }
    this.tell("cancel_requested", { mode: "kill" });
    this.effects.push({ kind: "push_cancel", grant: before.grant, reason });
    return { ...before, record: this.advance(before.record), cancel: { reason, requestedAtMs: this.entry.at, ignored: false } };
  }

  private cancelAnswered(before: Moved, level: "delivered" | "ignored"): Moved {
    if (before.kind !== "running") {
      throw new Error("cancel_answered outside running");
    }
    this.tell(level === "ignored" ? "cancel_ignored" : "cancel_delivered", {});
    const ignored = level === "ignored" || before.cancel?.ignored === true;
    return { ...before, record: this.advance(before.record), cancel: before.cancel === null ? null : { ...before.cancel, ignored } };
  }

  private reconcile(before: Moved, entry: Extract<PlacedEntry, { kind: "reconciled" }>, edge: Edge): Moved {
    const { record } = before;
    if (entry.error !== null) {
      return this.settle("failed", record, { result: entry.value, error: entry.error, reconciled: entry.outcome });
    }
    if (edge.to === "cancelled") {
      return this.settle("cancelled", record, { error: cancelledError(before), reconciled: entry.outcome });
    }
    if (entry.outcome === "not_applied") {
      return this.queue(record, entry.notBeforeMs ?? null, { reason: "not_applied" });
    }
    return this.settle("succeeded", record, { result: entry.value, reconciled: entry.outcome });
  }

  /** A driver that takes over starts the work of the state anew; what its predecessor may have sent is repeated. */
  private adopt(before: Moved, driver: string): Moved {
    let record: CallRecord = { ...before.record, driver };
    if (before.kind === "queued") {
      this.effects.push({ kind: "offer" });
    }
    if (before.kind === "running") {
      // The predecessor may have told progress whose numbers nobody stored.
      record = { ...record, eventSeq: record.eventSeq + PROGRESS_EVENTS_PER_ATTEMPT_MAX };
      this.seq = record.eventSeq;
    }
    return this.withRecord(before, record);
  }

  private toReconciliation(before: Moved, grant: Grant | null, cause: string): Moved {
    const { record } = before;
    const held = grant ?? record.newestGrant;
    if (held === null) {
      throw new Error("reconciliation without a grant");
    }
    this.tell("needs_reconciliation", { cause });
    const cancel = before.kind === "running" ? before.cancel : null;
    const unasked = { asked: null, asks: 0, lastAskAtMs: null, askAgainAtMs: null };
    return { kind: "needs_reconciliation", record: this.advance(record), grant: held, cause, cancel, ...unasked };
  }

  private ask(before: Moved, entry: Extract<PlacedEntry, { kind: "reconcile_granted" }>): Moved {
    let state = before;
    if (before.kind === "running") {
      this.endGrant(before, "lease_lost");
      this.tell("lease_lost", { attempt: before.grant.attempt, cause: "runner_restarted" });
      state = this.toReconciliation(before, before.grant, entry.message);
    }
    if (state.kind !== "needs_reconciliation") {
      throw new Error("reconcile_granted outside running and needs_reconciliation");
    }
    const asked = reconcileGrantOf(entry);
    this.effects.push({ kind: "send_reconcile", asked });
    return { ...state, record: this.advance(state.record), asked, asks: state.asks + 1, lastAskAtMs: entry.at, askAgainAtMs: null };
  }

  private unanswered(before: Moved, entry: Extract<PlacedEntry, { kind: "reconcile_unanswered" }>): Moved {
    if (before.kind !== "needs_reconciliation") {
      throw new Error("reconcile_unanswered outside needs_reconciliation");
    }
    if (entry.askAgainAtMs !== null) {
      this.effects.push({ kind: "reconcile_again" });
    }
    return { ...before, record: this.advance(before.record), asked: null, askAgainAtMs: entry.askAgainAtMs };
  }

  private settle(
    kind: SettledCallState["kind"],
    record: CallRecord,
    what: {
      readonly receipt?: ReceiptFacts;
      readonly result?: Settlement["result"];
      readonly error?: CallError | null;
      readonly reconciled?: string;
      readonly letRun?: boolean;
    },
  ): Moved {
    const error = what.error ?? null;
    this.tell("settled", {
      state: kind,
      ...(error === null ? {} : { code: error.code }),
      ...(what.reconciled === undefined ? {} : { reconciled: what.reconciled }),
    });
    this.effects.push({ kind: "settled" });
    return {
      kind,
      record: this.advance(record),
      settlement: { atMs: this.entry.at, receipt: what.receipt ?? null, result: what.result ?? null, error, letRun: what.letRun ?? false },
    };
  }

  /** Ends the running grant, if there is one, and with a reason tells the runner. */
  private endGrant(before: CallState, reason: string | null): Grant | null {
    if (before.kind !== "running") {
      if (before.kind === "submitted" && reason !== null) {
        this.effects.push({ kind: "revoke", grant: before.grant, reason });
      }
      return null;
    }
    if (reason !== null) {
      this.effects.push({ kind: "revoke", grant: before.grant, reason });
    }
    return before.grant;
  }

  private tell(event: EventName, data: { readonly [key: string]: Json }, atMs = this.entry.at): void {
    this.seq += 1;
    this.events.push({ seq: this.seq, atMs, event, data });
  }

  /** The start of the handler, told live with its own number, comes into the log with the next entry. */
  private tellLive(record: CallRecord): void {
    const { live } = this.entry;
    if (live === undefined) {
      return;
    }
    if (live.startedAtMs !== null && live.startedSeq !== null && record.startedAtMs === null) {
      this.events.push({ seq: live.startedSeq, atMs: live.startedAtMs, event: "started", data: { attempt: record.attempts } });
    }
    this.seq = Math.max(this.seq, live.lastSeq);
  }

  private withRecord(before: Moved, record: CallRecord): Moved {
    return { ...before, record: this.advance(record) };
  }

  private advance(record: CallRecord): CallRecord {
    const told = this.entry.kind === "receipt" ? this.entry.receipt.startedAtMs : null;
    const startedAtMs = record.startedAtMs ?? this.entry.live?.startedAtMs ?? told;
    return {
      ...record,
      version: this.entry.version,
      eventSeq: this.seq,
      startedAtMs: this.entry.kind === "granted" || this.entry.kind === "accepted" ? null : startedAtMs,
    };
  }
}
