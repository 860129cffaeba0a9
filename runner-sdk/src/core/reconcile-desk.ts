/**
 * Answers what became of grants that this journal saw start in a process that is gone, by the tools' `reconcile` handlers.
 *
 * Owns the questions that are open. Invariants:
 * - R1 A handler looks only where nothing of the call runs here any more (G4): else a run that is still at it would do later what
 *   the look did not find.
 * - R2 What the journal knows is answered from it: a receipt is sent again, what never began is `not_applied`, durably (G1).
 * - R3 Each question gets at most one answer, on the session that asked it, within its time; one about the same call that follows
 *   takes the place of the one before. No more handlers look at once than may run, but for those that ignore their abort.
 */
import { callContext } from "./call-context.js";
import { type Clock, instant } from "./clock.js";
import { AbortReason, type Reconciliation } from "./context.js";
import type { Delivery } from "./delivery.js";
import { messageOf, typeNameOf } from "./errors.js";
import type { Handler, HandlerTable } from "./handlers.js";
import type { JournalEntry } from "./journal.js";
import type { JournalGate } from "./journal-gate.js";
import { clipText } from "./json.js";
import type { EventLog } from "./log.js";
import type { ReconcileOrder, ReconcileOutcome } from "./messages.js";
import { MESSAGE_BYTES_MAX, outcomeOfValue, RESULT_BYTES_DEFAULT } from "./outcome.js";
import type { SessionLink } from "./session-link.js";
import { protocolFaultFrame, reconcileAnswerFrame } from "./wire.js";

export interface ReconcileDeskOptions {
  readonly clock: Clock;
  readonly log: EventLog;
  readonly journal: JournalGate;
  readonly handlers: HandlerTable;
  readonly delivery: Pick<Delivery, "send">;
  readonly concurrency: number;
  /** Does any grant of this call still run here, or end, or is about to begin? */
  readonly isLive: (callId: string) => boolean;
  /** No handler is asked any more: the runner drains. */
  readonly isAccepting: () => boolean;
}

/** One question from its arrival to its answer. */
interface Question {
  readonly order: ReconcileOrder;
  readonly link: SessionLink;
  readonly controller: AbortController;
  timer: { cancel(): void } | null;
  /** Its handler was called. */
  looking: boolean;
}

/** Asks `reconcile` handlers; see the rules above. */
export class ReconcileDesk {
  /** By call. */
  readonly #open = new Map<string, Question>();
  readonly #waiting: { readonly question: Question; readonly begin: (isOpen: boolean) => void }[] = [];
  #looking = 0;

  constructor(private readonly options: ReconcileDeskOptions) {}

  /** Takes a question. Never throws. */
  take(order: ReconcileOrder, link: SessionLink): void {
    const { grant, startedGrantId } = order;
    if (grant.callId === "" || grant.grantId === "" || startedGrantId === "") {
      link.send(protocolFaultFrame("frame_invalid", "call_id, grant_id and started_grant_id must not be empty", grant.callId));
      return;
    }
    const present = this.#open.get(grant.callId);
    if (present?.order.grant.grantId === grant.grantId && present.link === link) return;
    if (present !== undefined) this.#drop(present, "revoked", "the broker asks anew");
    const question: Question = { order, link, controller: new AbortController(), timer: null, looking: false };
    this.#open.set(grant.callId, question);
    void this.#answer(question).catch((error: unknown) => {
      this.options.log.error("reconcile_failed", { ...nameOf(order), message: messageOf(error) });
      this.#say(question, { kind: "unavailable", message: "the runner failed at it" });
    });
  }

  /** The broker needs no answer any more; false: the grant is none of a question's. */
  revoke(grantId: string): boolean {
    for (const question of this.#open.values()) {
      if (question.order.grant.grantId !== grantId) continue;
      this.#drop(question, "revoked", "the broker took the question back");
      return true;
    }
    return false;
  }

  /** The session is over: its questions are asked anew in the next one. */
  detach(): void {
    for (const question of [...this.#open.values()]) this.#drop(question, "lease_lost", "the session of the question is over");
  }

  /** Aborts every handler that looks. */
  abortAll(message: string): void {
    for (const question of [...this.#open.values()]) {
      this.#say(question, { kind: "unavailable", message });
      question.controller.abort(new AbortReason("draining", message));
    }
  }

  async #answer(question: Question): Promise<void> {
    const { order, link } = question;
    const { journal, handlers, clock } = this.options;
    const { grant, startedGrantId } = order;
    const unavailable = (message: string): void => void this.#say(question, { kind: "unavailable", message });
    if (grant.sessionEpoch !== link.epoch)
      return unavailable(`the question is for session ${grant.sessionEpoch}, this is session ${link.epoch}`);
    const entry = journal.view.get(startedGrantId);
    // The records of a grant are dropped when it was acknowledged: that a journal does not know it says nothing (G1).
    if (entry === undefined || entry.callId !== grant.callId) return unavailable("the journal does not know the grant");
    if (this.options.isLive(grant.callId)) return unavailable("the handler still runs in this process");
    if (entry.receipt !== null) {
      this.options.delivery.send(entry.receipt);
      return unavailable("the handler finished: its receipt is sent again");
    }
    if (entry.phase === "granted") return this.#neverStarted(question, entry);
    const handler = handlers.find(grant.tool, grant.version);
    if (handler?.tool.reconcile === undefined) {
      return unavailable(`no reconcile handler for tool "${grant.tool}" version "${grant.version}"`);
    }
    if (!this.options.isAccepting()) return unavailable("the runner drains");
    let args: unknown;
    try {
      args = JSON.parse(grant.argumentsJson === "" ? "{}" : grant.argumentsJson);
    } catch {
      return unavailable("the arguments are not JSON");
    }
    question.timer = clock.schedule(grant.remainingMs, () => this.#timeIsUp(question));
    if (!(await this.#turn(question))) return;
    try {
      if (this.#isOpen(question)) await this.#look(question, handler, args, entry);
    } finally {
      this.#turnOver();
    }
  }

  async #neverStarted(question: Question, { callId, grantId, fence, refused }: JournalEntry): Promise<void> {
    const { journal, clock } = this.options;
    if (!refused) {
      const record = { kind: "refused", callId, grantId, fence, neverStarted: true, at: clock.now() } as const;
      if (!(await journal.appendUntilWritten(record))) return;
    }
    this.#say(question, { kind: "not_applied" });
  }

  async #look(question: Question, handler: Handler, args: unknown, { startedAt }: JournalEntry): Promise<void> {
    const { grant } = question.order;
    const { log, clock } = this.options;
    question.looking = true;
    const deadline = new Date(instant(clock).wallMs + grant.remainingMs);
    const { signal } = question.controller;
    const context = callContext(grant, this.options.journal.journalId, deadline, () => signal, {
      arguments: args,
      startedAt: new Date(startedAt),
    });
    let outcome: ReconcileOutcome;
    try {
      const found: unknown = await Promise.race([handler.tool.reconcile?.(context), aborted(signal)]);
      outcome = this.#outcomeOf(question, handler, found);
    } catch (error) {
      log.info("reconcile_threw", nameOf(question.order));
      outcome = unknown(`${typeNameOf(error)}: ${messageOf(error)}`);
    }
    if (this.#say(question, outcome)) log.info("reconcile_answered", { ...nameOf(question.order), outcome: outcome.kind });
  }

  #outcomeOf({ order, link }: Question, handler: Handler, found: unknown): ReconcileOutcome {
    if (!isReconciliation(found))
      return unknown("reconcile must return applied(result), notApplied() or unknown(), and returned something else");
    if (found.kind === "not_applied") return found;
    if (found.kind === "unknown") return unknown("the reconcile handler cannot tell");
    const limits = [order.grant.maxResultBytes, link.limits.resultBytes].filter((limit) => limit > 0);
    const result = outcomeOfValue(handler, found.result, limits.length === 0 ? RESULT_BYTES_DEFAULT : Math.min(...limits));
    // That it was applied is known then, and its result cannot be told: a person sees why.
    if (result.kind !== "succeeded")
      return unknown(result.kind === "failed" ? `it was applied, but ${result.message}` : "a submission is no result");
    return { kind: "applied", resultJson: result.resultJson };
  }

  #timeIsUp(question: Question): void {
    const { looking } = question;
    this.#say(
      question,
      looking
        ? unknown("the reconcile handler did not answer in time")
        : { kind: "unavailable", message: "too many others were asked before it: its turn did not come in time" },
    );
    question.controller.abort(new AbortReason("deadline", "the time to answer in is up"));
  }

  /** Resolves to whether it may look now; false: nobody waits for it any more. */
  #turn(question: Question): Promise<boolean> {
    if (this.#looking >= this.options.concurrency) return new Promise((begin) => this.#waiting.push({ question, begin }));
    this.#looking += 1;
    return Promise.resolve(true);
  }

  #turnOver(): void {
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      const isOpen = this.#isOpen(next.question);
      next.begin(isOpen);
      if (isOpen) return;
    }
    this.#looking -= 1;
  }

  #isOpen(question: Question): boolean {
    return this.#open.get(question.order.grant.callId) === question;
  }

  #drop(question: Question, code: "revoked" | "lease_lost", message: string): void {
    this.#close(question);
    question.controller.abort(new AbortReason(code, message));
  }

  #close(question: Question): void {
    question.timer?.cancel();
    if (this.#isOpen(question)) this.#open.delete(question.order.grant.callId);
  }

  /** False: it was answered, or needs no answer any more. */
  #say(question: Question, outcome: ReconcileOutcome): boolean {
    if (!this.#isOpen(question)) return false;
    this.#close(question);
    if (!question.link.open) return false;
    if (question.link.send(reconcileAnswerFrame(question.order.grant, outcome)) === "too_large") {
      question.link.send(reconcileAnswerFrame(question.order.grant, unknown("it was applied, but its result is too large for a frame")));
    }
    return true;
  }
}

const nameOf = ({ grant, startedGrantId }: ReconcileOrder) => ({ call_id: grant.callId, grant_id: startedGrantId, tool: grant.tool });

const unknown = (message: string): ReconcileOutcome => ({ kind: "unknown", message: clipText(message, MESSAGE_BYTES_MAX) });

function isReconciliation(found: unknown): found is Reconciliation {
  if (typeof found !== "object" || found === null || !("kind" in found)) return false;
  return found.kind === "not_applied" || found.kind === "unknown" || (found.kind === "applied" && "result" in found);
}

/** Rejects when the signal aborts. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
