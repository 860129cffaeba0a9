/** Joins the parts of the wire: sessions of runners, drivers of calls, and what brokers say to each other. */
import type { CallRequest } from "../domain/call/call-state.js";
import type { FaultDetail } from "../domain/fault.js";
import type { Authenticator } from "../domain/ports/access.js";
import type { Bus } from "../domain/ports/bus.js";
import type { CatalogOperations } from "../domain/ports/catalog.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Ledger, Version } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import { AwaitedDefinitions } from "./awaited-definitions.js";
import { CallRouter } from "./call-router.js";
import { CallService, type CallServiceContext } from "./call-service.js";
import { Dispatcher } from "./dispatcher.js";
import type { DriverContext } from "./driver-context.js";
import { DriverTable } from "./driver-table.js";
import type { Figures } from "./figures.js";
import { LedgerWatch } from "./ledger-watch.js";
import { Membership } from "./membership.js";
import type { CallOperations, RunnerOperations } from "./operations.js";
import { createPerformer } from "./perform.js";
import { RunnerDirectory } from "./runner-directory.js";
import { LocalSessions } from "./runner-sessions.js";
import { FrameHandlers } from "./session-frames.js";
import { SessionRegistry } from "./session-registry.js";
import { TakeOver } from "./take-over.js";
import { createTimerWheel } from "./timer-wheel.js";

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
  readonly modelText: (code: string, message: string) => string;
  readonly resultFaults: (request: CallRequest, json: string) => Promise<readonly FaultDetail[]>;
}

export interface Wire {
  readonly calls: CallOperations;
  readonly runners: RunnerOperations;
  readonly sessions: LocalSessions;
  /** Resolves when calls of earlier incarnations are driven again. */
  start(): Promise<void>;
  /** Refuses new calls; waits are answered with what is known. */
  beginDrain(): void;
  /** Lets runners finish for up to `drainMs`, then hands everything to other brokers, or to the next start. */
  stop(drainMs: number): Promise<void>;
}

export function createWire(options: WireOptions): Wire {
  const { brokerId, ledger, bus, clock, ids, log, figures, catalog } = options;
  const timers = createTimerWheel(clock, (error) =>
    log.error("timer_failed", { error: error instanceof Error ? error.message : String(error) }),
  );
  const registry = new SessionRegistry();
  const table = new DriverTable(timers, figures);
  const membership = new Membership(brokerId, { bus, clock, log, figures, timers });
  const definitions = options.development ? new AwaitedDefinitions(timers) : undefined;
  let draining = false;
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
    frames: () => frames,
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
    onSession: (ref, command) => sessions.onSession(ref, command),
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
  };
  const performer = createPerformer({ driver, modelText: options.modelText, whyWaiting: (call) => dispatcher.whyWaiting(call) });
  const router = new CallRouter({ driver, table, membership, bus, performer, log });
  const frames = new FrameHandlers({ router, dispatcher, catalog, blobs: ledger.blobs, clock, ids, log, timers });
  const takeOver = new TakeOver({ ledger, membership, table, router, timers, log });
  const directory = new RunnerDirectory({ bus, membership, registry });
  const calls = new CallService({
    driver,
    catalog,
    router,
    table,
    dispatcher,
    definitions,
    index: options.index,
    newest: () => newest,
    ledgerWatch,
    draining: () => draining,
  });

  return {
    calls,
    runners: directory,
    sessions,
    async start() {
      ledgerWatch.start();
      ledgerWatch.onAway(() => sessions.closeAll(4503, "the broker cannot reach its ledger"));
      await membership.start();
      dispatcher.start();
      router.start();
      directory.start();
      await sessions.start();
      await takeOver.start();
    },
    beginDrain() {
      draining = true;
      for (const call of table) {
        call.wake();
      }
    },
    async stop(drainMs) {
      draining = true;
      await sessions.stop(drainMs);
      await takeOver.stop();
      await membership.stop();
      router.stop();
      directory.stop();
      dispatcher.stop();
      for (const call of [...table]) {
        call.abandon();
      }
      ledgerWatch.stop();
      timers.stop();
    },
  };
}
