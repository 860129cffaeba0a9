/** For tests: brokers without gateways that share one ledger and one bus in this process, and runners that are scripted. */
import { type BrokerFrame, createMemoryChannelPair, type Grant, Hello, type RunnerFrame, Succeeded } from "@toolrunner/proto";
import { createSystemIds, systemClock } from "../app/system.js";
import { createLocalBusHub, type LocalBusHub } from "../bus/local/local-bus.js";
import type { AgentPrincipal, Authenticator } from "../domain/ports/access.js";
import { SCOPES } from "../domain/ports/access.js";
import type { Bus } from "../domain/ports/bus.js";
import type { CatalogOperations, ToolView } from "../domain/ports/catalog.js";
import type { Ledger } from "../domain/ports/ledger.js";
import type { Log, LogFields } from "../domain/ports/log.js";
import type { Meter } from "../domain/ports/meter.js";
import { createMemoryLedger, createMemoryLedgerStore, type MemoryLedgerStore } from "../ledger/memory/memory-ledger.js";
import type { CallServiceContext } from "./call-service.js";
import { DEFAULT_FIGURES, type Figures } from "./figures.js";
import type { RunnerChannel } from "./operations.js";
import { createWire, type Wire } from "./wire.js";

export const AGENT: AgentPrincipal = { kind: "agent", keyId: "key_agent", application: "default", scopes: new Set(SCOPES) };

const FIGURES: Figures = {
  ...DEFAULT_FIGURES,
  heartbeatMs: 50,
  goneAfterMs: 200,
  pingIntervalMs: 50,
  leaseMs: 400,
  driverAnswerMs: 150,
  offerRepeatMs: 100,
  waitingNoticeMs: 20,
};

export interface Site {
  readonly hub: LocalBusHub;
  readonly store: MemoryLedgerStore;
  readonly log: Log;
}

export function createSite(log: Log): Site {
  return { hub: createLocalBusHub(), store: createMemoryLedgerStore(), log };
}

export interface BrokerParts {
  /** What the broker sees of the ledger and the bus; default: the site's own. */
  readonly ledger?: ((ledger: Ledger) => Ledger) | undefined;
  readonly bus?: ((bus: Bus) => Bus) | undefined;
  readonly catalog?: Partial<CatalogOperations> | undefined;
  readonly meter?: Meter | undefined;
  /** The broker's wall clock; default: the system's. */
  readonly now?: (() => number) | undefined;
  readonly retentionMs?: number | "never" | undefined;
  readonly index?: CallServiceContext["index"] | undefined;
  readonly mayRun?: (() => boolean) | undefined;
  /** Who the credentials of runners stand for; default: each for the same key of any binding. */
  readonly runner?: Authenticator["runner"] | undefined;
}

export interface TestBroker {
  readonly wire: Wire;
  readonly id: string;
  start(): Promise<void>;
  kill(): void;
  stop(): Promise<void>;
}

/** A broker of the site that is already started. */
export async function startBroker(site: Site, figures: Partial<Figures> = {}, parts: BrokerParts = {}): Promise<TestBroker> {
  const broker = createTestBroker(site, figures, parts);
  await broker.start();
  return broker;
}

/** A broker that is not started yet. `kill` makes it silent without telling anybody. */
export function createTestBroker(site: Site, figures: Partial<Figures> = {}, parts: BrokerParts = {}): TestBroker {
  const ids = createSystemIds();
  const id = ids.next("broker");
  const ownBus = site.hub.connect();
  const bus = parts.bus?.(ownBus) ?? ownBus;
  const ownLedger = createMemoryLedger({ store: site.store });
  const ledger = parts.ledger?.(ownLedger) ?? ownLedger;
  let dead = false;
  const clock = {
    ...systemClock,
    now: parts.now ?? systemClock.now,
    schedule: (delayMs: number, task: () => void) =>
      systemClock.schedule(delayMs, () => {
        if (!dead) {
          task();
        }
      }),
  };
  const wire = createWire({
    brokerId: id,
    ledger,
    bus,
    clock,
    ids,
    log: site.log,
    figures: { ...FIGURES, ...figures },
    catalog: { ...oneToolCatalog, ...parts.catalog },
    authenticator: {
      agent: async () => AGENT,
      runner:
        parts.runner ?? (async () => ({ kind: "runner", keyId: "key_runner", application: "default", binding: "*", mayNameSubject: true })),
    },
    development: false,
    index: parts.index,
    retentionMs: parts.retentionMs,
    modelText: (code, message) => `${code}: ${message}`,
    resultFaults: async () => [],
    meter: parts.meter,
    mayRun: parts.mayRun,
  });
  return {
    wire,
    id,
    start: () => wire.start(),
    kill() {
      dead = true;
      void ownBus.close();
      void ownLedger.close();
    },
    stop: () => wire.stop(0),
  };
}

/** A tool of the binding `shop` that is not safe to repeat. */
export const TOOL: ToolView = {
  name: "echo",
  description: "A tool.",
  input_schema: { type: "object" },
  output_schema: null,
  binding: "shop",
  behaviour: "write",
  confirmation: "never",
  result_semantics: "completion",
  max_result_context_bytes: 16_384,
  version: "1",
  timeout_seconds: 30,
  idempotent: false,
  cancellable: true,
  scopes: [],
};

/** Knows the tools `echo` (not safe to repeat), `safe` (idempotent) and `asked` (to be confirmed). */
const oneToolCatalog: CatalogOperations = {
  resolveTool: async (_application, toolset, tool) => ({
    toolset,
    toolsetVersion: 1,
    tool: { ...TOOL, name: tool, idempotent: tool === "safe", confirmation: tool === "asked" ? "always" : "never" },
    bindingKind: "backend",
    checkArguments: () => [],
    checkResult: () => [],
  }),
  getBinding: async (_application, id) => ({ id, name: id, kind: "backend", created_at: "2026-01-01T00:00:00.000Z" }),
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

export interface ScriptedRunner {
  /** Grants in the order in which they came. */
  readonly grants: readonly Grant[];
  /** Kinds of the frames that came. */
  readonly frames: readonly string[];
  /** The frames themselves. */
  readonly received: readonly NonNullable<BrokerFrame["frame"]>[];
  next(): Promise<Grant>;
  send(frame: RunnerFrame["frame"]): void;
  succeed(grant: Grant, resultJson?: string, digest?: string): void;
  /** Lists the grant in no ping answer any more. */
  forget(grant: Grant): void;
  close(): void;
  readonly closed: Promise<{ readonly code: number }>;
}

/** A runner of binding `shop` that does what the test says. It answers pings, unless it is `silent`, with the grants that it was given and did not finish. */
export async function connectRunner(
  wire: Wire,
  options: {
    readonly runnerId?: string;
    readonly journalId?: string;
    readonly slots?: number;
    readonly held?: Hello["held"];
    readonly silent?: boolean;
    readonly subject?: string;
    /** Its handlers reconcile. */
    readonly reconciles?: boolean;
    readonly credential?: string;
    /** Understands requests for a newer credential. */
    readonly renews?: boolean;
    /** The broker's end as the session gets it. */
    readonly wrap?: (channel: RunnerChannel) => RunnerChannel;
  } = {},
): Promise<ScriptedRunner> {
  const pair = createMemoryChannelPair();
  void wire.sessions.serve(options.wrap?.(pair.broker) ?? pair.broker, {
    principal: undefined,
    origin: undefined,
    remoteAddress: "memory",
  });
  const channel = pair.runner;
  const grants: Grant[] = [];
  const frames: string[] = [];
  const received: NonNullable<BrokerFrame["frame"]>[] = [];
  const open = new Map<string, Grant>();
  const waiting: ((grant: Grant) => void)[] = [];
  let taken = 0;
  let welcome: () => void = () => undefined;
  const welcomed = new Promise<void>((resolve) => {
    welcome = resolve;
  });
  channel.send({
    frame: {
      $case: "hello",
      value: Hello.create({
        protocolVersions: [1],
        runnerId: options.runnerId ?? "runner_1",
        binding: "shop",
        subject: options.subject ?? "",
        credential: options.credential ?? "key",
        renewsCredentials: options.renews ?? false,
        journalId: options.journalId ?? "journal_1",
        slots: options.slots ?? 4,
        held: options.held ?? [],
        handlers: ["echo", "safe", "asked"].map((tool) => ({
          tool,
          version: "1",
          idempotent: tool === "safe",
          cancellable: true,
          readOnly: false,
          reconciles: options.reconciles ?? false,
        })),
      }),
    },
  });
  void (async () => {
    for await (const { frame } of channel) {
      frames.push(frame?.$case ?? "unknown");
      if (frame !== undefined) {
        received.push(frame);
      }
      if (frame?.$case === "welcome") {
        welcome();
      }
      if (frame?.$case === "grant") {
        open.set(frame.value.grantId, frame.value);
        grants.push(frame.value);
        waiting.shift()?.(frame.value);
      }
      if (frame?.$case === "ping" && options.silent !== true) {
        const held = [...open.values()].map(({ callId, grantId, fence }) => ({ callId, grantId, fence, phase: 2 }));
        channel.send({ frame: { $case: "pong", value: { number: frame.value.number, held } } });
      }
    }
  })();
  await welcomed;
  return {
    grants,
    frames,
    received,
    next() {
      const grant = grants[taken];
      taken += 1;
      return grant !== undefined ? Promise.resolve(grant) : new Promise((resolve) => waiting.push(resolve));
    },
    send(frame) {
      channel.send({ frame });
    },
    succeed(grant, resultJson = '"done"', digest = "a".repeat(64)) {
      open.delete(grant.grantId);
      channel.send({
        frame: {
          $case: "receipt",
          value: {
            callId: grant.callId,
            grantId: grant.grantId,
            fence: grant.fence,
            attempt: grant.attempt,
            digest,
            startedAtUnixMs: Date.now(),
            finishedAtUnixMs: Date.now(),
            outcome: { $case: "succeeded", value: Succeeded.create({ resultJson }) },
          },
        },
      });
    },
    forget: (grant) => void open.delete(grant.grantId),
    close: () => channel.close(1000),
    closed: channel.closed,
  };
}

/** Looks again and again until something is there; rejects after 5 s. */
export async function until<T>(what: string, look: () => T | undefined | false | Promise<T | undefined | false>): Promise<T> {
  const endsAt = performance.now() + 5_000;
  while (performance.now() < endsAt) {
    const found = await look();
    if (found !== undefined && found !== false) {
      return found;
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`${what} did not come`);
}

/** A log that keeps its lines. */
export function recordedLog(): { readonly log: Log; readonly lines: { readonly event: string; readonly fields: LogFields }[] } {
  const lines: { readonly event: string; readonly fields: LogFields }[] = [];
  const line = (event: string, fields: LogFields = {}): void => void lines.push({ event, fields });
  return { lines, log: { debug: line, info: line, warn: line, error: line } };
}
