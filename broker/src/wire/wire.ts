/** Joins the parts of the wire: sessions of runners, drivers of calls, and what brokers say to each other. */
import { type CallRequest, isSettledState } from "../domain/call/call-state.js";
import type { FaultDetail } from "../domain/fault.js";
import { RESULT_CHUNKED_BYTES_MAX } from "../domain/limits.js";
import type { Authenticator } from "../domain/ports/access.js";
import type { Bus } from "../domain/ports/bus.js";
import type { CatalogOperations } from "../domain/ports/catalog.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Ledger, Version } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { Meter, Readings } from "../domain/ports/meter.js";
import { AwaitedDefinitions } from "./awaited-definitions.js";
import { BrokerPost } from "./broker-post.js";
import { CallAcceptance } from "./call-acceptance.js";
import { CallRouter } from "./call-router.js";
import { CallService, type CallServiceContext } from "./call-service.js";
import { CallWaits } from "./call-waits.js";
import { Dispatcher } from "./dispatcher.js";
import { Drain } from "./drain.js";
import type { DriverContext } from "./driver-context.js";
import { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import { ForgottenCalls } from "./forgotten-calls.js";
import { LaneDesk } from "./lane-desk.js";
import { LedgerWatch } from "./ledger-watch.js";
import { Membership } from "./membership.js";
import { OfferDesk } from "./offer-desk.js";
import type { CallOperations, RunnerFlush, RunnerOperations, SubmissionOperations } from "./operations.js";
import { createPerformer, type PerformerContext, viewNow } from "./perform.js";
import { PermitDesk } from "./permit-desk.js";
import { readingsOf } from "./readings.js";
import { ReceiptAcceptance } from "./receipt-acceptance.js";
import { ReceiptFlush } from "./receipt-flush.js";
import { ReconcileAsks } from "./reconcile-asks.js";
import { Retention } from "./retention.js";
import { RunnerAsks } from "./runner-asks.js";
import { RunnerDirectory } from "./runner-directory.js";
import { LocalSessions } from "./runner-sessions.js";
import { FrameHandlers } from "./session-frames.js";
import { SessionPost } from "./session-post.js";
import { SessionRegistry } from "./session-registry.js";
import { settledWithin } from "./settled-within.js";
import { SubmissionService } from "./submission-service.js";
import { rendezvous, TakeOver } from "./take-over.js";
import { createTimerWheel } from "./timer-wheel.js";

/** How long the end of a broker waits for take-overs that are under way. */
const TAKE_OVER_MS = 300;

export interface WireOptions {
  readonly brokerId: string;
  readonly ledger: Ledger;
  readonly bus: Bus;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly log: Log;
  readonly figures: Figures;
  readonly catalog: CatalogOperations;
  readonly authenticator: Authenticator;
  /** Registers bindings and merges tools that runners bring. */
  readonly development: boolean;
  readonly index: CallServiceContext["index"];
  /** How long settled calls are kept; `never` removes none. Default: undefined, nothing is ever removed. */
  readonly retentionMs?: number | "never" | undefined;
  /** Largest result of a call, in bytes. Default 16 MiB. */
  readonly resultBytesMax?: number | undefined;
  readonly modelText: (code: string, message: string) => string;
  readonly resultFaults: (request: CallRequest, json: string) => Promise<readonly FaultDetail[]>;
  /** May who made a call still have it run? Rejects when that cannot be found out now. Default: yes. */
  readonly mayRun?: ((request: CallRequest) => boolean | Promise<boolean>) | undefined;
  /** Told what happens. Default: nobody. */
  readonly meter?: Meter | undefined;
}

export interface Wire {
  readonly calls: CallOperations;
  readonly submissions: SubmissionOperations;
  readonly runners: RunnerOperations;
  readonly sessions: LocalSessions;
  /** Receipts of pages that close. */
  readonly flush: RunnerFlush;
  /** Resolves when calls of earlier incarnations are driven again. Rejects when it was stopped meanwhile, too. */
  start(): Promise<void>;
  /** What it holds at this moment, by name: for diagnosis. At rest everything but `sessions` and `connections` is 0. */
  inspect(): Readonly<Record<string, number>>;
  /** What it holds at this moment, for metrics. */
  readings(): Readings;
  /** Refuses new calls; waits are answered with what is known. */
  beginDrain(): void;
  /**
   * Lets runners finish for up to `drainMs`, then hands everything to other brokers, or to the next start. Takes at most two
   * seconds longer than that, whatever does not answer. Idempotent; never rejects. Works also on a wire that did not start.
   */
  stop(drainMs: number): Promise<void>;
}

export function createWire(options: WireOptions): Wire {
  const { resultBytesMax = RESULT_CHUNKED_BYTES_MAX, brokerId, ledger, bus, clock, ids, log, figures, catalog } = options;
  const timers = createTimerWheel(clock, (error) =>
    log.error("timer_failed", { error: error instanceof Error ? error.message : String(error) }),
  );
  const registry = new SessionRegistry();
  const table = new DriverTable({ timers, clock, figures });
  const membership = new Membership(brokerId, { bus, clock, log, figures, timers });
  const definitions = options.development ? new AwaitedDefinitions(timers) : undefined;
  const drain = new Drain();
  let stopping: Promise<void> | undefined;
  let newest: Version = 0;

  // The parts know each other: those that are made later are reached through functions.
  const ledgerWatch = new LedgerWatch({ ledger, clock, timers, figures, log });
  const driver = (): DriverContext => driverContext;
  const sessions: LocalSessions = new LocalSessions({
    brokerId,
    bus,
    clock,
    log,
    figures,
    timers,
    registry,
    catalog,
    authenticator: options.authenticator,
    registersBindings: options.development,
    definitions,
    ledgerWatch,
    dispatcher: () => dispatcher,
    desk: () => desk,
    frames: () => frames,
    meter: options.meter,
    resultBytesMax,
  });
  const post = new BrokerPost({ bus, ids, figures, timers, membership });
  const lanes = new LaneDesk({
    lanes: ledger.lanes,
    bus,
    clock,
    ids,
    log,
    figures,
    timers,
    membership,
    lookUp: (callId) => stateInLedger(router, callId),
    ready: (driver) => dispatcher.offer(driver),
  });
  const permits = new PermitDesk({
    brokerId,
    bus,
    post,
    membership,
    figures,
    timers,
    log,
    ready: (call) => dispatcher.offer(call),
  });
  const dispatcher: Dispatcher = new Dispatcher({
    brokerId,
    bus,
    clock,
    ids,
    log,
    figures,
    timers,
    registry,
    table,
    membership,
    lanes,
    permits,
    desk: () => desk,
    post: () => sessionPost,
    reconcileAsks: () => reconcileAsks,
    mayRun: options.mayRun ?? (() => true),
  });
  const desk = new OfferDesk({
    brokerId,
    bus,
    clock,
    ids,
    figures,
    timers,
    registry,
    freed: (session, wasFull) => dispatcher.slotFreed(session, wasFull),
  });
  const sessionPost = new SessionPost({
    brokerId,
    clock,
    log,
    post,
    random: () => ids.random(),
    answerMs: figures.driverAnswerMs,
    onSession: (ref, command) => sessions.onSession(ref, command),
    records: () => sessions.records,
  });
  const driverContext: DriverContext = {
    brokerId,
    ledger,
    clock,
    ids,
    log,
    figures,
    timers,
    effects: dispatcher,
    stored: (version) => {
      newest = Math.max(newest, version);
    },
    resultFaults: options.resultFaults,
    meter: options.meter,
  };
  const reconcileAsks = new ReconcileAsks({ driver, post: () => sessionPost, find: (callId) => table.get(callId) });
  const performing: PerformerContext = {
    driver,
    reconcileAsks,
    modelText: options.modelText,
    solitary: () => membership.solitary,
    whyWaiting: (call) => dispatcher.whyWaiting(call),
  };
  const performer = createPerformer(performing);
  const router = new CallRouter({ driver, table, membership, bus, post, performer, log });
  const asks = new RunnerAsks({ router, log });
  const acceptance = new ReceiptAcceptance({ asks, blobs: ledger.blobs });
  const frames = new FrameHandlers({
    asks,
    acceptance,
    router,
    dispatcher,
    catalog,
    blobs: ledger.blobs,
    clock,
    ids,
    log,
    figures,
    resultBytesMax,
  });
  const takeOver = new TakeOver({ ledger, bus, membership, table, router, post, clock, timers, figures, log });
  const retention = new Retention({
    retentionMs: options.retentionMs ?? "never",
    brokerId,
    ledger,
    bus,
    clock,
    ids,
    timers,
    membership,
    table,
    index: options.index,
    figures,
    log,
    meter: options.meter,
  });
  const forgotten = new ForgottenCalls({ ledger, router, table, membership, ledgerWatch, clock, timers, figures, log });
  const directory = new RunnerDirectory({ bus, membership, registry });
  const calls = new CallService({
    driver,
    acceptance: new CallAcceptance({ driver, catalog, table, dispatcher, permits, definitions }),
    router,
    waits: new CallWaits({ driver, router, table, drain }),
    table,
    index: options.index,
    newest: () => newest,
    viewNow: (call, isSure) => viewNow(performing, call, isSure),
    lanes,
    ledgerWatch,
    drain,
    finishRemoval: (callId) => retention.finish(callId),
  });

  const submissions = new SubmissionService({ driver, router, ledgerWatch });

  membership.onGone((gone) => {
    if (rendezvous(membership.live(), gone) === brokerId) {
      sessions
        .forgetSessionsOf(gone)
        .catch((error: unknown) => log.warn("session_records_not_removed", { other_broker_id: gone, error: String(error) }));
    }
  });

  let giveUpStart: (error: Error) => void = () => undefined;

  async function start(): Promise<void> {
    const parts = [membership, desk, lanes, permits, dispatcher, router, directory, sessions, takeOver, forgotten];
    ledgerWatch.start();
    ledgerWatch.onAway(() => sessions.ledgerAway());
    for (const part of parts) {
      if (stopping !== undefined) {
        return;
      }
      // Stopped by `shutDown`, also when that runs meanwhile.
      await part.start();
    }
    if (options.retentionMs !== undefined && stopping === undefined) {
      retention.start();
    }
  }

  function beginDrain(): void {
    drain.begin();
    for (const call of table) {
      call.wake();
    }
  }

  async function shutDown(drainMs: number): Promise<void> {
    beginDrain();
    await sessions.stop(drainMs);
    await settledWithin(timers, Promise.all([takeOver.stop(), forgotten.stop(), retention.stop()]), TAKE_OVER_MS);
    await membership.stop();
    router.stop();
    directory.stop();
    dispatcher.stop();
    lanes.stop();
    permits.stop();
    desk.stop();
    post.stop();
    await ledgerWatch.stop();
    for (const call of [...table]) {
      call.abandon();
    }
    timers.stop();
  }

  return {
    calls,
    submissions,
    runners: directory,
    sessions,
    flush: new ReceiptFlush({ authenticator: options.authenticator, catalog, acceptance, asks, ledgerWatch }),
    start() {
      return new Promise((resolve, reject) => {
        giveUpStart = reject;
        start().then(resolve, reject);
      });
    },
    inspect() {
      let reserved = 0;
      let grants = 0;
      let work = 0;
      for (const session of registry.all) {
        reserved += session.reserved;
        grants += session.grants.size;
        work += session.work.size;
      }
      const waits = dispatcher.inspect();
      return {
        drivers: table.size,
        sessions: registry.size,
        connections: sessions.size,
        reserved,
        grants,
        work,
        offers: desk.size,
        chunk_bytes: frames.chunkBytes,
        ...waits,
      };
    },
    readings: () => readingsOf({ table, registry, membership, ledgerWatch, newestVersion: newest }),
    beginDrain,
    stop(drainMs) {
      giveUpStart(new Error("the broker was stopped while it started"));
      stopping ??= shutDown(drainMs);
      return stopping;
    },
  };
}

/** What the ledger says of a call, whoever drives it. */
async function stateInLedger(router: CallRouter, callId: string): Promise<"open" | "settled" | "unknown"> {
  const found = await router.find(callId);
  return found === undefined ? "unknown" : isSettledState(found.known) ? "settled" : "open";
}
