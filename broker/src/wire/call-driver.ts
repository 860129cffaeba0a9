/**
 * The driver of one call: stores what is decided about it, carries the effects out, and holds its timers.
 *
 * Invariants: one append of a call is under way at a time; effects follow their append; a driver that finds another
 * broker's name in the log hands the call over and stores nothing more; what a timer decided is tried again until it is
 * stored or pointless, so that no open state is left without a timer.
 */
import {
  type CallRequest,
  type CallState,
  type Grant,
  isRepeatable,
  isSettledState,
  type ReconcileHolder,
} from "../domain/call/call-state.js";
import { decideDeadline, decideExhausted, decideLeaseLost } from "../domain/call/decide.js";
import { decideAskExpired } from "../domain/call/decide-asks.js";
import type { CallEntry } from "../domain/call/entries.js";
import type { CallEffect, Transition } from "../domain/call/transition.js";
import type { Json } from "../domain/ports/catalog.js";
import { CallLog, type KnownState, type ToldEvent } from "./call-log.js";
import { CallTimers } from "./call-timers.js";
import type { NewsOrder } from "./commands.js";
import { type Decision, type DrivenCall, type DriverContext, NotDriver } from "./driver-context.js";
import type { Placement } from "./placement.js";
import type { SessionRef } from "./session.js";

/** Somebody else's entry came first this often in a row: two brokers fight, and the command fails. */
const CONFLICTS_MAX = 8;
/** What a timer decided and what could not be stored is tried again after this time. */
const LATER_AGAIN_MS = 1_000;

export class CallDriver implements DrivenCall {
  private readonly log: CallLog;
  private readonly timers: CallTimers;
  private readonly listeners = new Set<() => void>();
  private working = false;
  /** They begin one by one when what is under way is over. */
  private readonly jobs: (() => void)[] = [];
  private over = false;
  /** The grant whose holder was asked what became of it, since it was last heard of. */
  private asked: string | undefined;
  /** How often the holder of a grant was heard of. */
  private timesHeard = 0;
  /** The tool has no output schema: a result needs no check. False where that is not known. */
  takesAnyResult = false;
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

  get events(): readonly ToldEvent[] {
    return this.log.events;
  }

  get drives(): boolean {
    const { state } = this.log;
    return !this.over && state.kind !== "requested" && state.record.driver === this.context.brokerId;
  }

  /** What it knows of the call counts: it drives it, or the call is settled. */
  get answers(): boolean {
    return this.drives || isSettledState(this.log.state);
  }

  /** Called after each change of state and each live event, until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Appends the call's first entry; false: the call exists already and nothing was done. */
  create(entry: Extract<CallEntry, { kind: "accepted" }>, placement: Placement | undefined): Promise<boolean> {
    this.created = this.exclusive(() => this.append(entry, placement));
    return this.created;
  }

  /** Reads the call's log; false: there is no such call. */
  load(): Promise<boolean> {
    return this.log.load();
  }

  /** Takes the call over from a broker that is gone or does not answer; false: it is settled, or somebody was first. */
  adopt(): Promise<boolean> {
    this.created = this.exclusive(async () => {
      if (this.over || isSettledState(this.known)) {
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

  /** Goes on with a call that names this broker already. */
  takeUp(): void {
    if (this.known.kind === "queued") {
      this.offer();
    }
    this.resume();
  }

  /** Looks whether another broker took the call over unnoticed: this one may have been thought dead. */
  async verify(): Promise<void> {
    if (!(await this.isDoubtful())) {
      return;
    }
    // What seemed to be another's may be an entry of its own that was on its way.
    await this.exclusive(async () => {
      if (await this.isDoubtful()) {
        await this.reload();
      }
    });
  }

  /** Did it begin to store something within the last `withinMs`, and succeed? */
  hasStored(withinMs: number): boolean {
    return this.context.clock.monotonic() - this.log.storedAtMs <= withinMs;
  }

  /** Did it look within the last `withinMs`, and nobody had taken the call over? */
  hasLooked(withinMs: number): boolean {
    return this.context.clock.monotonic() - this.log.wholeAtMs < withinMs;
  }

  /** Grants the queued call to the runner that `placement` reserved; false: it was not granted to that one. */
  grant(placement: Placement): Promise<boolean> {
    return this.exclusive(async () => {
      const { state } = this.log;
      if (state.kind !== "queued" || !this.drives) {
        placement.release();
        return false;
      }
      const grant = { attempt: state.record.attempts + 1, holder: placement.holder };
      return this.append({ kind: "granted", at: this.context.clock.now(), driver: this.context.brokerId, grant }, placement);
    });
  }

  /**
   * Stores what `decision` says of the present state, decided again after each conflict. Rejects with {@link NotDriver} when
   * the call is driven elsewhere, and then nothing was stored. A settled call takes evidence from anybody.
   */
  decide<T>(decision: (state: KnownState) => Decision<T>): Promise<T> {
    return this.exclusive(async () => {
      for (let tries = 0; tries < CONFLICTS_MAX; tries += 1) {
        if (!this.drives && !isSettledState(this.known)) {
          throw new NotDriver(this.callId);
        }
        const { entry, answer } = decision(this.known);
        if (entry === undefined || (await this.append(entry))) {
          return answer;
        }
      }
      throw new Error(`call ${this.callId} changed under ${CONFLICTS_MAX} appends in a row`);
    });
  }

  later(what: string, decision: (state: CallState) => CallEntry | undefined): void {
    this.decide((state) => ({ entry: decision(state), answer: undefined })).catch((error: unknown) => {
      if (this.over || error instanceof NotDriver) {
        return;
      }
      this.context.log.error("driver_failed", {
        call_id: this.callId,
        what,
        error: error instanceof Error ? error.message : String(error),
      });
      this.context.timers.after(LATER_AGAIN_MS * (0.5 + this.context.ids.random()), () => this.later(what, decision));
    });
  }

  /** The runner that holds the grant spoke of it on this session: its lease counts from now. */
  heard(session: SessionRef): void {
    const { state } = this.log;
    const known = this.location;
    const older = known !== undefined && known.runnerId === session.runnerId && known.sessionEpoch > session.sessionEpoch;
    if (state.kind !== "running" || this.over || older) {
      // A report of an older session may come late: it says nothing about now.
      return;
    }
    this.location = session;
    this.asked = undefined;
    this.timesHeard += 1;
    this.timers.renewLease();
    if (known?.sessionEpoch !== session.sessionEpoch && state.cancel !== null && !state.cancel.ignored) {
      // The cancel may have been lost with the session before.
      this.context.effects.pushCancel(this, state.grant, state.cancel.reason);
    }
  }

  started(grantId: string, atMs: number): void {
    if (this.log.started(grantId, atMs)) {
      this.wake();
    }
  }

  progress(grantId: string, order: NewsOrder, data: { readonly [key: string]: Json }): void {
    if (this.log.progress(grantId, order, this.context.clock.now(), data)) {
      this.wake();
    }
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

  private async isDoubtful(): Promise<boolean> {
    return this.drives && !isSettledState(this.known) && (await this.log.isBehind());
  }

  /** Starts the work of a state that was read from the log. */
  private resume(): void {
    const state = this.known;
    if (state.kind === "running") {
      const granted = sessionOf(state.grant, state.record.request);
      if (this.location?.runnerId !== granted.runnerId || this.location.sessionEpoch < granted.sessionEpoch) {
        this.location = granted;
      }
      this.timers.renewLease(this.leaseAfterTakeOver());
      // The driver before may have died between storing what it decided and sending it.
      this.context.effects.sendGrant(this, state.grant, undefined);
      if (state.cancel !== null && !state.cancel.ignored) {
        this.context.effects.pushCancel(this, state.grant, state.cancel.reason);
      }
    }
    if (state.kind === "needs_reconciliation") {
      this.context.effects.reconcileAgain(this);
    }
    this.timers.arm(state);
  }

  /** G3: a take-over restarts a lease at most once for a grant; after that only the runner's own word does. */
  private leaseAfterTakeOver(): number {
    const { leaseMs, pingIntervalMs, driverAnswerMs } = this.context.figures;
    const [first, ...more] = this.log.takeOvers;
    if (first === undefined || more.length === 0) {
      return leaseMs;
    }
    const leftMs = first + leaseMs - this.context.clock.now();
    return Math.min(leaseMs, Math.max(leftMs, pingIntervalMs + driverAnswerMs));
  }

  /** Begins `job` when all earlier ones are over: at once when there is none. */
  private exclusive<T>(job: () => Promise<T>): Promise<T> {
    if (!this.working) {
      return this.begin(job);
    }
    return new Promise((resolve, reject) => this.jobs.push(() => this.begin(job).then(resolve, reject)));
  }

  private begin<T>(job: () => Promise<T>): Promise<T> {
    this.working = true;
    const turn = job();
    const next = (): void => {
      const first = this.jobs.shift();
      if (first === undefined) {
        this.working = false;
      } else {
        first();
      }
    };
    turn.then(next, next);
    return turn;
  }

  /**
   * False: another entry came first, and the call was read again. `placement` is the claim that the entry's grant takes up: it is
   * given back when there is no grant, whatever becomes of the append.
   */
  private async append(entry: CallEntry, placement?: Placement): Promise<boolean> {
    const before = this.log.state;
    let moved: Transition | undefined;
    try {
      moved = await this.log.append(entry);
    } finally {
      if (moved === undefined) {
        placement?.release();
      }
    }
    if (moved === undefined) {
      if (before.kind !== "requested") {
        await this.reload();
      }
      return false;
    }
    if (before.kind === "running" && !holds(this.log.state, before.grant.grantId)) {
      this.timers.endLease();
      this.context.effects.grantEnded(this);
    }
    for (const effect of moved.effects) {
      this.carryOut(effect, placement);
    }
    if (!this.over) {
      this.timers.arm(this.log.state);
    }
    this.wake();
    return true;
  }

  private carryOut(effect: CallEffect, placement: Placement | undefined): void {
    const { effects } = this.context;
    switch (effect.kind) {
      case "offer":
        this.offer();
        break;
      case "send_grant":
        this.location = placement?.session;
        if (!this.over) {
          this.timers.renewLease();
        }
        effects.withdraw(this);
        effects.sendGrant(this, effect.grant, placement);
        break;
      case "push_cancel":
        effects.pushCancel(this, effect.grant, effect.reason);
        break;
      case "revoke":
        effects.revoke(this, effect.grant, effect.reason);
        break;
      case "send_reconcile":
        this.location = sessionOf(effect.asked, this.known.record.request);
        effects.sendReconcile(this, effect.asked);
        break;
      case "reconcile_again":
        effects.reconcileAgain(this);
        break;
      case "settled":
        effects.withdraw(this);
        effects.settled(this);
        break;
    }
  }

  private offer(): void {
    const { effects, clock } = this.context;
    if (this.over) {
      return;
    }
    if (decideExhausted(this.log.state, clock.now()) === undefined) {
      effects.offer(this);
    } else {
      this.later("exhausted", (state) => decideExhausted(state, clock.now()));
    }
  }

  /** Reads the call again, and goes on with it if it is still this broker's. */
  private async reload(): Promise<void> {
    const exists = await this.log.load();
    this.timers.stop();
    if (isSettledState(this.log.state)) {
      this.context.effects.withdraw(this);
      this.context.effects.settled(this);
    } else if (!this.drives) {
      this.over = true;
      this.context.effects.handedOver(this);
    } else {
      this.takeUp();
    }
    this.wake();
    if (!exists) {
      // Retention removed it: there is nothing to do or to answer any more.
      throw new NotDriver(this.callId);
    }
  }

  private timeIsUp(): void {
    const { clock, ids } = this.context;
    this.later("deadline", (state) => decideDeadline(state, clock.now()) ?? decideAskExpired(state, clock.now(), ids.random()));
  }

  private leaseIsUp(): void {
    const { state } = this.log;
    if (state.kind !== "running" || this.over) {
      return;
    }
    const { grant } = state;
    if (this.asked === grant.grantId || isRepeatable(state.record.request, grant)) {
      this.loseLease(grant);
      return;
    }
    // G1: that it never started is worth asking for; silence says nothing.
    this.asked = grant.grantId;
    const { pingIntervalMs, driverAnswerMs } = this.context.figures;
    this.timers.renewLease(pingIntervalMs + driverAnswerMs);
    this.context.effects.askHolder(this, grant).then(
      (isAsked) => {
        if (!isAsked && holds(this.log.state, grant.grantId)) {
          this.loseLease(grant);
        }
      },
      () => undefined,
    );
  }

  private loseLease({ grantId, attempt }: Grant): void {
    this.context.log.warn("lease_lost", { call_id: this.callId, grant_id: grantId, attempt });
    this.timers.endLease();
    const { timesHeard } = this;
    // While the decision waited for its turn the runner may have been heard of.
    this.later("lease", (state) =>
      holds(state, grantId) && this.timesHeard === timesHeard
        ? decideLeaseLost(state, "lease", this.context.clock.now(), this.context.ids.random())
        : undefined,
    );
  }
}

/** Is this grant the one that runs? */
export function holds(state: CallState, grantId: string): state is Extract<CallState, { readonly kind: "running" }> {
  return state.kind === "running" && state.grant.grantId === grantId;
}

function sessionOf(grant: ReconcileHolder, request: CallRequest): SessionRef {
  return {
    brokerId: grant.brokerId,
    application: request.application,
    binding: request.binding,
    runnerId: grant.runnerId,
    sessionEpoch: grant.sessionEpoch,
  };
}
