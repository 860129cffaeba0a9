/**
 * The runner: serves tools to a broker until it is stopped.
 *
 * Joins journal, desk, session and supervisor, and owns the state. Invariants:
 * - `start()` opens the journal before it dials; nobody reports from a journal that this process does not hold (G2).
 * - `refused` and `stopped` are final; `closed` resolves once, after handlers had their grace and the journal was given back.
 */

import { Absence } from "./core/absence.js";
import { Adoption } from "./core/adoption.js";
import { pause } from "./core/clock.js";
import type { ProgressUpdate, Settlement } from "./core/context.js";
import { CredentialKeeper, type CredentialUse } from "./core/credential-keeper.js";
import { messageOf, RunnerRefusedError, RunnerStoppedError } from "./core/errors.js";
import { GrantDesk } from "./core/grant-desk.js";
import { createHandlerTable, declarationOf, type HandlerDeclaration } from "./core/handlers.js";
import { randomId } from "./core/ids.js";
import type { JournalOwner, OpenJournal } from "./core/journal.js";
import { createJournalGate, type JournalGate } from "./core/journal-gate.js";
import type { HeldRunnerId } from "./core/place.js";
import { type ResolvedOptions, type RunnerOptions, resolveOptions } from "./core/runner-options.js";
import { createStateHolder, type RunnerState, type StateListener } from "./core/runner-state.js";
import { type Session, startSession } from "./core/session.js";
import { settleSubmission } from "./core/settle.js";
import { type SupervisorEnd, supervise } from "./core/supervisor.js";
import { SDK_VERSION } from "./sdk-version.js";

/** A runner that serves tools. */
export interface Runner {
  /** Opens the journal and connects. Resolves at the first `ready`; rejects when the journal cannot be taken, the broker refuses for good, or `stop` came first. */
  start(): Promise<void>;
  /**
   * Takes nothing new, lets what runs finish, delivers its receipts, then closes. Resolves when that is done. While the broker
   * is away it waits for it: `stop()` cuts it short. `deadlineMs` only tells the broker how long it may take.
   */
  drain(options?: { readonly deadlineMs?: number }): Promise<void>;
  /** Aborts what runs (`draining`), gives it the grace to end and be journaled, closes. Idempotent. */
  stop(): Promise<void>;
  /**
   * Tells agents how far the work of a submitted call is. Resolves when the broker has stored it; it is sent again in later sessions
   * until then, and lost when the process ends before. @throws SubmissionError, RunnerStoppedError
   */
  update(callId: string, update: ProgressUpdate): Promise<void>;
  /** Sends the final outcome of a submitted call. Resolves when it is durable. @throws SubmissionError */
  settle(callId: string, settlement: Settlement): Promise<void>;
  /**
   * Hands a new credential to the broker while the session goes on: `token`, which takes the place of the option, or what the option
   * `token` gives now. The broker asks by itself before one expires that says when; call this before you revoke a key.
   * Resolves with "accepted", or with "next_session" when no session is up or its broker takes none in band: then keep the old
   * one valid until the runner has connected anew. @throws CredentialError when it is refused; the session goes on
   */
  refreshCredential(token?: string): Promise<CredentialUse>;
  readonly state: RunnerState;
  /** Calls the listener with every new state; the answer takes it off. */
  onState(listener: StateListener): () => void;
  /** Resolves with the final state, `refused` or `stopped`, when everything is closed. Never rejects. */
  readonly closed: Promise<RunnerState>;
  /** "" before `start` when it is made from the journal or kept by the tab. */
  readonly runnerId: string;
  readonly handlers: readonly HandlerDeclaration[];
}

/** Checks options and tools, and makes a runner; nothing is opened before `start()`. @throws RunnerConfigError */
export function createRunner(options: RunnerOptions): Runner {
  const resolved = resolveOptions(options);
  return new ServingRunner(resolved, createHandlerTable(options.tools));
}

class ServingRunner implements Runner {
  readonly closed: Promise<RunnerState>;
  readonly handlers: readonly HandlerDeclaration[];
  readonly #state = createStateHolder({ kind: "connecting" });
  readonly #stopping = new AbortController();
  readonly #credentials: CredentialKeeper;
  readonly #settling = new Set<string>();
  #started: Promise<void> | null = null;
  #runnerId: string;
  #heldId: HeldRunnerId | null = null;
  #absence: Absence | null = null;
  #adoption: Adoption | null = null;
  #gate: JournalGate | null = null;
  #desk: GrantDesk | null = null;
  #session: Session | null = null;
  #drainDeadlineMs: number | null = null;
  #leaveWhenIdle = false;
  #graceGiven = false;
  #closedResolve: (state: RunnerState) => void = () => {};

  constructor(
    private readonly options: ResolvedOptions,
    private readonly table: ReturnType<typeof createHandlerTable>,
  ) {
    this.#credentials = new CredentialKeeper({ source: options.credential, clock: options.clock, log: options.log });
    this.handlers = table.all.map(declarationOf);
    this.#runnerId = options.runnerId ?? "";
    this.closed = new Promise((resolve) => {
      this.#closedResolve = resolve;
    });
  }

  get runnerId(): string {
    return this.#heldId?.current ?? this.#runnerId;
  }

  get state(): RunnerState {
    return this.#state.current;
  }

  onState(listener: StateListener): () => void {
    return this.#state.listen(listener);
  }

  start(): Promise<void> {
    this.#started ??= this.#start();
    return this.#started;
  }

  async #start(): Promise<void> {
    const { log, journal, clock, random } = this.options;
    if (this.#stopping.signal.aborted) throw new RunnerStoppedError("the runner was stopped before it was started");
    const { place } = this.options.transport;
    if (this.#runnerId === "") this.#heldId = (await place?.holdRunnerId(this.options.binding)) ?? null;
    let gate: JournalGate;
    try {
      const reopen = () => this.#openJournal();
      gate = createJournalGate(await reopen(), { clock, random, log, onFault: () => this.#reviewFault(), reopen });
    } catch (error) {
      log.error("journal_not_opened", { journal: journal.kind, message: messageOf(error) });
      this.#heldId?.release();
      this.#end({ kind: "stopped" });
      throw error;
    }
    if (this.runnerId === "") this.#runnerId = runnerIdOf(gate.journalId);
    this.#gate = gate;
    this.#desk = new GrantDesk({
      clock,
      log,
      journal: gate,
      handlers: this.table,
      sha256: this.options.sha256,
      authorize: this.options.authorize,
      concurrency: this.options.concurrency,
      random,
      onProgressed: () => this.#reviewIdle(),
      onSubmissionEnded: this.options.onSubmissionEnded,
    });
    const adoption = new Adoption({
      ...this.options,
      handlers: this.table,
      sdkVersion: SDK_VERSION,
      owner: () => this.#owner(),
      credential: () => this.#credentials.current(),
    });
    this.#adoption = adoption;
    const absence = new Absence({
      adoption,
      transport: this.options.transport,
      gate,
      desk: this.#desk,
      log,
      session: () => this.#session,
      sender: () => {
        const credential = this.#credentials.inUse;
        return credential === null ? null : { ...this.#owner(), credential };
      },
    });
    this.#absence = absence;
    const ready = this.#firstReady();
    if (this.#drainDeadlineMs !== null) {
      this.#desk.stopAccepting();
      this.#reviewIdle();
    }
    void this.#serve(gate, this.#desk, absence);
    return ready;
  }

  async #openJournal(): Promise<OpenJournal> {
    const { journal, clock, log } = this.options;
    const opened = await journal.open({ clock, log, owner: this.#owner() });
    this.#sayIfNotDurable(opened);
    return opened;
  }

  #owner(): JournalOwner {
    const { transport, binding, subject } = this.options;
    return { broker: transport.address ?? "", binding, subject, runnerId: this.runnerId };
  }

  #sayIfNotDurable({ weakness }: OpenJournal): void {
    const { log, journal } = this.options;
    if (journal.durable && weakness === undefined) return;
    const lost = "results that are not yet acknowledged are lost when this process ends, and the outcome of what then runs is unknown";
    log.warn("journal_not_durable", {
      journal: weakness === undefined ? journal.kind : "memory",
      message: weakness === undefined ? lost : `${weakness}: ${lost}`,
    });
  }

  /** Settles with the first state that decides about `start()`. */
  #firstReady(): Promise<void> {
    return new Promise((resolve, reject) => {
      const off = this.onState((state) => {
        if (state.kind === "ready") resolve();
        else if (state.kind === "refused")
          reject(new RunnerRefusedError(state.code, `the broker refused this runner (${state.code}): ${state.message}`));
        else if (state.kind === "stopped") reject(new RunnerStoppedError("the runner was stopped before it was ready"));
        else return;
        off();
      });
    });
  }

  async #serve(gate: JournalGate, desk: GrantDesk, absence: Absence): Promise<void> {
    const { transport, clock, random, log } = this.options;
    const end = await supervise({
      transport,
      credential: () => this.#credentials.current(),
      clock,
      random,
      log,
      signal: this.#stopping.signal,
      ready: (signal) => absence.over(signal),
      onWake: (listener) => absence.onWake(listener),
      serve: (channel, given) => {
        this.#leaveWhenIdle = false;
        this.#session = startSession({
          channel,
          clock,
          log,
          desk,
          handlers: this.table,
          hello: {
            sdkVersion: SDK_VERSION,
            runnerId: this.runnerId,
            binding: this.options.binding,
            subject: this.options.subject,
            credential: transport.carriesCredential ? "" : given,
            journalId: gate.journalId,
            instance: this.options.instance,
          },
          credential: given,
          credentials: this.#credentials,
          onWelcome: () => this.#welcomed(),
          onBrokerDrain: () => {
            this.#leaveWhenIdle = true;
            this.#reviewIdle();
          },
        });
        if (this.#stopping.signal.aborted) this.#session.close(1000, "stopped");
        return this.#session.ended.finally(() => {
          this.#session = null;
        });
      },
      onConnecting: () => this.#show({ kind: "connecting" }),
      onRetrying: (reason, nextTryAt) => this.#show({ kind: "retrying", reason, nextTryAt }),
    });
    await this.#finish(end, gate, desk);
  }

  async #finish(end: SupervisorEnd, gate: JournalGate, desk: GrantDesk): Promise<void> {
    if (end.kind === "refused") {
      this.#state.set({ kind: "refused", code: end.code, message: end.message });
    }
    desk.stopAccepting();
    desk.abortAll("lease_lost", "no session follows: nobody renews the lease");
    await this.#grace(desk);
    desk.close();
    this.#absence?.stop();
    await this.#adoption?.stop();
    this.#heldId?.release();
    try {
      await gate.close();
    } catch (error) {
      this.options.log.error("journal_not_closed", { message: messageOf(error) });
    }
    this.#end({ kind: "stopped" });
  }

  /** Gives aborted handlers time to end and be journaled. */
  async #grace(desk: GrantDesk): Promise<void> {
    const { clock, stopGraceMs, log } = this.options;
    if (this.#graceGiven) return;
    this.#graceGiven = true;
    const over = new AbortController();
    await Promise.race([desk.settled(), pause(clock, stopGraceMs, over.signal)]);
    over.abort();
    if (desk.liveCount > 0) log.warn("handlers_abandoned", { count: desk.liveCount });
  }

  #end(state: RunnerState): void {
    this.#state.set(state);
    this.#closedResolve(this.state);
  }

  #welcomed(): void {
    if (this.#drainDeadlineMs !== null) this.#session?.announceDrain("the runner drains", this.#drainDeadlineMs);
    this.#show(this.#readyState());
    this.#adoption?.start();
    this.#reviewIdle();
  }

  #readyState(): RunnerState {
    const fault = this.#gate?.fault ?? null;
    return { kind: "ready", fault: fault === null ? null : { code: "journal_unwritable", message: fault } };
  }

  /** A draining runner stays so, whatever its connection does. */
  #show(state: RunnerState): void {
    this.#state.set(this.#drainDeadlineMs === null ? state : { kind: "draining" });
  }

  #reviewFault(): void {
    this.#session?.claim(this.#desk?.slots ?? 0);
    if (this.state.kind === "ready") this.#show(this.#readyState());
  }

  #reviewIdle(): void {
    if (this.#desk === null || !this.#desk.idle) return;
    if (this.#drainDeadlineMs !== null) this.#close("drained");
    else if (this.#leaveWhenIdle) this.#session?.close(4501, "the broker drains");
  }

  #close(reason: string): void {
    this.#session?.close(1000, reason);
    this.#stopping.abort();
  }

  async drain(options: { readonly deadlineMs?: number } = {}): Promise<void> {
    if (this.#started === null) return this.stop();
    if (this.#drainDeadlineMs === null && this.state.kind !== "refused" && this.state.kind !== "stopped") {
      this.#drainDeadlineMs = Math.min(0xffff_ffff, Math.max(0, Math.round(options.deadlineMs ?? 0) || 0));
      this.#desk?.stopAccepting();
      this.#state.set({ kind: "draining" });
      this.#session?.claim(0);
      this.#session?.announceDrain("the runner drains", this.#drainDeadlineMs);
      this.#reviewIdle();
    }
    await this.closed;
  }

  async stop(): Promise<void> {
    if (this.#started === null) {
      this.#started = Promise.reject(new RunnerStoppedError("the runner was stopped before it was started"));
      this.#started.catch(() => undefined);
      this.#stopping.abort();
      this.#end({ kind: "stopped" });
      return;
    }
    const desk = this.#desk;
    desk?.stopAccepting();
    desk?.abortAll("draining", "the runner is being stopped");
    // Receipts of what ends within the grace still go out on the session that is up.
    if (desk !== null && !this.#stopping.signal.aborted) await this.#grace(desk);
    this.#close("stopped");
    await this.closed;
  }

  async update(callId: string, update: ProgressUpdate): Promise<void> {
    if (this.#desk === null) throw new RunnerStoppedError("the runner has not been started");
    await this.#desk.updates.update(callId, update);
  }

  refreshCredential(token?: string): Promise<CredentialUse> {
    return this.#credentials.refresh(token);
  }

  async settle(callId: string, settlement: Settlement): Promise<void> {
    const { clock, sha256 } = this.options;
    if (this.#gate === null || this.#desk === null)
      throw new RunnerStoppedError("the runner has not been started: its journal is not open");
    await settleSubmission(
      { journal: this.#gate, delivery: this.#desk.delivery, submissions: this.#desk.submissions, clock, sha256, settling: this.#settling },
      callId,
      settlement,
    );
  }
}

/** Made from the journal, which one process holds: a restart supersedes its own old session at once. */
function runnerIdOf(journalId: string): string {
  const made = `runner_${journalId.replace(/^jrn_/, "")}`;
  return /^[a-z][a-z0-9_-]{0,63}$/.test(made) ? made : randomId("runner");
}
