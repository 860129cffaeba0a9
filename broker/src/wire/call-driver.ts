/**
 * The driver of one call: decides by its log what commands and timers lead to, appends it, and carries its effects out.
 *
 * Invariants: one append of a call is under way at a time; effects follow their append; a driver that finds another
 * broker's name in the log hands the call over.
 */
import type { CallRequest, CallState, Grant, StoredText } from "../domain/call/call-state.js";
import { isSettledState } from "../domain/call/call-state.js";
import {
  callError,
  decideCancel,
  decideDeadline,
  decideExhausted,
  decideLeaseLost,
  decideReceipt,
  decideReconcile,
} from "../domain/call/decide.js";
import type { CallEntry, ReceiptEntryFacts } from "../domain/call/entries.js";
import type { CallEffect, CallEvent } from "../domain/call/transition.js";
import type { FaultDetail } from "../domain/fault.js";
import type { Json } from "../domain/ports/catalog.js";
import { CallLog, type KnownState } from "./call-log.js";
import { CallTimers } from "./call-timers.js";
import type { DriverCommand, ReceiptDispositionName } from "./commands.js";
import type { DrivenCall, DriverContext } from "./driver-context.js";
import type { Placement } from "./placement.js";
import type { SessionRef } from "./session.js";

/** Somebody else's entry came first this often in a row: two brokers fight, and the command fails. */
const CONFLICTS_MAX = 8;

export class CallDriver implements DrivenCall {
  private readonly log: CallLog;
  private readonly timers: CallTimers;
  private readonly listeners = new Set<() => void>();
  private work: Promise<unknown> = Promise.resolve();
  private pendingPlacement: Placement | undefined;
  private over = false;
  /** Resolves to whether this driver holds the call, once its first append, its reading or its adoption is known. */
  created: Promise<boolean> = Promise.resolve(true);
  /** Where the runner that holds the grant is reached now. */
  location: SessionRef | undefined;

  constructor(
    readonly callId: string,
    private readonly context: DriverContext,
  ) {
    this.log = new CallLog(callId, context);
    this.timers = new CallTimers(context, { onDeadline: () => this.timeIsUp(), onLease: () => this.leaseIsUp() });
  }

  get known(): KnownState {
    return this.log.known;
  }

  get events(): readonly CallEvent[] {
    return this.log.events;
  }

  get drives(): boolean {
    const { state } = this.log;
    return !this.over && state.kind !== "requested" && state.record.driver === this.context.brokerId;
  }

  /** Called after each change of state and each live event, until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Appends the call's first entry; false: the call exists already and nothing was done. */
  create(entry: Extract<CallEntry, { kind: "accepted" }>, placement: Placement | undefined): Promise<boolean> {
    this.created = this.exclusive(async () => {
      this.pendingPlacement = placement;
      const created = await this.append(entry);
      if (!created) {
        placement?.release();
      }
      return created;
    });
    return this.created;
  }

  /** Reads the call's log; false: there is no such call. */
  load(): Promise<boolean> {
    return this.log.load();
  }

  /** Takes the call over from a broker that is gone, or that this broker was before it lost sight of the call. */
  adopt(): Promise<boolean> {
    this.created = this.exclusive(async () => {
      if (isSettledState(this.known)) {
        return false;
      }
      const from = this.known.record.driver;
      const adopted = await this.append({ kind: "adopted", at: this.context.clock.now(), driver: this.context.brokerId, from });
      if (adopted) {
        this.context.log.info("call_adopted", { call_id: this.callId, from, state: this.known.kind });
        this.resume();
      }
      return adopted;
    });
    return this.created;
  }

  /** Grants the queued call to the runner that `placement` reserved; false: it was not granted to that one. */
  grant(placement: Placement): Promise<boolean> {
    return this.exclusive(async () => {
      const { state } = this.log;
      let granted = false;
      if (state.kind === "queued" && this.drives) {
        this.pendingPlacement = placement;
        granted = await this.append({
          kind: "granted",
          at: this.context.clock.now(),
          driver: this.context.brokerId,
          grant: { attempt: state.record.attempts + 1, holder: placement.holder },
        });
      }
      if (!granted) {
        this.pendingPlacement = undefined;
        placement.release();
      }
      return granted;
    });
  }

  /** The grant came back, and its handler certainly never began. */
  returned(grantId: string, reason: "unavailable" | "forbidden" | "never_started" | "unsent", message: string): Promise<void> {
    return this.decide((state) =>
      holds(state, grantId) ? { kind: "returned", at: this.context.clock.now(), grantId, reason, message, notBeforeMs: null } : undefined,
    );
  }

  /** Says in the log that the call waits, once it does so for more than a moment. */
  noteWaiting(waitingFor: "runner" | "handler" | "capacity"): Promise<void> {
    return this.decide((state) =>
      state.kind === "queued" && state.waitingFor !== waitingFor
        ? { kind: "waiting", at: this.context.clock.now(), waitingFor }
        : undefined,
    );
  }

  receipt(receipt: ReceiptEntryFacts): Promise<ReceiptDispositionName> {
    return this.exclusive(async () => {
      const resultFaults = await this.faultsOf(receipt.outcome === "succeeded" ? receipt.value : null);
      for (let tries = 0; tries < CONFLICTS_MAX; tries += 1) {
        const decision = decideReceipt(this.known, receipt, {
          nowMs: this.context.clock.now(),
          random: this.context.ids.random(),
          resultFaults,
        });
        if (decision.kind !== "append") {
          return decision.kind;
        }
        if (await this.append(decision.entry)) {
          return decision.disposition;
        }
      }
      throw this.lost();
    });
  }

  /** The runner says that it holds a grant; true: it counts, and its lease is renewed. */
  async held(command: Extract<DriverCommand, { op: "held" }>): Promise<boolean> {
    const state = this.known;
    const { grantId, phase } = command;
    if (!holds(state, grantId)) {
      // A finished grant's receipt is on its way, and it is the receipt that is answered. A handler that was skipped runs on.
      const runsOn = state.kind === "submitted" || (isSettledState(state) && state.settlement.letRun);
      return phase === "finished" || (runsOn && state.record.newestGrant?.grantId === grantId);
    }
    if (state.grant.journalId !== command.runner.journalId) {
      // G1: only the journal that took the grant can say what became of it.
      return false;
    }
    const moved = this.location?.sessionEpoch !== command.session.sessionEpoch;
    this.location = command.session;
    if (phase === "not_started") {
      await this.returned(grantId, "never_started", "the handler had not begun when the runner looked");
      return false;
    }
    if (phase === "outcome_unknown") {
      await this.decide((now) =>
        holds(now, grantId) ? decideLeaseLost(now, "runner_restarted", this.context.clock.now(), this.context.ids.random()) : undefined,
      );
      return false;
    }
    this.timers.renewLease();
    if (moved && state.cancel !== null && !state.cancel.ignored) {
      // The cancel may have been lost with the session before.
      this.context.effects.pushCancel(this, state.grant, state.cancel.reason);
    }
    return true;
  }

  started(grantId: string, atMs: number): void {
    if (this.log.started(grantId, atMs)) {
      this.wake();
    }
  }

  progress(grantId: string, data: { readonly [key: string]: Json }): void {
    if (this.log.progress(grantId, this.context.clock.now(), data)) {
      this.wake();
    }
  }

  cancel(
    mode: "kill" | "skip" | "killnowait",
    reason: string | null,
  ): Promise<{ readonly answered: boolean } | { readonly refused: string }> {
    return this.exclusive(async () => {
      for (let tries = 0; tries < CONFLICTS_MAX; tries += 1) {
        const decision = decideCancel(this.known, mode, reason ?? undefined, this.context.clock.now());
        if (decision.kind === "not_cancellable") {
          return { refused: decision.message };
        }
        if (decision.kind === "unchanged" || (await this.append(decision.entry))) {
          return { answered: isSettledState(this.known) };
        }
      }
      throw this.lost();
    });
  }

  cancelAnswered(grantId: string, level: "delivered" | "ignored"): Promise<void> {
    return this.decide((state) =>
      holds(state, grantId) && state.cancel !== null ? { kind: "cancel_answered", at: this.context.clock.now(), level } : undefined,
    );
  }

  /** False: the call does not wait for a confirmation. */
  async confirm(decision: "allow" | "deny", by: string): Promise<boolean> {
    let decided = false;
    await this.decide((state) => {
      decided = state.kind === "awaiting_confirmation";
      if (state.kind !== "awaiting_confirmation") {
        return undefined;
      }
      const at = this.context.clock.now();
      return decision === "allow"
        ? { kind: "confirmed", at, by, deadlineAtMs: at + state.record.request.timeoutMs }
        : { kind: "denied", at, error: callError("confirmation_denied", "a person refused the call") };
    });
    return decided;
  }

  /** False: the call does not wait for reconciliation. */
  async reconcile(input: {
    readonly outcome: "applied" | "not_applied" | "abandon";
    readonly value: StoredText | null;
    readonly by: string;
    readonly note: string | null;
  }): Promise<boolean> {
    const resultFaults = await this.faultsOf(input.value);
    let decided = false;
    await this.decide((state) => {
      const entry = decideReconcile(state, { ...input, resultFaults }, this.context.clock.now());
      decided = entry !== undefined;
      return entry;
    });
    return decided;
  }

  /** Makes who waits for the call look again. */
  wake(): void {
    for (const listener of [...this.listeners]) {
      listener();
    }
  }

  /** Ends the driver without touching the call: timers stop, waiting ends. */
  abandon(): void {
    this.over = true;
    this.timers.stop();
    this.context.effects.withdraw(this);
    this.wake();
  }

  /** Starts the work of a state that was read from the log. */
  private resume(): void {
    const state = this.known;
    if (state.kind === "running") {
      this.location = sessionOf(state.grant, state.record.request);
      this.timers.renewLease();
      // The driver before may have died between storing the grant and sending it.
      this.context.effects.sendGrant(this, state.grant, undefined);
    }
    this.timers.arm(state);
  }

  private exclusive<T>(job: () => Promise<T>): Promise<T> {
    const turn = this.work.then(job);
    this.work = turn.catch(() => undefined);
    return turn;
  }

  /** Appends what `decision` says of the present state, again after each conflict. */
  private decide(decision: (state: CallState) => CallEntry | undefined): Promise<void> {
    return this.exclusive(async () => {
      for (let tries = 0; tries < CONFLICTS_MAX; tries += 1) {
        const entry = this.over ? undefined : decision(this.log.state);
        if (entry === undefined || (await this.append(entry))) {
          return;
        }
      }
      throw this.lost();
    });
  }

  /** False: another entry came first, and the call was read again. */
  private async append(entry: CallEntry): Promise<boolean> {
    const before = this.log.state;
    const moved = await this.log.append(entry);
    if (moved === undefined) {
      if (before.kind !== "requested") {
        await this.reload();
      }
      return false;
    }
    if (before.kind === "running" && !holds(this.log.state, before.grant.grantId)) {
      this.timers.endLease();
    }
    for (const effect of moved.effects) {
      this.carryOut(effect);
    }
    this.timers.arm(this.log.state);
    this.wake();
    return true;
  }

  private carryOut(effect: CallEffect): void {
    const { effects, clock } = this.context;
    switch (effect.kind) {
      case "offer":
        if (decideExhausted(this.log.state, clock.now()) === undefined) {
          effects.offer(this);
        } else {
          this.later("exhausted", (state) => decideExhausted(state, clock.now()));
        }
        break;
      case "send_grant": {
        const placement = this.pendingPlacement;
        this.pendingPlacement = undefined;
        this.location = placement?.session;
        this.timers.renewLease();
        effects.withdraw(this);
        effects.sendGrant(this, effect.grant, placement);
        break;
      }
      case "push_cancel":
        effects.pushCancel(this, effect.grant, effect.reason);
        break;
      case "revoke":
        effects.revoke(this, effect.grant, effect.reason);
        break;
      case "settled":
        effects.withdraw(this);
        effects.settled(this);
        break;
    }
  }

  private async reload(): Promise<void> {
    await this.log.load();
    const settled = isSettledState(this.known);
    if (!settled && !this.drives) {
      this.abandon();
      this.context.effects.handedOver(this);
      return;
    }
    this.timers.stop();
    if (settled) {
      this.context.effects.withdraw(this);
      this.context.effects.settled(this);
    } else {
      this.resume();
    }
    this.wake();
  }

  private timeIsUp(): void {
    this.later("deadline", (state) => decideDeadline(state, this.context.clock.now()));
  }

  private leaseIsUp(): void {
    const { state } = this.log;
    if (state.kind !== "running" || this.over) {
      return;
    }
    const { grantId, attempt } = state.grant;
    this.context.log.warn("lease_lost", { call_id: this.callId, grant_id: grantId, attempt });
    this.later("lease", (now) =>
      holds(now, grantId) ? decideLeaseLost(now, "lease", this.context.clock.now(), this.context.ids.random()) : undefined,
    );
  }

  /** A decision that nobody waits for. A failure is logged: the ledger is closed, or two brokers fight for the call. */
  private later(what: string, decision: (state: CallState) => CallEntry | undefined): void {
    this.decide(decision).catch((error: unknown) =>
      this.context.log.error("driver_failed", {
        call_id: this.callId,
        what,
        error: error instanceof Error ? error.message : String(error),
      }),
    );
  }

  private async faultsOf(value: StoredText | null): Promise<readonly FaultDetail[]> {
    if (value === null) {
      return [];
    }
    const json = value.kind === "inline" ? value.json : await this.context.ledger.blobs.get(value.name);
    return this.context.resultFaults(this.known.record.request, json);
  }

  private lost(): Error {
    return new Error(`call ${this.callId} changed under ${CONFLICTS_MAX} appends in a row`);
  }
}

function holds(state: CallState, grantId: string): state is Extract<CallState, { readonly kind: "running" }> {
  return state.kind === "running" && state.grant.grantId === grantId;
}

function sessionOf(grant: Grant, request: CallRequest): SessionRef {
  return {
    brokerId: grant.brokerId,
    application: request.application,
    binding: request.binding,
    runnerId: grant.runnerId,
    sessionEpoch: grant.sessionEpoch,
  };
}
