/**
 * Takes the frames about grants and decides what becomes of each: run it, decline it, report it, send its receipt again.
 *
 * Owns the live executions. Invariants:
 * - D1 A grant is run at most once: what the journal or a live execution knows is answered from there.
 * - D2 Once a hello is being composed, nothing of an older session starts (G2); what had not started is durably refused before
 *   it is reported as not started.
 * - D3 After a refusal no grant of that call with its fence or an older one is taken (G1).
 * - D4 A handler that is not safe to repeat does not run while an earlier grant of its call runs here, nor after one finished
 *   here: the journaled outcome is then the answer to the new grant too (G5).
 */
import { type Clock, type Instant, instant } from "./clock.js";
import type { AbortCode } from "./context.js";
import { Delivery } from "./delivery.js";
import type { Sha256 } from "./digest.js";
import { Execution, type ExecutionHost, grantedRecord } from "./execution.js";
import type { Handler, HandlerTable } from "./handlers.js";
import type { JournalEntry } from "./journal.js";
import type { JournalGate } from "./journal-gate.js";
import { Lease } from "./lease.js";
import type { EventLog } from "./log.js";
import type { Grant, GrantMessage, GrantName, HeldReport, Receipt, ReportedPhase } from "./messages.js";
import { failure, receiptOf } from "./outcome.js";
import { ReconcileDesk } from "./reconcile-desk.js";
import type { SessionLink } from "./session-link.js";
import { endSubmission, type SubmissionEnd, SubmissionSignals } from "./submission-signals.js";
import { UpdateDesk } from "./update-desk.js";
import { cancelAnswerFrame, declineFrame, pongFrame, protocolFaultFrame, revokeAnswerFrame, startedFrame } from "./wire.js";

/** Grants that one report lists at most: what a frame holds. Running ones come first. */
export const REPORTED_MAX = 6_000;
/** A timer this late means that the event loop stood still: sockets are read once before anything is aborted. */
const STALL_MS = 250;
const AFTER_STALL_MS = 50;

export interface GrantDeskOptions {
  readonly clock: Clock;
  readonly log: EventLog;
  readonly journal: JournalGate;
  readonly handlers: HandlerTable;
  readonly sha256: Sha256;
  readonly authorize: ExecutionHost["authorize"];
  readonly concurrency: number;
  readonly random: () => number;
  /** How many `reconcile` handlers look at once; by default as many as calls run. */
  readonly reconcileConcurrency?: number;
  /** Called when something ended or was acknowledged: the desk may be idle now. */
  readonly onProgressed: () => void;
  /** Called when the broker took a submitted call back. */
  readonly onSubmissionEnded: ((end: SubmissionEnd) => void) | undefined;
}

/** Decides about grants; see the rules above. */
export class GrantDesk {
  readonly delivery: Delivery;
  readonly updates: UpdateDesk;
  readonly submissions = new SubmissionSignals();
  readonly #live = new Map<string, Execution>();
  /** Refused fences whose record is not durable yet, by call. */
  readonly #refusing = new Map<string, number>();
  /** Grants of an earlier process whose outcome this one does not know, and whose broker has heard so from it. */
  readonly #toldUnknown = new Set<string>();
  readonly #reconciles: ReconcileDesk;
  readonly #host: ExecutionHost;
  #link: SessionLink | null = null;
  #accepting = true;
  #watch: { cancel(): void; readonly dueMs: number } | null = null;

  constructor(private readonly options: GrantDeskOptions) {
    const { clock, log, journal, sha256, authorize } = options;
    this.delivery = new Delivery({ journal, clock, log, sha256, onAcknowledged: options.onProgressed });
    this.#reconciles = new ReconcileDesk({
      clock,
      log,
      journal,
      handlers: options.handlers,
      delivery: this.delivery,
      concurrency: options.reconcileConcurrency ?? options.concurrency,
      isLive: (callId) => [...this.#live.values()].some(({ grant }) => grant.callId === callId),
      isAccepting: () => this.#accepting,
    });
    this.updates = new UpdateDesk({ clock, random: options.random, journal, isLive: (grantId) => this.#live.has(grantId) });
    this.#host = {
      clock,
      log,
      journal,
      sha256,
      authorize,
      link: () => this.#link,
      deliver: (receipt) => this.delivery.send(receipt),
      submitted: (callId, controller) => this.submissions.keep(callId, controller),
    };
  }

  /** Whether nothing runs and every receipt is acknowledged. */
  get idle(): boolean {
    return this.#live.size === 0 && this.delivery.idle;
  }

  get liveCount(): number {
    return this.#live.size;
  }

  /** The standing claim: none while draining or without a working journal. */
  get slots(): number {
    return this.#accepting && this.options.journal.fault === null ? this.options.concurrency : 0;
  }

  /** From now on every grant is declined. */
  stopAccepting(): void {
    this.#accepting = false;
  }

  /** Aborts everything that runs. */
  abortAll(code: AbortCode, message: string): void {
    for (const execution of this.#live.values()) execution.abort(code, message);
    this.#reconciles.abortAll(message);
  }

  /**
   * Gives back what has not begun, before this returns: it never will. True when nothing else is live. What had been written down as
   * started is taken back in the journal first, and reported from there.
   */
  handBack(message: string): boolean {
    const { journal, clock } = this.options;
    let isIdle = true;
    for (const execution of this.#live.values()) {
      const wasAdmitting = execution.phase === "admitting";
      isIdle &&= wasAdmitting;
      if (!execution.drop()) continue;
      const refused = { kind: "refused", ...nameOf(execution.grant), neverStarted: true, at: clock.now() } as const;
      if (wasAdmitting) {
        journal.note(refused);
        this.#link?.send(declineFrame(execution.grant, "unavailable", message));
      } else {
        // Under way although nobody waits for it: the place may be gone before the execution itself comes to it.
        journal.append(refused).catch(() => undefined);
      }
    }
    return isIdle;
  }

  /** Receipts that are on their way into the journal. */
  *unwritten(): Iterable<Receipt> {
    for (const { unwritten } of this.#live.values()) if (unwritten !== null) yield unwritten;
  }

  /** Resolves when everything that is live now is over. */
  async settled(): Promise<void> {
    await Promise.all([...this.#live.values()].map((execution) => execution.done));
  }

  /** Before a hello (D2). After it resolves, {@link held} says what the hello may report. */
  async prepareHello(): Promise<void> {
    const { journal, clock } = this.options;
    for (const execution of this.#live.values()) execution.drop();
    await Promise.all([...this.#live.values()].map((execution) => execution.startDecided));
    const notStarted = [...journal.view.unacknowledged()].filter((entry) => entry.phase === "granted" && !entry.refused);
    await Promise.all(
      notStarted.map((entry) =>
        // What cannot be refused durably is left out of the report: the broker asks about it.
        journal.append({ kind: "refused", ...nameOf(entry), neverStarted: true, at: clock.now() }).catch(() => undefined),
      ),
    );
  }

  /**
   * What the runner holds. In a hello also what it durably refused since the last one, and what it said before that nobody knows:
   * its reconcile handler may be asked anew. Running grants come first.
   */
  held(inHello: boolean): readonly HeldReport[] {
    const reports: HeldReport[] = [];
    for (const { grant, phase } of this.#live.values()) {
      if (phase === "over") continue;
      // One that is still being taken back is not durably refused yet (D2), and not held any more either.
      if (phase === "withdrawing") continue;
      // Between hellos, what is about to begin counts as running: "not started" would hand it back to the broker.
      reports.push({ ...nameOf(grant), phase: "running" });
    }
    for (const entry of this.options.journal.view.unacknowledged()) {
      if (reports.length >= REPORTED_MAX) {
        this.options.log.warn("report_cut", { reported: reports.length });
        break;
      }
      if (this.#live.has(entry.grantId)) continue;
      const phase = reportedPhase(entry);
      if (phase === "outcome_unknown" && !inHello && this.#toldUnknown.has(entry.grantId)) continue;
      if (phase !== "not_started" || (inHello && entry.refused)) reports.push({ ...nameOf(entry), phase });
    }
    return reports;
  }

  /** The session was welcomed: its hello's report counts as known, receipts go out again. */
  attach(link: SessionLink, reported: readonly HeldReport[]): void {
    const { journal, clock, log } = this.options;
    this.#link = link;
    const listed = new Set(reported.map((report) => report.grantId));
    for (const execution of this.#live.values()) execution.listedFrom = listed.has(execution.grant.grantId) ? 0 : null;
    for (const report of reported) {
      if (report.phase === "not_started") journal.note({ kind: "acknowledged", grantId: report.grantId, at: clock.now() });
    }
    this.updates.attach(link);
    this.delivery.attach(link).catch(() => log.error("receipts_resend_failed"));
  }

  detach(): void {
    this.#link = null;
    this.updates.detach();
    this.#reconciles.detach();
    this.delivery.detach();
  }

  /** Takes one frame about grants. Never throws. */
  take(message: GrantMessage, link: SessionLink): void {
    switch (message.kind) {
      case "grant":
        return this.#grant(message.grant, link);
      case "cancel":
        return this.#cancel(message.name, message.reason, link);
      case "revoke":
        void this.#revoke(message.name, link);
        endSubmission(this.options, this.submissions, message.name, message.reason);
        return;
      case "reconcile":
        return this.#reconciles.take(message.order, link);
      case "update_answer":
        return this.updates.answer(message.callId, message.updateId, message.disposition);
      case "chunk_answer":
        return this.delivery.chunksAnswered(message.answer);
      case "receipt_ack":
        if (this.#hasNoReceipt(message.grantId)) {
          // The broker knows what became of it, or that nobody will ask any more.
          this.#toldUnknown.delete(message.grantId);
          return this.options.journal.note({ kind: "acknowledged", grantId: message.grantId, at: this.options.clock.now() });
        }
        return this.delivery.acknowledge(message.grantId, message.disposition);
    }
  }

  /**
   * Answers a ping. The newest answer that the broker has, the hello being number 0, renews the leases of the grants that it
   * listed, from when it was sent (G3).
   */
  answerPing(number: number, acknowledged: number, link: SessionLink): void {
    const sentAt = link.answerSentAt(acknowledged);
    const reports = this.held(false);
    for (const execution of this.#live.values()) {
      if (sentAt !== null && execution.listedFrom !== null && execution.listedFrom <= acknowledged) execution.lease.renew(sentAt);
      execution.listedFrom ??= number;
    }
    link.send(pongFrame(number, reports));
    this.delivery.resendOverdue(Math.max(link.leaseMs, 1_000));
    this.#arm(instant(this.options.clock));
  }

  #grant(grant: Grant, link: SessionLink): void {
    if (!named(grant, link)) return;
    if (this.#answerKnown(grant, link)) return;
    const decline = (message: string) => {
      this.options.log.info("grant_declined", {
        call_id: grant.callId,
        grant_id: grant.grantId,
        tool: grant.tool,
        reason: "unavailable",
        message,
      });
      link.send(declineFrame(grant, "unavailable", message));
    };
    if (!link.open) return;
    if (grant.sessionEpoch !== link.epoch) return decline(`the grant is for session ${grant.sessionEpoch}, this is session ${link.epoch}`);
    const refused = Math.max(this.options.journal.view.refusedFence(grant.callId) ?? -1, this.#refusing.get(grant.callId) ?? -1);
    if (grant.fence <= refused) return decline(`fence ${grant.fence} was refused: ${refused} was taken back`);
    const handler = this.options.handlers.find(grant.tool, grant.version);
    if (handler === undefined) {
      const versions = this.options.handlers.versions(grant.tool);
      return decline(
        `no handler for tool "${grant.tool}" version "${grant.version}"${versions.length > 0 ? `: this runner has ${versions.join(", ")}` : ""}`,
      );
    }
    if (!this.#accepting) return decline("the runner drains");
    if (this.options.journal.fault !== null) return decline("the runner's journal cannot be written");
    if (this.#live.size >= this.options.concurrency) return decline(`the runner runs ${this.#live.size} calls, as many as it takes`);
    const answeredAt = link.answerSentAt(grant.pongNumber);
    if (answeredAt === null) return decline(`the lease cannot be counted: answer ${grant.pongNumber} is not of this session`);
    const lease = new Lease(answeredAt, grant.leaseMs > 0 ? grant.leaseMs : link.leaseMs);
    const receivedAt = instant(this.options.clock);
    if (lease.leftMs(receivedAt) <= 0) return decline("the lease was over when the grant was read");
    if (!handler.repeatable && this.#answerFromSibling(grant, decline)) return;
    let args: unknown;
    try {
      args = JSON.parse(grant.argumentsJson === "" ? "{}" : grant.argumentsJson);
    } catch {
      void this.#settleUnstarted(grant, failure("arguments_invalid", `the arguments of tool "${grant.tool}" are not JSON`));
      return;
    }
    this.#run(grant, handler, args, lease, receivedAt);
  }

  #run(grant: Grant, handler: Handler, args: unknown, lease: Lease, receivedAt: Instant): void {
    const execution = new Execution(this.#host, grant, handler, args, lease, receivedAt);
    this.#live.set(grant.grantId, execution);
    void execution.done.then(() => {
      this.#live.delete(grant.grantId);
      this.options.onProgressed();
    });
    this.#arm(receivedAt, execution);
  }

  /** Answers a grant that was seen before (D1); true when it was. */
  #answerKnown(grant: Grant, link: SessionLink): boolean {
    const execution = this.#live.get(grant.grantId);
    if (execution !== undefined) {
      if (execution.phase === "running" || execution.phase === "finishing") link.send(startedFrame(grant, this.options.clock.now()));
      return true;
    }
    const entry = this.options.journal.view.get(grant.grantId);
    if (entry?.receipt != null) this.delivery.send(entry.receipt);
    else if (entry?.phase === "started") link.send(revokeAnswerFrame(grant, this.options.journal.journalId, "outcome_unknown"));
    else return false;
    return true;
  }

  /** D4; true when the grant was answered. */
  #answerFromSibling(grant: Grant, decline: (message: string) => void): boolean {
    for (const sibling of this.options.journal.view.ofCall(grant.callId)) {
      if (sibling.grantId === grant.grantId) continue;
      if (this.#live.has(sibling.grantId)) {
        decline("an earlier grant of this call is still with this runner");
        return true;
      }
      const outcome = sibling.receipt?.outcome;
      if (outcome === undefined || (outcome.kind === "failed" && outcome.retryable)) continue;
      this.options.log.info("outcome_replayed", { call_id: grant.callId, grant_id: grant.grantId, earlier_grant_id: sibling.grantId });
      void this.#settleUnstarted(grant, outcome, sibling.receipt ?? undefined);
      return true;
    }
    return false;
  }

  /** Journals and sends an outcome without running the handler. */
  async #settleUnstarted(grant: Grant, outcome: Receipt["outcome"], earlier?: Receipt): Promise<void> {
    const { journal, clock } = this.options;
    const now = clock.now();
    const times = { startedAtUnixMs: earlier?.startedAtUnixMs ?? 0, finishedAtUnixMs: earlier?.finishedAtUnixMs ?? now };
    const receipt = await receiptOf(this.options.sha256, grant, outcome, times);
    journal.note(grantedRecord(grant, now));
    if (await journal.appendUntilWritten({ kind: "finished", receipt, at: now })) this.delivery.send(receipt);
  }

  #cancel(name: GrantName, reason: string, link: SessionLink): void {
    const execution = this.#live.get(name.grantId);
    if (execution !== undefined) return execution.cancel(reason);
    link.send(cancelAnswerFrame(name, "ignored"));
    const receipt = this.options.journal.view.get(name.grantId)?.receipt;
    if (receipt != null) this.delivery.send(receipt);
  }

  /** Neither runs it here, nor is there a receipt of it that could be acknowledged. */
  #hasNoReceipt(grantId: string): boolean {
    return this.options.journal.view.get(grantId)?.receipt === null && !this.#live.has(grantId);
  }

  /** An earlier process of this journal started it, and did not say how it ended. */
  #isUnknown(grantId: string): boolean {
    const entry = this.options.journal.view.get(grantId);
    return entry?.phase === "started" && !entry.startedHere;
  }

  async #revoke(name: GrantName, link: SessionLink): Promise<void> {
    if (!named(name, link) || this.#reconciles.revoke(name.grantId)) return;
    const { journal, clock } = this.options;
    this.#refusing.set(name.callId, Math.max(name.fence, this.#refusing.get(name.callId) ?? -1));
    const affected = [...this.#live.values()].filter(({ grant }) => grant.callId === name.callId && grant.fence <= name.fence);
    for (const execution of affected) {
      if (!execution.drop()) execution.abort("revoked", "the broker took the grant back");
    }
    await Promise.all(affected.map((execution) => execution.startDecided));
    const neverStarted = this.#phaseOf(name) === "not_started";
    // What nobody knows is asked about in every session: its refusal is written once, and it ages all the same.
    const isRefused = this.#isUnknown(name.grantId) && journal.view.get(name.grantId)?.refused === true;
    const written = isRefused || (await journal.appendUntilWritten({ kind: "refused", ...nameOf(name), neverStarted, at: clock.now() }));
    if (!written) return;
    if (this.#refusing.get(name.callId) === name.fence) this.#refusing.delete(name.callId);
    const phase = this.#phaseOf(name);
    link.send(revokeAnswerFrame(name, journal.journalId, phase));
    const receipt = journal.view.get(name.grantId)?.receipt;
    if (phase === "finished" && receipt != null) this.delivery.send(receipt);
    // Asked and answered: not reported again. An answer that is lost is asked for again. What nobody knows stays in the journal, and
    // in every hello, until the broker says that its call is over.
    if (phase === "not_started") journal.note({ kind: "acknowledged", grantId: name.grantId, at: clock.now() });
    else if (phase === "outcome_unknown") this.#toldUnknown.add(name.grantId);
  }

  #phaseOf(name: GrantName): ReportedPhase {
    const live = this.#live.get(name.grantId);
    if (live?.phase === "running" || live?.phase === "finishing") return "running";
    const entry = this.options.journal.view.get(name.grantId);
    if (entry !== undefined) return reportedPhase(entry);
    // G1: what was acknowledged is dropped in time, so that it is not known does not mean that it never began. A broker asks about
    // such a grant only when its ledger went back in time.
    return name.fence > this.options.journal.view.forgottenFence ? "not_started" : "outcome_unknown";
  }

  /** One timer for all leases and deadlines, set to the earliest. */
  #arm(now: Instant, added?: Execution): void {
    let nextMs = Number.POSITIVE_INFINITY;
    for (const execution of added === undefined ? this.#live.values() : [added])
      nextMs = Math.min(nextMs, execution.watchMs(now) ?? nextMs);
    if (nextMs === Number.POSITIVE_INFINITY) return;
    const dueMs = now.monotonicMs + Math.max(0, nextMs);
    if (this.#watch !== null && this.#watch.dueMs <= dueMs) return;
    this.#watch?.cancel();
    this.#setWatch(dueMs, Math.max(0, nextMs));
  }

  #setWatch(dueMs: number, delayMs: number): void {
    const { clock } = this.options;
    const timer = clock.schedule(delayMs, () => {
      this.#watch = null;
      const now = instant(clock);
      if (now.monotonicMs - dueMs > STALL_MS) return this.#setWatch(now.monotonicMs + AFTER_STALL_MS, AFTER_STALL_MS);
      for (const execution of this.#live.values()) execution.checkTime(now);
      this.#arm(now);
    });
    this.#watch = { dueMs, cancel: () => timer.cancel() };
  }

  /** Stops the timer, and gives up the updates that wait. */
  close(): void {
    this.updates.close();
    this.#watch?.cancel();
    this.#watch = null;
  }
}

/** Whether a frame names its grant; the broker is told when it does not. */
function named(name: GrantName, link: SessionLink): boolean {
  if (name.callId !== "" && name.grantId !== "") return true;
  link.send(protocolFaultFrame("frame_invalid", "call_id and grant_id must not be empty", name.callId));
  return false;
}

const nameOf = ({ callId, grantId, fence }: GrantName) => ({ callId, grantId, fence });

function reportedPhase(entry: JournalEntry): ReportedPhase {
  if (entry.phase === "finished") return "finished";
  if (entry.phase === "granted") return "not_started";
  return entry.startedHere ? "running" : "outcome_unknown";
}
