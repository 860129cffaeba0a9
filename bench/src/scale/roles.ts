/** What the processes of the measurements at scale are asked to do, besides the roles of all measurements. */
import type { AgentRole, BrokerPlaces, BrokerRole, LedgerPlace } from "../processes/roles.js";

/** `protocol`: a runner's session. `bare`: a WebSocket that says nothing. */
export type Speech = "protocol" | "bare";

export interface FleetSetup {
  /** Address of the runner WebSocket, or of the bare server. */
  readonly url: string;
  readonly speech: Speech;
  /** Connections to open. Runners are numbered from `from` on. */
  readonly runners: number;
  readonly from?: number | undefined;
  /** That are being opened at a time; default: all. */
  readonly atOnce?: number | undefined;
  /** Tools that each runner has a handler for. */
  readonly tools: readonly string[];
  readonly slots: number;
  /** What becomes of a grant: it runs for ever, or is answered as soon as `allow` lets it. */
  readonly grants: "hold" | "answer";
}

export interface FleetStatus {
  /** Connections that are welcome now. */
  readonly welcome: number;
  /** Connections that ended, since the start. */
  readonly lost: number;
  /** Grants that came, since the start. */
  readonly grantsTaken: number;
  readonly grantsAnswered: number;
  /** How connections ended or were refused, with how often: a close code, or an error's. */
  readonly endings: Readonly<Record<string, number>>;
}

/** Many light runners in one process. They dial again by the SDK's rule. */
export interface FleetRole {
  /** Resolves, in milliseconds, when all are welcome. May be asked again for more. */
  connect(setup: FleetSetup): Promise<number>;
  /** Resolves when `runners` are welcome and so many grants are held and answered. */
  reached(goal: {
    readonly welcome?: number;
    readonly lost?: number;
    readonly held?: number;
    readonly answered?: number;
    readonly withinMs: number;
  }): Promise<void>;
  /** So many more grants are answered, the oldest first. */
  allow(grants: number): void;
  status(): FleetStatus;
  stop(): void;
}

/** A `ws` server without a broker: the floor of what a connection costs. */
export type BareServerRole = Pick<BrokerRole, "usage" | "memory" | "watchStalls" | "longestStall"> & {
  /** Resolves with its address. Each connection is pinged at its own time. */
  start(setup: { readonly pingIntervalMs: number }): Promise<string>;
  stop(): void;
};

export interface FillRole extends Pick<AgentRole, "stop"> {
  /** Makes the tools that fleets serve. */
  connect(places: BrokerPlaces): Promise<void>;
  /** Starts so many calls of a fleet's tool and resolves when they are stored. */
  fill(load: { readonly tool: string; readonly calls: number; readonly inFlight: number }): Promise<void>;
  /** Resolves, in milliseconds, when listings show what was called last. */
  indexed(): Promise<number>;
}

/** Puts settled calls into a ledger that no broker has open. */
export interface LedgerFillRole {
  /** Resolves with the time it took, in milliseconds. */
  copy(job: { readonly place: LedgerPlace; readonly calls: number }): Promise<number>;
}
