/**
 * The driver of one call: owns its state in memory, appends its entries, holds its timers and answers its commands.
 *
 * Invariants: one append of a call is under way at a time; effects follow their append; a conflict drops the picture
 * of the call and reads it again; a driver that finds another broker's name in the log hands the call over.
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
import { edgeFor } from "../domain/call/edges.js";
import type { CallEntry, PlacedEntry, ReceiptEntryFacts } from "../domain/call/entries.js";
import { decodeEntry, encodeEntry } from "../domain/call/entry-codec.js";
import { type CallEffect, type CallEvent, markFor, replay, transition } from "../domain/call/transition.js";
import type { FaultDetail } from "../domain/fault.js";
import { PROGRESS_EVENTS_PER_ATTEMPT_MAX } from "../domain/limits.js";
import type { Json } from "../domain/ports/catalog.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Ledger, Version } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { DriverCommand, ReceiptDispositionName } from "./commands.js";
import type { Figures } from "./figures.js";
import { LiveNews } from "./live-news.js";
import type { Placement } from "./placement.js";
import type { SessionRef } from "./session.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** What drivers need of the rest of the wire. */
export interface DriverEffects {
  /** Look for a runner, not before the queued state's `notBeforeMs`. */
  offer(driver: CallDriver): void;
  /** Stop looking. */
  withdraw(driver: CallDriver): void;
  sendGrant(driver: CallDriver, grant: Grant, placement: Placement | undefined): void;
  pushCancel(driver: CallDriver, grant: Grant, reason: string): void;
  revoke(driver: CallDriver, grant: Grant, reason: string): void;
  settled(driver: CallDriver): void;
  /** Another broker drives the call now. */
  handedOver(driver: CallDriver): void;
}

export interface DriverContext {
  readonly brokerId: string;
  readonly ledger: Ledger;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly log: Log;
  readonly figures: Figures;
  readonly timers: TimerWheel;
  readonly effects: DriverEffects;
  /** Told of the version of each entry that this broker stored. */
  readonly stored: (version: Version) => void;
  /** Faults of a result against the output schema of the call's pinned tool. */
  readonly resultFaults: (request: CallRequest, json: string) => Promise<readonly FaultDetail[]>;
}

type Known = Exclude<CallState, { readonly kind: "requested" }>;

const CONFLICTS_MAX = 8;

export class CallDriver {
  private current: CallState = { kind: "requested" };
  private readonly history: CallEvent[] = [];
  private readonly news = new LiveNews();
  private readonly listeners = new Set<() => void>();
  private work: Promise<unknown> = Promise.resolve();
  private deadlineTask: TimerTask | undefined;
  private leaseTask: TimerTask | undefined;
  private leaseEndsAt = 0;
  private pendingPlacement: Placement | undefined;
  private over = false;
  /** Resolves to whether this driver holds the call, once its first append, its reading or its adoption is known. */
  created: Promise<boolean> = Promise.resolve(true);
  /** Where the runner that holds the grant is reached now. */
  location: SessionRef | undefined;

  constructor(
    readonly callId: string,
    private readonly context: DriverContext,
  ) {}

  get state(): CallState {
    return this.current;
  }

  /** The state of a call that exists. */
  get known(): Known {
    if (this.current.kind === "requested") {
      throw new Error(`call ${this.callId} has no entry yet`);
    }
    return this.current;
  }

  get events(): readonly CallEvent[] {
    return this.history;
  }

  get drives(): boolean {
    return !this.over && this.current.kind !== "requested" && this.current.record.driver === this.context.brokerId;
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
      const outcome = await this.append(entry);
      if (outcome !== "appended") {
        placement?.release();
      }
      return outcome === "appended";
    });
    return this.created;
  }

  /** Reads the call's log; false: there is no such call. */
  async load(): Promise<boolean> {
    const entries: PlacedEntry[] = [];
    for await (const stored of this.context.ledger.read(this.callId)) {
      entries.push(decodeEntry(stored));
    }
    const { state, events } = replay(entries, (entry, reason) =>
      this.context.log.error("entry_rejected", { call_id: this.callId, entry_id: entry.entryId, version: entry.version, reason }),
    );
    const progress = this.history.filter((event) => event.event === "progress" && !events.some((stored) => stored.seq === event.seq));
    this.history.splice(0, this.history.length, ...[...events, ...progress].sort((a, b) => a.seq - b.seq));
    this.current = state;
    return state.kind !== "requested";
  }

  /** Takes the call over from a broker that is gone, or that this broker was before it lost sight of the call. */
  adopt(): Promise<boolean> {
    this.created = this.exclusive(async () => {
      const from = this.known.record.driver;
      if (isSettledState(this.current)) {
        return false;
      }
      const outcome = await this.append({ kind: "adopted", at: this.context.clock.now(), driver: this.context.brokerId, from });
      if (outcome === "appended") {
        this.context.log.info("call_adopted", { call_id: this.callId, from, state: this.current.kind });
        this.resume();
      }
      return outcome === "appended";
    });
    return this.created;
  }

  /** Starts the timers of a state that was read from the log. */
  private resume(): void {
    if (this.current.kind === "running") {
      this.location = { ...sessionOf(this.current.grant, this.current.record.request) };
      this.renewLease();
    }
    this.armTimers();
  }

  /** Grants the queued call to the runner that `placement` reserved; false: the call does not wait any longer. */
  grant(placement: Placement): Promise<boolean> {
    return this.exclusive(async () => {
      const state = this.current;
      if (state.kind !== "queued" || !this.drives) {
        placement.release();
        return false;
      }
      const exhausted = decideExhausted(state, this.context.clock.now());
      if (exhausted !== undefined) {
        placement.release();
        await this.append(exhausted);
        return false;
      }
      this.pendingPlacement = placement;
      const outcome = await this.append({
        kind: "granted",
        at: this.context.clock.now(),
        driver: this.context.brokerId,
        grant: { attempt: state.record.attempts + 1, holder: placement.holder },
      });
      if (outcome !== "appended") {
        this.pendingPlacement = undefined;
        placement.release();
      }
      return outcome === "appended";
    });
  }

  /** A grant that certainly never reached its runner comes back. */
  returnUnsent(grantId: string): Promise<void> {
    return this.decide((state) =>
      state.kind === "running" && state.grant.grantId === grantId
        ? {
            kind: "returned",
            at: this.context.clock.now(),
            grantId,
            reason: "unsent",
            message: "the runner's session ended before the grant was sent",
            notBeforeMs: null,
          }
        : undefined,
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
        if ((await this.append(decision.entry)) === "appended") {
          return decision.disposition;
        }
      }
      throw this.lost();
    });
  }

  async decline(command: Extract<DriverCommand, { op: "decline" }>): Promise<void> {
    await this.decide((state) =>
      state.kind === "running" && state.grant.grantId === command.grantId
        ? {
            kind: "returned",
            at: this.context.clock.now(),
            grantId: command.grantId,
            reason: command.reason,
            message: command.message,
            notBeforeMs: null,
          }
        : undefined,
    );
  }

  /** The runner says that it holds a grant; true: it counts, and its lease is renewed. */
  async held(command: Extract<DriverCommand, { op: "held" }>): Promise<boolean> {
    const state = this.current;
    if (state.kind !== "running" || state.grant.grantId !== command.grantId) {
      // A finished grant's receipt is on its way, and it is the receipt that is answered. A handler that was skipped runs on.
      return (
        command.phase === "finished" ||
        (state.kind === "submitted" && state.grant.grantId === command.grantId) ||
        (isSettledState(state) && state.settlement.letRun && state.record.newestGrant?.grantId === command.grantId)
      );
    }
    const moved = this.location?.sessionEpoch !== command.session.sessionEpoch;
    this.location = command.session;
    if (command.phase === "not_started") {
      await this.decide((now) =>
        now.kind === "running" && now.grant.grantId === command.grantId
          ? {
              kind: "returned",
              at: this.context.clock.now(),
              grantId: command.grantId,
              reason: "never_started",
              message: "the runner restarted before the handler began",
              notBeforeMs: null,
            }
          : undefined,
      );
      return false;
    }
    if (command.phase === "outcome_unknown") {
      await this.decide((now) =>
        now.kind === "running" && now.grant.grantId === command.grantId
          ? decideLeaseLost(now, "runner_restarted", this.context.clock.now(), this.context.ids.random())
          : undefined,
      );
      return false;
    }
    this.renewLease();
    if (moved && state.cancel !== null && !state.cancel.ignored) {
      // The cancel may have been lost with the session before.
      this.context.effects.pushCancel(this, state.grant, state.cancel.reason);
    }
    return true;
  }

  started(grantId: string, atMs: number): void {
    const state = this.current;
    if (state.kind !== "running" || state.grant.grantId !== grantId || state.record.startedAtMs !== null || this.news.hasStarted(grantId)) {
      return;
    }
    this.tellLive({
      seq: this.news.started(grantId, this.lastSeq(), atMs),
      atMs,
      event: "started",
      data: { attempt: state.grant.attempt },
    });
  }

  /** Bounded: news past the limit of an attempt are dropped, the receipt never is. */
  progress(grantId: string, data: { readonly [key: string]: Json }): void {
    const state = this.current;
    if (
      state.kind !== "running" ||
      state.grant.grantId !== grantId ||
      this.news.progressCount(grantId) >= PROGRESS_EVENTS_PER_ATTEMPT_MAX - 1
    ) {
      return;
    }
    this.tellLive({ seq: this.news.progressed(grantId, this.lastSeq()), atMs: this.context.clock.now(), event: "progress", data });
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
        if (decision.kind === "unchanged" || (await this.append(decision.entry)) === "appended") {
          return { answered: isSettledState(this.known) };
        }
      }
      throw this.lost();
    });
  }

  cancelAnswered(grantId: string, level: "delivered" | "ignored"): Promise<void> {
    return this.decide((state) =>
      state.kind === "running" && state.grant.grantId === grantId && state.cancel !== null
        ? { kind: "cancel_answered", at: this.context.clock.now(), level }
        : undefined,
    );
  }

  /** False: the call does not wait for a confirmation. */
  async confirm(decision: "allow" | "deny", by: string): Promise<boolean> {
    let decided = false;
    await this.decide((state) => {
      if (state.kind !== "awaiting_confirmation") {
        return undefined;
      }
      decided = true;
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
    this.notify();
  }

  /** Ends the driver without touching the call: timers stop, waiting ends. */
  abandon(): void {
    this.over = true;
    this.deadlineTask?.cancel();
    this.leaseTask?.cancel();
    this.context.effects.withdraw(this);
    this.notify();
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
        const entry = this.over ? undefined : decision(this.current);
        if (entry === undefined || (await this.append(entry)) === "appended") {
          return;
        }
      }
      throw this.lost();
    });
  }

  private async append(entry: CallEntry): Promise<"appended" | "conflict"> {
    const before = this.current;
    const edge = edgeFor(before, entry);
    if (edge === undefined) {
      throw new Error(`call ${this.callId}: ${entry.kind} has no edge from ${before.kind}`);
    }
    const live = this.news.unstored();
    const full: CallEntry = live === undefined ? entry : { ...entry, live };
    const entryId = this.context.ids.next("entry");
    const expected = before.kind === "requested" ? 0 : before.record.version;
    const outcome = await this.context.ledger.append(this.callId, expected, { entryId, data: encodeEntry(full), mark: markFor(edge) });
    if (outcome.kind === "conflict") {
      if (before.kind !== "requested") {
        await this.reload();
      }
      return "conflict";
    }
    this.context.stored(outcome.version);
    this.apply({ ...full, entryId, version: outcome.version });
    return "appended";
  }

  private apply(entry: PlacedEntry): void {
    const moved = transition(this.current, entry);
    if (moved.kind === "rejected") {
      throw new Error(`call ${this.callId}: ${moved.reason}`);
    }
    const grantBefore = this.current.kind === "running" ? this.current.grant.grantId : undefined;
    this.current = moved.state;
    this.news.stored(moved.state.record.eventSeq);
    this.history.push(...moved.events.filter((event) => !this.history.some((told) => told.seq === event.seq)));
    if (this.current.kind !== "running" || this.current.grant.grantId !== grantBefore) {
      this.leaseTask?.cancel();
    }
    for (const effect of moved.effects) {
      this.carryOut(effect);
    }
    this.armTimers();
    this.notify();
  }

  private carryOut(effect: CallEffect): void {
    const { effects } = this.context;
    switch (effect.kind) {
      case "offer":
        if (decideExhausted(this.current, this.context.clock.now()) === undefined) {
          effects.offer(this);
        } else {
          this.background(
            "exhausted",
            this.decide((state) => decideExhausted(state, this.context.clock.now())),
          );
        }
        break;
      case "send_grant": {
        const placement = this.pendingPlacement;
        this.pendingPlacement = undefined;
        this.location = placement?.session;
        this.renewLease();
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
    await this.load();
    if (!isSettledState(this.current) && !this.drives) {
      this.abandon();
      this.context.effects.handedOver(this);
      return;
    }
    this.armTimers();
    this.notify();
  }

  private armTimers(): void {
    this.deadlineTask?.cancel();
    const atMs = this.over ? null : dueAt(this.current);
    if (atMs !== null) {
      this.deadlineTask = this.context.timers.after(atMs - this.context.clock.now(), () =>
        this.background(
          "deadline",
          this.decide((state) => decideDeadline(state, this.context.clock.now())),
        ),
      );
    }
  }

  private renewLease(): void {
    this.leaseEndsAt = this.context.clock.monotonic() + this.context.figures.leaseMs;
    this.leaseTask?.cancel();
    this.leaseTask = this.context.timers.after(this.context.figures.leaseMs, () => this.leaseIsUp());
  }

  private leaseIsUp(): void {
    const state = this.current;
    if (state.kind !== "running" || this.over || this.context.clock.monotonic() < this.leaseEndsAt) {
      return;
    }
    const { grantId } = state.grant;
    this.context.log.warn("lease_lost", { call_id: this.callId, grant_id: grantId, attempt: state.grant.attempt });
    this.background(
      "lease",
      this.decide((now) =>
        now.kind === "running" && now.grant.grantId === grantId
          ? decideLeaseLost(now, "lease", this.context.clock.now(), this.context.ids.random())
          : undefined,
      ),
    );
  }

  /** Work that nobody waits for: a failure is logged, and the next timer or command tries again. */
  private background(what: string, job: Promise<unknown>): void {
    job.catch((error: unknown) =>
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

  private lastSeq(): number {
    return this.known.record.eventSeq;
  }

  private tellLive(event: CallEvent): void {
    this.history.push(event);
    this.notify();
  }

  private notify(): void {
    for (const listener of [...this.listeners]) {
      listener();
    }
  }

  private lost(): Error {
    return new Error(`call ${this.callId} changed under ${CONFLICTS_MAX} appends in a row`);
  }
}

function dueAt(state: CallState): number | null {
  switch (state.kind) {
    case "awaiting_confirmation":
    case "submitted":
      return state.expiresAtMs;
    case "queued":
    case "running":
      return state.record.deadlineAtMs;
    default:
      return null;
  }
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
