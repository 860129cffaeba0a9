/** A site in virtual time: brokers on one ledger and one bus, runners, and the history of what happened to them. */
import type { Grant } from "@toolrunner/proto";
import { createLocalBusHub } from "../../bus/local/local-bus.js";
import { BrokerError } from "../../domain/broker-error.js";
import type { AgentPrincipal } from "../../domain/ports/access.js";
import { SCOPES } from "../../domain/ports/access.js";
import type { CatalogOperations, ToolView } from "../../domain/ports/catalog.js";
import type { Log } from "../../domain/ports/log.js";
import { createMemoryLedgerStore } from "../../ledger/memory/memory-ledger.js";
import { DEFAULT_FIGURES, type Figures } from "../figures.js";
import { createWire, type Wire } from "../wire.js";
import { TOOL as ANY_TOOL } from "../wire.test.kit.js";
import { type BusFaults, Cuts, createSimBus } from "./sim-bus.test.kit.js";
import { createSimChannel, type SimChannel } from "./sim-channel.test.kit.js";
import { type SimRunnerOptions, SUBMISSION_TOOL } from "./sim-execution.test.kit.js";
import { createSimLedger, type LedgerFaults, type SimLedger } from "./sim-ledger.test.kit.js";
import { SimRunner } from "./sim-runner.test.kit.js";
import { type Random, SimProcess, simIds, World } from "./world.test.kit.js";

export { DEFAULT_FIGURES, type Figures };

export const SIM_AGENT: AgentPrincipal = { kind: "agent", keyId: "key_agent", application: "default", scopes: new Set(SCOPES) };

/** A tenth of the real ones or so, since schedules are short; each schedule has its own proportions. */
function simFigures(random: Random): Figures {
  return {
    ...DEFAULT_FIGURES,
    pingIntervalMs: 300,
    leaseMs: random.pick([800, 1_200, 2_500]),
    helloMs: 800,
    heartbeatMs: 200,
    goneAfterMs: random.pick([500, 700, 1_500]),
    driverAnswerMs: random.pick([60, 200, 400]),
    offerRepeatMs: 250,
    reservationMs: random.pick([30, 150, 400]),
    waitingNoticeMs: 50,
    confirmationMs: 4_000,
    reconcileMs: random.pick([300, 1_500]),
    reconcileTurnMs: random.pick([0, 200]),
    ledgerAnswerMs: 700,
    settledMemoryMs: 1_000,
  };
}

/** A runner of the site: its process, and what it may still owe. */
export interface SiteRunner {
  readonly options: SimRunnerOptions;
  /** The present one. */
  readonly process: SimProcess;
  /** Set at the end of a schedule: from now on every handler is quick and succeeds. */
  calm: boolean;
  /** Grants that are not over. */
  readonly liveCount: number;
  /** What its journal still reports: receipts that no broker acknowledged, and starts whose end nobody asked about. */
  readonly owed: number;
  start(): void;
  /** The process ends as by `kill -9` and another one starts; without its journal, where that is lost. */
  crash(journal?: "kept" | "lost"): void;
  /** The connection breaks. */
  sever(): void;
}

export interface SimSiteOptions {
  /** Default: the runner of this kit, which keeps the protocol to the letter. */
  readonly runner?: (site: SimSite, options: SimRunnerOptions) => SiteRunner;
  /** Default: about a tenth of the real ones, in proportions that follow from the seed. */
  readonly figures?: Figures;
}

export interface SimTool {
  readonly toolset: "shop" | "tab";
  readonly tool: string;
  readonly idempotent: boolean;
  readonly confirmation: "never" | "always";
  readonly submission?: true;
  /** Its handler has a reconcile handler. */
  readonly reconciles?: true;
}

/** Toolset `shop` runs on a backend, `tab` in a browser and needs a subject. */
export const SIM_TOOLS: readonly SimTool[] = [
  { toolset: "shop", tool: "echo", idempotent: false, confirmation: "never" },
  { toolset: "shop", tool: "safe", idempotent: true, confirmation: "never" },
  { toolset: "shop", tool: "asked", idempotent: false, confirmation: "always" },
  { toolset: "shop", tool: SUBMISSION_TOOL, idempotent: false, confirmation: "never", submission: true },
  { toolset: "shop", tool: "pay", idempotent: false, confirmation: "never", reconciles: true },
  { toolset: "tab", tool: "book", idempotent: false, confirmation: "never", reconciles: true },
  { toolset: "tab", tool: "click", idempotent: false, confirmation: "never" },
  { toolset: "tab", tool: "peek", idempotent: true, confirmation: "never" },
];

export interface SimBroker {
  readonly process: SimProcess;
  readonly id: string;
  readonly wire: Wire;
  readonly ledger: SimLedger;
  /** Set once it has started and until it is stopped or killed. */
  serving: boolean;
  kill(): void;
  /** Stops it as a deploy does; resolves to how long that took. */
  stop(drainMs: number): Promise<number>;
}

/** The beginning of a handler. */
export interface Start {
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
  readonly runnerId: string;
  readonly at: number;
}

export interface Acknowledgement {
  readonly callId: string;
  readonly grantId: string;
  readonly disposition: number;
}

export class SimSite {
  readonly world: World;
  readonly cuts = new Cuts();
  readonly store = createMemoryLedgerStore();
  readonly brokers: SimBroker[] = [];
  readonly runners: SiteRunner[] = [];
  readonly starts: Start[] = [];
  readonly acknowledgements: Acknowledgement[] = [];
  /** How often handlers did what a call is for. */
  private readonly done = new Map<string, number>();
  /** What must not happen, as soon as it happened. */
  readonly failures: string[] = [];
  /** Every line that a broker logged at warn or error, for a failed schedule's report. */
  readonly logged: string[] = [];
  readonly busFaults: BusFaults = { lost: 0, twice: 0, late: 0, lateMs: 0 };
  readonly ledgerFaults: LedgerFaults = { slow: 0, slowMs: 0, lostAcks: 0 };
  readonly figures: Figures;
  /** Tools that were taken out of the catalog. */
  readonly withdrawn = new Set<string>();
  private readonly hub;
  private readonly channels = new Map<SimBroker, Set<SimChannel>>();
  private brokerCount = 0;

  constructor(
    readonly random: Random,
    private readonly options: SimSiteOptions = {},
  ) {
    this.world = new World(random);
    this.figures = options.figures ?? simFigures(random);
    this.hub = createLocalBusHub({ clock: { schedule: (delayMs, task) => this.world.after(delayMs, task) } });
  }

  startBroker(): SimBroker {
    this.brokerCount += 1;
    const process = new SimProcess(this.world, `b${this.brokerCount}`);
    const ids = simIds(process.random);
    const id = ids.next("broker");
    const bus = createSimBus(process, this.hub, this.cuts, this.busFaults);
    const ledger = createSimLedger(process, this.store, this.ledgerFaults);
    const wire = createWire({
      brokerId: id,
      ledger,
      bus,
      clock: process.clock,
      ids,
      log: this.logOf(process.name),
      figures: this.figures,
      catalog: {
        ...simCatalog,
        resolveTool: async (application, toolset, name) => {
          if (this.withdrawn.has(name)) {
            throw new BrokerError("tool_unknown", `toolset ${toolset} has no tool ${name}`);
          }
          return simCatalog.resolveTool(application, toolset, name);
        },
      },
      authenticator: {
        agent: async () => SIM_AGENT,
        runner: async () => ({ kind: "runner", keyId: "key_runner", application: "default", binding: "*", mayNameSubject: true }),
      },
      development: false,
      index: undefined,
      modelText: (code, message) => `${code}: ${message}`,
      resultFaults: async () => [],
    });
    const broker: SimBroker = {
      process,
      id,
      wire,
      ledger,
      serving: false,
      kill: () => {
        broker.serving = false;
        process.kill();
        bus.close().catch(() => undefined);
        for (const channel of this.channels.get(broker) ?? []) {
          channel.sever();
        }
      },
      stop: async (drainMs) => {
        broker.serving = false;
        const startedAt = this.world.now;
        wire.beginDrain();
        await wire.stop(drainMs);
        const tookMs = this.world.now - startedAt;
        broker.kill();
        await ledger.close();
        return tookMs;
      },
    };
    this.brokers.push(broker);
    wire.start().then(
      () => {
        if (!process.dead) {
          broker.serving = true;
        }
      },
      (error: unknown) => {
        this.logged.push(`${this.at()} ${process.name} start failed: ${String(error)}`);
        wire.stop(0).then(
          () => broker.kill(),
          (failure: unknown) => this.failed(`stop after a failed start: ${String(failure)}`),
        );
      },
    );
    return broker;
  }

  addRunner(options: SimRunnerOptions): SiteRunner {
    const runner = this.options.runner?.(this, options) ?? new SimRunner(this, options);
    this.runners.push(runner);
    runner.start();
    return runner;
  }

  /** A broker that takes connections: a stopped one does, too, and says nothing. */
  pickBroker(): SimBroker | undefined {
    const open = this.brokers.filter(({ serving, process }) => serving && !process.dead);
    return open.length === 0 ? undefined : this.random.pick(open);
  }

  connect(runner: SimProcess, broker: SimBroker): SimChannel {
    const channel = createSimChannel(runner, broker.process);
    const open = this.channels.get(broker) ?? new Set();
    this.channels.set(broker, open.add(channel));
    channel.broker.closed.then(() => open.delete(channel)).catch(() => undefined);
    broker.process.arrive(runner.random.between(0.1, 3), () => {
      broker.wire.sessions
        .serve(channel.broker, { principal: undefined, origin: undefined, remoteAddress: "sim" })
        .catch((error: unknown) => this.failed(`serve rejected: ${String(error)}`));
    });
    return channel;
  }

  started(runner: { readonly options: SimRunnerOptions }, grant: Pick<Grant, "callId" | "grantId" | "fence">): void {
    const { callId, grantId, fence } = grant;
    this.starts.push({ callId, grantId, fence, runnerId: runner.options.runnerId, at: this.world.now });
  }

  effect(callId: string): void {
    this.done.set(callId, this.effects(callId) + 1);
  }

  effects(callId: string): number {
    return this.done.get(callId) ?? 0;
  }

  granted(runner: { readonly options: SimRunnerOptions }, grant: Grant): void {
    const { binding, subject } = runner.options;
    if (grant.toolset !== binding || grant.subject !== subject) {
      this.failed(`I8: ${runner.options.runnerId} of ${binding}/${subject} got a call for ${grant.toolset}/${grant.subject}`);
    }
  }

  acknowledged(callId: string, grantId: string, disposition: number): void {
    this.acknowledgements.push({ callId, grantId, disposition });
  }

  failed(what: string): void {
    this.failures.push(`${this.at()} ${what}`);
  }

  at(): string {
    return `${(this.world.now / 1_000).toFixed(3)}s`;
  }

  private logOf(name: string): Log {
    const line = (event: string, fields: object = {}): void => {
      this.logged.push(`${this.at()} ${name} ${event} ${JSON.stringify(fields)}`);
      if (["timer_failed", "session_failed", "entry_rejected", "bus_responder_failed"].includes(event)) {
        this.failed(`${name} ${event} ${JSON.stringify(fields)}`);
      }
    };
    return { debug: () => undefined, info: line, warn: line, error: line };
  }
}

const TOOL: ToolView = { ...ANY_TOOL, timeout_seconds: 12 };

const simCatalog: CatalogOperations = {
  resolveTool: async (_application, toolset, name) => {
    const tool = SIM_TOOLS.find((each) => each.toolset === toolset && each.tool === name);
    if (tool === undefined) {
      throw new Error(`no tool ${toolset}/${name}`);
    }
    const { idempotent, confirmation, submission } = tool;
    return {
      toolset,
      toolsetVersion: 1,
      tool: {
        ...TOOL,
        name,
        binding: toolset,
        idempotent,
        confirmation,
        result_semantics: submission === true ? "submission" : "completion",
      },
      bindingKind: toolset === "tab" ? "browser" : "backend",
      // Of each binding one tool has limits, and one has none.
      limits: idempotent || submission === true ? { binding: null, tool: { concurrency: 2 } } : undefined,
      checkArguments: () => [],
      checkResult: () => [],
    };
  },
  getBinding: async (_application, id) => ({
    id,
    name: id,
    kind: id === "tab" ? "browser" : "backend",
    created_at: "2026-01-01T00:00:00.000Z",
  }),
  putBinding: unused,
  listBindings: unused,
  putToolset: unused,
  getToolset: unused,
  listToolsets: unused,
  listToolsetVersions: unused,
  mergeTools: unused,
};

function unused(): never {
  throw new Error("the wire does not ask for this");
}
