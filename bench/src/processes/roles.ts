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

export interface BrokerRole {
  start(setup: BrokerSetup): Promise<BrokerPlaces>;
  usage(): Usage;
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

export interface RunnerRole {
  /** Resolves when the runner can take calls. */
  start(setup: RunnerSetup): Promise<void>;
  stop(): Promise<void>;
}

export interface AgentRole {
  /** Makes ready what has to be there before a runner comes. */
  connect(places: BrokerPlaces): Promise<void>;
  /** Resolves when one call went through over each interface. */
  check(): Promise<void>;
  load(request: LoadRequest & { readonly agent: AgentInterface }): Promise<LoadResult>;
  stop(): Promise<void>;
}
