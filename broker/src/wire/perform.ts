/** Carries one command out on a call's driver. */

import { type Grant, isSettledState } from "../domain/call/call-state.js";
import {
  callError,
  decideCancel,
  decideLeaseLost,
  decideReceipt,
  decideReconcile,
  declinedUntilMs,
  type ReceiptDecision,
} from "../domain/call/decide.js";
import { turnWaitsUntilMs } from "../domain/call/decide-asks.js";
import type { ReceiptEntryFacts } from "../domain/call/entries.js";
import { callView, eventView, storedValueOf } from "../domain/call/view.js";
import type { CallEventView, CallView, EventName, WaitingFor } from "../domain/call-view.js";
import type { FaultDetail } from "../domain/fault.js";
import { type CallDriver, holds } from "./call-driver.js";
import type { KnownState } from "./call-log.js";
import type { DriverAnswer, DriverCommand, ProgressOrder, RunnerRef } from "./commands.js";
import { type Decision, type DriverContext, NotDriver } from "./driver-context.js";
import type { WaitSignal } from "./operations.js";
import { isOfBinding, performFinal, performUpdate } from "./perform-submission.js";
import { isOver, type ReconcileAsks } from "./reconcile-asks.js";
import { faultsOf } from "./result-check.js";

export type Performer = (driver: CallDriver, command: DriverCommand) => Promise<DriverAnswer>;

export interface PerformerContext {
  readonly driver: () => DriverContext;
  readonly reconcileAsks: Pick<ReconcileAsks, "holderIsBack" | "answer">;
  readonly modelText: (code: string, message: string) => string;
  /** Was there never another broker? */
  readonly solitary: () => boolean;
  readonly whyWaiting: (driver: CallDriver) => WaitingFor;
}

const DONE: DriverAnswer = { kind: "done" };
/** Events in one answer, in bytes of their texts: an answer has to fit the bus. */
const EVENTS_BYTES_MAX = 524_288;
/** Of an event without texts of a runner, at most. */
const EVENT_BYTES = 1_024;

/**
 * The call as it is, where that is certain without asking anybody: it settled, or `isSure` (see the command `view`) or nobody
 * else could have changed it, and its value is no blob.
 */
export function viewNow(context: PerformerContext, driver: CallDriver, isSure: boolean): CallView | undefined {
  const isCertain = isSettledState(driver.known) || (driver.drives && (isSure || context.solitary()));
  return isCertain && storedValueOf(driver.known)?.kind !== "blob" ? shown(context, driver, driver.known, undefined) : undefined;
}

/** `blobText`: the state's value, where that is stored as a blob. */
function shown(context: PerformerContext, driver: CallDriver, state: KnownState, blobText: string | undefined): CallView {
  return callView(state, {
    modelText: context.modelText,
    waitingFor: state.kind === "queued" && driver.drives ? context.whyWaiting(driver) : null,
    blobText,
  });
}

export function createPerformer(context: PerformerContext): Performer {
  async function viewOf(driver: CallDriver, answered: boolean): Promise<DriverAnswer> {
    // The call may go on while its blob is read.
    const state = driver.known;
    const value = storedValueOf(state);
    const blobText = value?.kind === "blob" ? await context.driver().ledger.blobs.get(value.name) : undefined;
    return { kind: "view", view: shown(context, driver, state, blobText), answered };
  }

  /**
   * The driver of an open call looks whether it still is that, unless `isSure`; a settled call does not change. So an agent is
   * never shown an older state than before.
   */
  async function sure(driver: CallDriver, isSure: () => boolean): Promise<void> {
    if (!driver.drives || isSettledState(driver.known) || context.solitary() || isSure()) {
      return;
    }
    await driver.verify();
    if (!driver.drives && !isSettledState(driver.known)) {
      throw new NotDriver(driver.callId);
    }
  }

  function receiptDecision(state: KnownState, receipt: ReceiptEntryFacts, resultFaults: readonly FaultDetail[]): ReceiptDecision {
    const { clock, ids } = context.driver();
    const granted = state.record.newestGrant;
    // What a grant was is the log's to say, not the runner's.
    const facts = granted?.grantId === receipt.grantId ? { ...receipt, attempt: granted.attempt, fence: granted.fence } : receipt;
    return decideReceipt(state, facts, { nowMs: clock.now(), random: ids.random(), resultFaults });
  }

  /**
   * A grant that this driver does not know may be one that another driver made after it took the call over. One that it
   * knows and that is over stays over.
   */
  async function knowing(driver: CallDriver, grantId: string): Promise<void> {
    if (!driver.known.record.grantIds.includes(grantId)) {
      await driver.verify();
    }
    if (!driver.answers) {
      throw new NotDriver(driver.callId);
    }
  }

  async function receipt(driver: CallDriver, facts: ReceiptEntryFacts): Promise<DriverAnswer> {
    await knowing(driver, facts.grantId);
    const { outcome, value } = facts;
    const isChecked = outcome === "succeeded" && value !== null && !driver.takesAnyResult;
    const resultFaults = isChecked ? await faultsOf(context.driver(), driver, value) : [];
    return driver.decide((state): Decision<DriverAnswer> => {
      const decision = receiptDecision(state, facts, resultFaults);
      return decision.kind === "append"
        ? { entry: decision.entry, answer: { kind: "disposition", disposition: decision.disposition } }
        : { answer: { kind: "disposition", disposition: decision.kind } };
    });
  }

  /** The grant came back, and its handler certainly never began. */
  function returned(
    driver: CallDriver,
    command: { readonly grantId: string; readonly runner: RunnerRef },
    reason: "unavailable" | "forbidden" | "never_started",
    message: string,
  ): Promise<void> {
    const { clock, ids } = context.driver();
    const pauseOf = (state: KnownState) => (reason === "unavailable" ? declinedUntilMs(state, clock.now(), ids.random()) : null);
    return driver.decide((state) => ({
      // G1: only the journal that took the grant can say so.
      entry:
        holds(state, command.grantId) && state.grant.journalId === command.runner.journalId
          ? { kind: "returned", at: clock.now(), grantId: command.grantId, reason, message, notBeforeMs: pauseOf(state) }
          : undefined,
      answer: undefined,
    }));
  }

  /** The runner says that it holds a grant; true: it counts, and its lease is renewed. */
  async function held(driver: CallDriver, command: Extract<DriverCommand, { op: "held" }>): Promise<boolean> {
    await knowing(driver, command.grantId);
    const state = driver.known;
    const { grantId, phase } = command;
    if (phase === "outcome_unknown" && state.kind === "needs_reconciliation" && isJournalOf(state.grant, command)) {
      await context.reconcileAsks.holderIsBack(driver, command.session);
      return false;
    }
    if (!holds(state, grantId)) {
      // A finished grant's receipt is on its way, and it is the receipt that is answered. A handler that was skipped runs on;
      // what became of one whose process is gone, nobody will tell any more.
      const runsOn = phase === "running" && (state.kind === "submitted" || (isSettledState(state) && state.settlement.letRun));
      return phase === "finished" || (runsOn && state.record.newestGrant?.grantId === grantId);
    }
    if (state.grant.journalId !== command.runner.journalId) {
      return false;
    }
    if (phase === "not_started") {
      await returned(driver, command, "never_started", "the handler had not begun when the runner looked");
      return false;
    }
    if (phase === "outcome_unknown") {
      // One that can find out is asked in the same entry; then the grant is lost already.
      await context.reconcileAsks.holderIsBack(driver, command.session);
      const { clock, ids } = context.driver();
      await driver.decide((now) => ({
        entry: holds(now, grantId) ? decideLeaseLost(now, "runner_restarted", clock.now(), ids.random()) : undefined,
        answer: undefined,
      }));
      return false;
    }
    driver.heard(command.session);
    return true;
  }

  async function cancel(driver: CallDriver, command: Extract<DriverCommand, { op: "cancel" }>): Promise<DriverAnswer> {
    const refused = await driver.decide((state): Decision<string | undefined> => {
      const decision = decideCancel(state, command.mode, command.reason ?? undefined, context.driver().clock.now());
      return decision.kind === "not_cancellable"
        ? { answer: decision.message }
        : { entry: decision.kind === "append" ? decision.entry : undefined, answer: undefined };
    });
    return refused === undefined
      ? viewOf(driver, isSettledState(driver.known))
      : { kind: "refused", code: "not_cancellable", message: refused };
  }

  async function confirm(driver: CallDriver, command: Extract<DriverCommand, { op: "confirm" }>): Promise<DriverAnswer> {
    const at = context.driver().clock.now();
    const waited = await driver.decide((state): Decision<boolean> => {
      if (state.kind !== "awaiting_confirmation") {
        return { answer: false };
      }
      return command.decision === "allow"
        ? { entry: { kind: "confirmed", at, by: command.by, deadlineAtMs: at + state.record.request.timeoutMs }, answer: true }
        : { entry: { kind: "denied", at, error: callError("confirmation_denied", "a person refused the call") }, answer: true };
    });
    return waited
      ? viewOf(driver, true)
      : { kind: "refused", code: "not_awaiting_confirmation", message: `call ${driver.callId} is ${driver.known.kind}` };
  }

  async function reconcile(driver: CallDriver, command: Extract<DriverCommand, { op: "reconcile" }>): Promise<DriverAnswer> {
    const { clock, figures } = context.driver();
    const resultFaults = command.value === null ? [] : await faultsOf(context.driver(), driver, command.value);
    const open = await driver.decide((state): Decision<boolean> => {
      if (state.kind !== "needs_reconciliation" || state.grant.grantId !== command.grantId) {
        return { answer: false };
      }
      const now = clock.now();
      const since = driver.events.findLast(({ event }) => event === "needs_reconciliation")?.atMs ?? now;
      const entry = decideReconcile(state, { ...command, resultFaults }, now);
      // G3: the runner counts its lease until then at the latest, and might begin what was found not to have begun.
      const leaseOverAtMs = since + figures.leaseMs;
      return {
        entry: entry?.kind === "reconciled" && entry.outcome === "not_applied" ? { ...entry, notBeforeMs: leaseOverAtMs } : entry,
        answer: entry !== undefined,
      };
    });
    return open
      ? viewOf(driver, true)
      : { kind: "refused", code: "not_reconcilable", message: `call ${driver.callId} is ${driver.known.kind}` };
  }

  return async (driver, command) => {
    if (("runner" in command && !concerns(driver, command.runner)) || ("key" in command && !isOfBinding(driver, command.key))) {
      return { kind: "not_found" };
    }
    switch (command.op) {
      case "receipt":
        return receipt(driver, command.receipt);
      case "receipt_probe": {
        await knowing(driver, command.receipt.grantId);
        const { kind } = receiptDecision(driver.known, command.receipt, []);
        return kind === "append" ? DONE : { kind: "disposition", disposition: kind };
      }
      case "decline":
        await knowing(driver, command.grantId);
        await returned(driver, command, command.reason, command.message);
        return DONE;
      case "started":
      case "progress":
        tellNews(driver, command);
        return DONE;
      case "cancel_answer": {
        const { level, grantId } = command;
        // A handler that stopped says so by its receipt.
        if (level !== "stopped") {
          await driver.decide((state) => ({
            // Each answer once: a runner that says it again and again fills no ledger.
            entry:
              holds(state, grantId) && state.cancel !== null && !toldSinceCancel(driver, `cancel_${level}`)
                ? { kind: "cancel_answered", at: context.driver().clock.now(), level }
                : undefined,
            answer: undefined,
          }));
        }
        return DONE;
      }
      case "update":
        return performUpdate(driver, command, context.driver());
      case "final_receipt":
        return performFinal(driver, command, context.driver());
      case "held":
        return heldAnswer(driver, command, await held(driver, command));
      case "reconcile_answer":
        return context.reconcileAsks.answer(driver, command);
      case "cancel":
        return cancel(driver, command);
      case "confirm":
        return confirm(driver, command);
      case "reconcile":
        return reconcile(driver, command);
      case "verify":
        await driver.verify();
        return DONE;
      case "view": {
        await sure(driver, () => command.isSure === true);
        return viewOf(driver, true);
      }
      case "events":
        // News may come a little late.
        await sure(driver, () => driver.hasLooked(context.driver().figures.driverAnswerMs / 2));
        return events(driver, command.afterSeq, command.waitMs, context.driver());
    }
  };
}

/** Does the journal speak that took this grant? */
function isJournalOf(grant: Grant, command: Extract<DriverCommand, { op: "held" }>): boolean {
  return grant.grantId === command.grantId && grant.journalId === command.runner.journalId;
}

function heldAnswer(driver: CallDriver, { grantId, phase }: Extract<DriverCommand, { op: "held" }>, keep: boolean): DriverAnswer {
  return { kind: "held", keep, ...(phase === "outcome_unknown" && isOver(driver.known, grantId) ? { over: true } : {}) };
}

/** News of a grant: nothing is stored, and nobody waits for an answer. */
export type NewsCommand = Extract<DriverCommand, { op: "started" | "progress" }>;

/** False: the call is none of the runner's business. */
export function tellNews(driver: CallDriver, command: NewsCommand): boolean {
  if (!concerns(driver, command.runner)) {
    return false;
  }
  if (command.op === "started") {
    driver.started(command.grantId, command.atMs);
  } else {
    driver.progress(command.grantId, command.order, command.data);
  }
  return true;
}

function toldSinceCancel(driver: CallDriver, event: EventName): boolean {
  const asked = driver.events.findLast((each) => each.event === "cancel_requested")?.seq ?? 0;
  return driver.events.some((each) => each.event === event && each.seq > asked);
}

/** I8: is the call one that this runner may know of? */
export function concerns(driver: CallDriver, runner: RunnerRef): boolean {
  const { application, binding, bindingKind, subject } = driver.known.record.request;
  return application === runner.application && binding === runner.binding && (bindingKind === "backend" || subject === runner.subject);
}

async function events(driver: CallDriver, afterSeq: number, waitMs: number, context: DriverContext): Promise<DriverAnswer> {
  const after = () => driver.events.filter((event) => event.seq > afterSeq);
  const isEnded = () => isSettledState(driver.known);
  if (after().length === 0 && !isEnded() && waitMs > 0) {
    const driven = driver.drives;
    await changed(driver, waitMs, context, () => after().length > 0 || isEnded() || (driven && !driver.drives));
  }
  const views: CallEventView[] = [];
  const orders: (ProgressOrder | null)[] = [];
  const all = after();
  let bytes = 0;
  for (const event of all) {
    bytes += event.event === "progress" ? Buffer.byteLength(JSON.stringify(event.data)) : EVENT_BYTES;
    if (views.length > 0 && bytes > EVENTS_BYTES_MAX) {
      break;
    }
    views.push(eventView(driver.callId, event));
    orders.push(event.order ?? null);
  }
  return {
    kind: "events",
    events: views,
    ...(orders.some((order) => order !== null) ? { orders } : {}),
    more: views.length < all.length,
    ...turnWaits(driver, context),
    settled: isSettledState(driver.known),
    state: driver.known.kind,
  };
}

function turnWaits(driver: CallDriver, { clock, figures }: Pick<DriverContext, "clock" | "figures">): { turnWaitsMs?: number } {
  const leftMs = (turnWaitsUntilMs(driver.known, figures.reconcileTurnMs) ?? 0) - clock.now();
  return leftMs > 0 ? { turnWaitsMs: leftMs } : {};
}

/** Resolves when `until` holds after a change of the driver, or after `waitMs`. */
export function changed(
  driver: CallDriver,
  waitMs: number,
  context: Pick<DriverContext, "timers">,
  until: () => boolean,
  signal?: WaitSignal,
): Promise<void> {
  return new Promise((resolve) => {
    const stop = driver.onChange(() => {
      if (until()) {
        done();
      }
    });
    const task = context.timers.after(waitMs, done);
    signal?.addEventListener("abort", done, { once: true });
    function done(): void {
      stop();
      task.cancel();
      signal?.removeEventListener("abort", done);
      resolve();
    }
    if (until() || signal?.aborted === true) {
      done();
    }
  });
}
