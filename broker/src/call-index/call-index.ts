/**
 * The read model for listing calls: a local SQLite file that follows the ledger's tail. It is off the calls' path, holds no
 * truth, and is dropped and built anew whenever it does not fit: broken, of another format, or made from another ledger.
 *
 * Invariants:
 * - What is listed is the picture of one ledger version, never half of an entry's work.
 * - Whatever fails while following (ledger away, disk full, file damaged), the index goes on from what is written.
 * - Following never keeps the event loop for longer than one batch.
 */

import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import type { CallFilter } from "../domain/call-view.js";
import type { Page, PageRequest } from "../domain/ports/catalog.js";
import { type Ledger, LedgerError, type TailedEntry, type Version } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import { type CallRows, FILTER_COLUMNS, type LedgerPlace, NO_PLACE, type RowChange } from "./call-rows.js";
import { CallTracker, type SkipReason, type Tracked } from "./call-tracker.js";
import { type FileLife, isBroken, openCallRows, remakeCallRows } from "./index-file.js";
import { away, filterValues, limitOf } from "./listing.js";
import { decodePageToken, encodePageToken, listingFingerprint } from "./page-token.js";

/** Entries that are written in one transaction, at most. */
const BATCH_ENTRIES_MAX = 512;
/** How long an entry waits for others to be written with it; a listing does not wait for that. */
const WRITE_DELAY_MS = 250;
const CALLS_IN_MEMORY_MAX = 20_000;
const CATCH_UP_WAIT_MS = 1_000;
const RESUME_BASE_MS = 100;
const RESUME_MAX_MS = 5_000;
/** A ledger that hangs does not hold up the stop for longer. */
const STOP_WAIT_MS = 1_000;
/** Rows that one listing with several filters looks at: some 20 ms. The next page goes on from there. */
const LOOK_AT_MAX = 10_000;

export interface CallIndexOptions {
  readonly ledger: Pick<Ledger, "tail" | "read" | "latest">;
  /** The index file, made when it is not there, or `:memory:`. One process at a time. */
  readonly file: string;
  /** Default `kept`. */
  readonly life?: FileLife | undefined;
  readonly log: Log;
  /** How long a listing waits for a version or for the index to be ready, in ms. Default 1,000. */
  readonly catchUpWaitMs?: number;
  /** Calls kept in memory, those that moved last. Others are looked up when they move. Default 20,000. */
  readonly callsInMemoryMax?: number;
  /** Jitter of the pause before a failed tail is begun again, in [0, 1). Default `Math.random`. */
  readonly random?: () => number;
}

/** One listed call. */
export interface CallSummary {
  readonly callId: string;
  /** The version of its acceptance. */
  readonly opened: Version;
}

export interface CallIndex {
  /** Opens the file and begins to follow the ledger; does not wait for it. Rejects with `CallIndexError`. */
  start(): Promise<void>;
  /**
   * A page of the application's calls, the last accepted first. A page with a `next_page` may hold fewer calls than `limit`, or none, where
   * several filters together match rarely. It waits, within `catchUpWaitMs`, until all that is stored
   * now, and the ledger up to `atLeast`, is in the index, then answers with what there is. Rejects with `BrokerError` `page_invalid`, `body_invalid` (limit)
   * or `index_away` (not running, or the ledger is away since the start).
   */
  list(
    application: string,
    filter: CallFilter,
    page: PageRequest,
    options?: { readonly atLeast?: Version | undefined },
  ): Promise<Page<CallSummary>>;
  /** Retention removed these calls: their rows go with the next write. Rows of other calls, also of new ones with the same id, stay. */
  dropped(calls: readonly CallSummary[]): void;
  /** Is the ledger up to `version` in the index? */
  caughtUp(version: Version): boolean;
  /** The ledger up to here is read; 0 before the first entry. */
  readVersion(): Version;
  /** Writes what was read and closes the file. Idempotent; a stopped index cannot be started again. */
  stop(): Promise<void>;
}

/** An index that is not started yet. */
export function createCallIndex(options: CallIndexOptions): CallIndex {
  return new FollowingCallIndex(options);
}

class FollowingCallIndex implements CallIndex {
  readonly #options: CallIndexOptions;
  readonly #log: Log;
  readonly #stopping = new AbortController();
  readonly #tracker: CallTracker;
  #rows: CallRows | undefined;
  /** The ledger was recognised as the one that the rows were made from. */
  #recognised = false;
  /** What is read, and what of it is written. */
  #read: LedgerPlace = NO_PLACE;
  #written: Version = 0;
  readonly #pending = new Map<string, RowChange>();
  #pendingEntries = 0;
  #writeTimer: NodeJS.Timeout | undefined;
  readonly #skipped = new Map<SkipReason, { count: number; callId: string; version: Version; message: string }>();
  /** Ends the present tail, so that it is begun again from what is written. */
  #tailing = new AbortController();
  #failure: unknown;
  #following: Promise<void> | undefined;
  readonly #waiters = new Set<() => void>();

  constructor(options: CallIndexOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#tracker = new CallTracker({
      ledger: options.ledger,
      openRow: (callId) => this.#rows?.openRow(callId),
      callsMax: options.callsInMemoryMax ?? CALLS_IN_MEMORY_MAX,
    });
  }

  async start(): Promise<void> {
    if (this.#stopping.signal.aborted) {
      throw new Error("the call index was stopped: make a new one");
    }
    if (this.#following !== undefined) {
      return;
    }
    this.#openFile();
    this.#following = this.#follow();
  }

  async list(
    application: string,
    filter: CallFilter,
    page: PageRequest,
    options: { readonly atLeast?: Version | undefined } = {},
  ): Promise<Page<CallSummary>> {
    const limit = limitOf(page);
    const values = filterValues(filter);
    const fingerprint = listingFingerprint(
      application,
      FILTER_COLUMNS.map((column) => values[column]),
    );
    const before = page.page === undefined ? null : decodePageToken(page.page, fingerprint);
    await this.#reach(options.atLeast ?? 0);
    if (this.#rows === undefined || !this.#recognised) {
      throw away();
    }
    try {
      this.#write();
      const { calls, next } = this.#rows.find({ application, filter: values, before, limit, lookAtMax: LOOK_AT_MAX });
      return {
        data: calls.map(({ callId, opened }) => ({ callId, opened })),
        next_page: next === null ? null : encodePageToken(next, fingerprint),
      };
    } catch (error) {
      this.#interrupt(error);
      throw away(error);
    }
  }

  dropped(calls: readonly CallSummary[]): void {
    if (this.#rows === undefined || !this.#recognised || this.#stopping.signal.aborted) {
      return;
    }
    try {
      this.#write();
      this.#rows.remove(calls);
      this.#tracker.forget(calls);
    } catch (error) {
      this.#interrupt(error);
    }
  }

  caughtUp(version: Version): boolean {
    return this.#recognised && this.#written >= version;
  }

  readVersion(): Version {
    return this.#recognised ? this.#read.version : 0;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#tailing.abort();
    this.#wake();
    const waited = new AbortController();
    const tooLong = delay(STOP_WAIT_MS, undefined, { signal: waited.signal }).catch(() => undefined);
    await Promise.race([this.#following, tooLong]);
    waited.abort();
    const rows = this.#rows;
    if (rows === undefined) {
      return;
    }
    try {
      this.#write();
    } catch (error) {
      this.#log.warn("call_index_write_failed", { reason: messageOf(error) });
    } finally {
      clearTimeout(this.#writeTimer);
      this.#rows = undefined;
      rows.close();
    }
  }

  #openFile(): void {
    const { rows, dropped } = openCallRows(this.#options.file, this.#options.life);
    this.#rows = rows;
    if (dropped !== null) {
      this.#log.warn("call_index_dropped", { reason: dropped });
    }
  }

  async #follow(): Promise<void> {
    let failures = 0;
    while (!this.#stopping.signal.aborted) {
      this.#tailing = new AbortController();
      try {
        // A listing may have met a fault since the last tail ended.
        this.#throwFailure();
        await this.#resume();
        failures = 0;
        for await (const stored of this.#options.ledger.tail(this.#read.version + 1, this.#tailing.signal)) {
          const busy = this.#take(stored);
          if (busy !== undefined) {
            await busy;
          }
          if (this.#tailing.signal.aborted) {
            break;
          }
        }
        this.#throwFailure();
      } catch (error) {
        if (error instanceof LedgerError && error.code === "closed") {
          this.#log.info("call_index_ended", { reason: error.message });
          return;
        }
        this.#log.warn("call_index_interrupted", { reason: messageOf(error), written: this.#written });
        this.#repair(error);
      }
      if (this.#stopping.signal.aborted) {
        return;
      }
      failures += 1;
      const fullMs = Math.min(RESUME_MAX_MS, RESUME_BASE_MS * 2 ** Math.min(failures - 1, 10));
      const pauseMs = fullMs * (0.5 + (this.#options.random ?? Math.random)() / 2);
      await delay(pauseMs, undefined, { signal: this.#stopping.signal, ref: false }).catch(() => undefined);
    }
  }

  #throwFailure(): void {
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure !== undefined) {
      throw failure;
    }
  }

  /** Goes back to what is written, and makes sure that the ledger is the one it was written from. */
  async #resume(): Promise<void> {
    this.#forgetUnwritten();
    if (this.#rows === undefined) {
      this.#openFile();
    }
    const rows = this.#rows;
    if (rows === undefined) {
      throw new Error("the call index has no file");
    }
    const place = rows.place();
    if (place.version !== 0 && !(await this.#recognises(place))) {
      rows.clear();
      this.#log.warn("call_index_dropped", { reason: "other_ledger", version: place.version });
      this.#read = NO_PLACE;
    } else {
      this.#read = place;
    }
    this.#written = this.#read.version;
    this.#recognised = true;
    this.#wake();
  }

  /** Does the ledger hold the entry by which it is recognised? Entry ids are random, so another ledger never does. */
  async #recognises({ anchor }: LedgerPlace): Promise<boolean> {
    if (anchor === null) {
      return false;
    }
    for await (const stored of this.#options.ledger.read(anchor.callId, anchor.version)) {
      return stored.version === anchor.version && stored.entryId === anchor.entryId;
    }
    return false;
  }

  /** A promise only where something has to be waited for: most entries are done at once. */
  #take(stored: TailedEntry): Promise<void> | undefined {
    if (stored.version <= this.#read.version) {
      return undefined;
    }
    const tracked = this.#tracker.take(stored);
    return tracked instanceof Promise ? tracked.then((known) => this.#note(stored, known)) : this.#note(stored, tracked);
  }

  #note({ callId, version, entryId }: TailedEntry, tracked: Tracked): Promise<void> | undefined {
    if (this.#tailing.signal.aborted) {
      return undefined;
    }
    const isFork = tracked.kind === "skipped" && tracked.reason === "fork";
    this.#read = { version, anchor: isFork ? this.#read.anchor : { callId, version, entryId } };
    this.#pendingEntries += 1;
    if (tracked.kind !== "same" && tracked.change !== undefined) {
      const { change } = tracked;
      const pending = this.#pending.get(callId);
      this.#pending.set(callId, pending?.names === undefined ? change : { ...change, names: pending.names });
    }
    if (tracked.kind === "skipped") {
      const { reason, message } = tracked;
      const before = this.#skipped.get(reason) ?? { count: 0, callId, version, message };
      this.#skipped.set(reason, { ...before, count: before.count + 1 });
    }
    if (this.#pendingEntries >= BATCH_ENTRIES_MAX) {
      this.#write();
      return nextTurn();
    }
    this.#writeTimer ??= setTimeout(() => this.#writeLater(), WRITE_DELAY_MS).unref();
    if (this.#waiters.size > 0) {
      this.#wake();
    }
    return undefined;
  }

  #writeLater(): void {
    try {
      this.#write();
    } catch (error) {
      this.#interrupt(error);
    }
  }

  #write(): void {
    clearTimeout(this.#writeTimer);
    this.#writeTimer = undefined;
    if (this.#pendingEntries === 0 || this.#rows === undefined) {
      return;
    }
    this.#rows.write(this.#pending.values(), this.#read);
    this.#written = this.#read.version;
    this.#tracker.written();
    this.#pending.clear();
    this.#pendingEntries = 0;
    for (const [reason, { count, callId, version, message }] of this.#skipped) {
      this.#log.warn("call_index_entries_skipped", { reason, count, call_id: callId, version, message });
    }
    this.#skipped.clear();
    this.#wake();
  }

  /** Something failed outside the following loop: the loop begins again. */
  #interrupt(error: unknown): void {
    this.#failure ??= error;
    this.#tailing.abort();
  }

  /** After a fault: what is not written is read again; a damaged file is made anew. */
  #repair(error: unknown): void {
    this.#forgetUnwritten();
    if (!isBroken(error) || this.#rows === undefined) {
      return;
    }
    this.#recognised = false;
    const damaged = this.#rows;
    this.#rows = undefined;
    try {
      damaged.close();
    } catch (failure) {
      this.#log.warn("call_index_close_failed", { reason: messageOf(failure) });
    }
    try {
      this.#rows = remakeCallRows(this.#options.file, this.#options.life);
      this.#log.warn("call_index_dropped", { reason: "broken" });
    } catch (failure) {
      // The next round tries to open it again.
      this.#log.error("call_index_remake_failed", { reason: messageOf(failure) });
    }
  }

  #forgetUnwritten(): void {
    clearTimeout(this.#writeTimer);
    this.#writeTimer = undefined;
    this.#pending.clear();
    this.#pendingEntries = 0;
    this.#skipped.clear();
    this.#tracker.reset();
  }

  /** Waits, within bounds, until the index is ready and has read all that is stored now, and up to `atLeast`. */
  async #reach(atLeast: Version): Promise<void> {
    if (this.#following === undefined || this.#stopping.signal.aborted) {
      return;
    }
    await new Promise<void>((resolve) => {
      let wanted = Number.POSITIVE_INFINITY;
      const end = (): void => {
        clearTimeout(timer);
        this.#waiters.delete(look);
        resolve();
      };
      const look = (): void => {
        if ((this.#recognised && this.#read.version >= wanted) || this.#stopping.signal.aborted) {
          end();
        }
      };
      const timer = setTimeout(end, this.#options.catchUpWaitMs ?? CATCH_UP_WAIT_MS);
      this.#waiters.add(look);
      const known = (latest: Version): void => {
        wanted = Math.max(latest, atLeast);
        look();
      };
      // A closed ledger gets no newer: what was read of it is all there is to wait for.
      this.#options.ledger.latest().then(known, () => known(0));
    });
  }

  #wake(): void {
    for (const look of [...this.#waiters]) {
      look();
    }
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
