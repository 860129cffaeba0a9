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

/** Where an entry lies, without what it says. */
export interface EntryPlace {
  readonly callId: string;
  readonly version: Version;
  /** The version that its writer expected to be the call's last. */
  readonly previous: Version;
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
  /** Where the entries of all calls lie, in version order, from `from` to the end as it was when this was asked, or later. `signal` ends it quietly. */
  places(from: Version, signal: AbortSignal): AsyncIterable<EntryPlace>;
  /**
   * Removes the oldest entries of a settled call for good, one after the other: a crash leaves the later ones. `versions` are those that a read
   * gave, in its order: JetStream finds the last entry of a call no more when that goes before others. What is gone already is passed over, so several brokers may do the same at once. Versions are never used again (L3).
   */
  remove(callId: string, versions: readonly Version[]): Promise<void>;
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
  /**
   * All stored values, and what puts that were cut off left behind, in the order in which they were put, from place `from` on, to the
   * end as it was when this was asked, or later. A name may come more than once, then its highest place counts. `signal` ends it quietly.
   */
  places(from: number, signal: AbortSignal): AsyncIterable<BlobPlace>;
  /** Where the value of this name lies now; undefined: there is none. */
  placeOf(name: string): Promise<number | undefined>;
  /** Removes the value if it is still the one that lay there; one that was put again since stays. False: nothing was removed. */
  remove(blob: BlobPlace): Promise<boolean>;
}

/** A stored value, and when it was put there, as a number that rises with every put, also with one of a value that was there. */
export interface BlobPlace {
  readonly name: string;
  readonly place: number;
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
