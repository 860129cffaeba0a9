/** What the processes of a measurement are asked to do. Each role has a product's and a floor's program. */
import type { LoadRequest, LoadResult } from "../load.js";

/** How the runner is connected to the broker. */
export type RunnerTransport = "websocket" | "grpc";
/** How the agent is connected to the broker. */
export type AgentInterface = "grpc" | "http";
export type LedgerKind = "sqlite" | "jetstream";
/** `product`: what users run. `floor`: the same hops and durable appends, and nothing else. */
export type Side = "product" | "floor";

/** Where a broker keeps its appends. */
export type LedgerPlace = { readonly kind: "sqlite"; readonly dataDir: string } | { readonly kind: "jetstream"; readonly url: string };

export interface BrokerSetup {
  readonly ledger: LedgerPlace;
  /** Whether the product's broker keeps its index of calls, as it does by default. */
  readonly index: boolean;
  /** Default: free ones. */
  readonly ports?: { readonly http: number; readonly grpc: number } | undefined;
}

/** Addresses of a broker: `http://…`, `ws://…`, `grpc://host:port`. */
export interface BrokerPlaces {
  readonly http: string;
  readonly ws: string;
  readonly grpc: string;
}

/** Of the whole process, all its threads, since it started. */
export interface Usage {
  readonly cpuMs: number;
  readonly residentMiB: number;
}

/** Of the whole process, after garbage was collected. */
export interface MemoryUse {
  readonly residentBytes: number;
  /** The heap in use, and what hangs on it outside. */
  readonly heapBytes: number;
}

/** The longest times for which an event loop did not turn. */
export interface Stall {
  readonly wallMs: number;
  /** Of that, at most what the process computed meanwhile: a busy machine stops processes that do nothing, too. */
  readonly busyMs: number;
}

export interface MeasuredRole {
  usage(): Usage;
  /** Begins to sample where the main thread spends its time. */
  profileStart(): Promise<void>;
  /** Ends it and writes a `.cpuprofile` to `file`. */
  profileStop(file: string): Promise<void>;
}

export interface BrokerRole extends MeasuredRole {
  start(setup: BrokerSetup): Promise<BrokerPlaces>;
  memory(): Promise<MemoryUse>;
  /** From now on. */
  watchStalls(): void;
  /** The longest time since {@link watchStalls} for which the event loop did not turn; ends the watch. */
  longestStall(): Stall;
  /** Begins to sample where the main thread spends its time. */
  profileStart(): Promise<void>;
  /** Ends it and writes a `.cpuprofile` to `file`. */
  profileStop(file: string): Promise<void>;
  stop(): Promise<void>;
}

export interface RunnerSetup {
  readonly transport: RunnerTransport;
  readonly places: BrokerPlaces;
}

export interface RunnerRole extends MeasuredRole {
  /** Resolves when the runner can take calls. */
  start(setup: RunnerSetup): Promise<void>;
  stop(): Promise<void>;
}

export interface AgentRole extends MeasuredRole {
  /** Makes ready what has to be there before a runner comes. */
  connect(places: BrokerPlaces): Promise<void>;
  /** Resolves when one call went through over each interface. */
  check(): Promise<void>;
  load(request: LoadRequest & { readonly agent: AgentInterface }): Promise<LoadResult>;
  stop(): Promise<void>;
}
