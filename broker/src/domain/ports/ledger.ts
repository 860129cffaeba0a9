/**
 * The ledger port: an append-only log of entries per call, with compare-and-append.
 *
 * It is the truth about calls. Rules L1 to L8 of `docs/correctness.md` bind every implementation;
 * `describeLedger` in `ledger/testing` is the suite that each one passes unchanged.
 */
import type { LaneStore } from "./lanes.js";

/** Ledger-wide, strictly rising, never reused. 0 stands for "no entry yet". */
export type Version = number;

/**
 * What an entry does to the index of open calls: the first entry of a call `opens` it,
 * the entry that settles it `settles` it, all others leave it as it is.
 */
export type IndexMark = "opens" | "settles" | "none";

export interface NewEntry {
  /** Random for each append and kept for its repeats; at most 64 characters of `[A-Za-z0-9_-]`. */
  readonly entryId: string;
  /** The encoded entry. Opaque to the ledger. At most {@link ENTRY_BYTES_MAX} bytes of UTF-8. */
  readonly data: string;
  readonly mark: IndexMark;
  /** A line of its writer's that a tail gives back without the data; at most {@link NOTE_UNITS_MAX} long. Default: none. */
  readonly note?: string | undefined;
}

export interface StoredEntry {
  readonly callId: string;
  readonly version: Version;
  /** The version that its writer expected to be the call's last. */
  readonly previous: Version;
  readonly entryId: string;
  readonly data: string;
}

/** An entry as a tail gives it: with its note, or with its data where it has none. Both may be there. */
export interface TailedEntry {
  readonly callId: string;
  readonly version: Version;
  /** The version that its writer expected to be the call's last. */
  readonly previous: Version;
  readonly entryId: string;
  readonly note: string | undefined;
  /** Undefined only where there is a note. */
  readonly data: string | undefined;
}

export type AppendOutcome =
  | { readonly kind: "appended"; readonly version: Version }
  /** This very entry (same id) is stored already. */
  | { readonly kind: "duplicate"; readonly version: Version }
  /** Another entry holds the place; `current` is the call's last version. Nothing was stored. */
  | { readonly kind: "conflict"; readonly current: Version };

export interface OpenCall {
  readonly callId: string;
}

export interface LedgerDescription {
  readonly kind: "memory" | "sqlite" | "jetstream";
  /** One sentence for the start-up line: what an acknowledged entry survives. */
  readonly durability: string;
}

/** Largest encoded entry: a 1 MiB NATS message less 16 KiB for subject and headers. */
export const ENTRY_BYTES_MAX = 1_048_576 - 16_384;

/** Longest note, in UTF-16 code units: it travels in a header, which shares 16 KiB with the subject. */
export const NOTE_UNITS_MAX = 2_048;

/** Values above this are stored as blobs beside the entries. */
export const INLINE_VALUE_BYTES_MAX = 262_144;

export interface Ledger {
  readonly description: LedgerDescription;
  /**
   * Stores `entry` when the call's last version is `expected`. Durable when it resolves.
   * An unknown outcome (time-out, fail-over) is repeated inside until it is known, so the promise may
   * stay pending for as long as the ledger is away: callers bound their own wait and keep listening.
   * Rejects with {@link LedgerError} only: `closed`, `entry_too_large`.
   */
  append(callId: string, expected: Version, entry: NewEntry): Promise<AppendOutcome>;
  /** The call's entries in order, from the first whose version is at least `from` (default: all). Skips and reports forks. */
  read(callId: string, from?: Version): AsyncIterable<StoredEntry>;
  /**
   * Entries of all calls in version order, from version `from` on, then new ones as they come, until `signal` aborts (then it ends quietly).
   * Those of other brokers may come seconds late, unless somebody asks for `latest`.
   */
  tail(from: Version, signal: AbortSignal): AsyncIterable<TailedEntry>;
  /**
   * The newest version, as known now by whoever decides it: no entry that was acknowledged before has a higher one, whichever broker wrote it.
   * Tails bring the entries up to there without delay. Stays pending while the ledger is away.
   */
  latest(): Promise<Version>;
  /** Calls that are not settled: may name a settled one, never misses an open one. */
  openCalls(): AsyncIterable<OpenCall>;
  /** Resolves when the ledger answered just now; rejects with `unreachable` otherwise. */
  check(): Promise<void>;
  /** All calls of this broker incarnation have been taken over: its index records may go. */
  retire(incarnation: string): Promise<void>;
  readonly blobs: BlobStore;
  readonly lanes: LaneStore;
  close(): Promise<void>;
}

/** Large values, written before the entry that names them. */
export interface BlobStore {
  /** Stores `text` under `name` (`callId/entryId`); durable and digest-checked when it resolves. Same name, same text: no-op. */
  put(name: string, text: string): Promise<void>;
  /** Rejects with `blob_missing` or `blob_corrupt`. */
  get(name: string): Promise<string>;
}

export type LedgerErrorCode =
  | "closed"
  | "entry_too_large"
  | "unreachable"
  | "blob_missing"
  | "blob_corrupt"
  | "in_use"
  | "unsupported_server"
  | "misconfigured";

export class LedgerError extends Error {
  override readonly name = "LedgerError";
  constructor(
    readonly code: LedgerErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
