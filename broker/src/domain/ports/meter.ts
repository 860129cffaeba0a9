/**
 * The meter port: what the wire and the gateways observe, told as it happens, and what is looked up when somebody asks.
 *
 * Invariants of who tells it: an entry is told once, by the broker that stored it, after the ledger acknowledged it: a crash may
 * lose an observation, and two brokers never tell the same one. Nothing told holds a payload. Telling never throws, and costs
 * well under a microsecond: it is on the path of every call.
 */
import type { CallState } from "../call/call-state.js";
import type { PlacedEntry } from "../call/entries.js";
import type { CallEvent } from "../call/transition.js";
import type { OpenStateName } from "../call-view.js";
import type { BindingKind } from "./catalog.js";
import type { Version } from "./ledger.js";

/** What an append came to. `unknown`: the broker ended before it was known. */
export type AppendEnd = "stored" | "conflict" | "unknown";

/** Told by the drivers of calls. Durations are in milliseconds. */
export interface CallMeter {
  /** An append begins; {@link CallMeter.appendEnded} follows. */
  appendBegan(): void;
  /** It ended; over everything that the ledger had to repeat meanwhile. */
  appendEnded(end: AppendEnd, durationMs: number): void;
  /**
   * This broker stored `entry`, which led from `before` to `after`. `events` are the entry's own, `earlier` those that the call had
   * before.
   */
  entryStored(
    before: CallState,
    entry: PlacedEntry,
    after: Exclude<CallState, { readonly kind: "requested" }>,
    events: readonly CallEvent[],
    earlier: readonly CallEvent[],
  ): void;
  /** A call, or what was added to it, was read from the ledger. */
  callRead(what: "call" | "news", durationMs: number): void;
  /** This broker removed a call for good, and values beside the ledger: the call's, or one that nothing named. */
  removed(calls: number, values: number): void;
}

/** Told by the sessions of runners. `transport` and `kind` are names of the code's own, never of a peer's choice. */
export interface SessionMeter {
  sessionOpened(transport: string, bindingKind: BindingKind): void;
  /** `code` is a close code, 1006 when the connection broke without one. It may be of the peer's choice. */
  sessionClosed(transport: string, bindingKind: BindingKind, code: number): void;
  /** A connection or a hello was refused; `code` is one of the error table. */
  sessionRefused(code: string): void;
  frameReceived(transport: string, kind: string): void;
  frameSent(transport: string, kind: string): void;
}

/** Told by the gateways for agents. Durations are in milliseconds, and hold the time that a caller asked to wait. */
export interface RequestMeter {
  /** `route` is a pattern of the router, or `unknown`. */
  httpRequest(method: string, route: string, status: number, durationMs: number): void;
  /** `status` is the name of a gRPC status. */
  grpcRequest(method: string, status: string, durationMs: number): void;
  /** A request was refused; `code` is one of the error table. */
  requestRefused(over: "http" | "grpc", code: string): void;
}

export interface Meter extends CallMeter, SessionMeter, RequestMeter {}

/** An open call that the broker drives. */
export interface OpenCallReading {
  readonly state: OpenStateName;
  readonly application: string;
  readonly toolset: string;
  readonly tool: string;
  /** Unix milliseconds. */
  readonly createdAtMs: number;
}

/** A session that the broker has. */
export interface SessionReading {
  readonly transport: string;
  readonly bindingKind: BindingKind;
  readonly slots: number;
  readonly slotsInUse: number;
}

/** What a broker holds at this moment. */
export interface Readings {
  readonly openCalls: Iterable<OpenCallReading>;
  readonly sessions: Iterable<SessionReading>;
  /** This broker and the others that it sees. */
  readonly liveBrokers: number;
  /** Since the ledger last answered, in milliseconds. */
  readonly ledgerSilentMs: number;
  /** Is the ledger out of reach for so long that agents are told so? */
  readonly ledgerAway: boolean;
  /** Of the newest entry that this broker stored. */
  readonly newestVersion: Version;
}

/** The metrics as they are shown. */
export interface MetricsText {
  readonly contentType: string;
  readonly text: string;
}

/** Made anew each time that somebody asks. */
export interface MetricsSource {
  /** Names of tools of other applications than `application` are not in it. */
  read(application: string): Promise<MetricsText>;
}
