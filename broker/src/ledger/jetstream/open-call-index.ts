/**
 * The index of open calls (L4): which calls are open is known without a third write on the path of a call.
 *
 * Each broker keeps a record that says from which version on calls must be searched for its own open ones. A call that is still
 * open after {@link MARK_AFTER_MS} gets a marker; then the record may move past it. Open calls are those with a marker and those
 * that a scan of headers from the lowest record on finds.
 *
 * Invariants:
 * - An opening append is sent only while this broker's record is believed to exist, and its promise resolves only when the record
 *   was seen recently (or is seen again then): a broker that was taken for dead, and whose record is gone, writes a new one first.
 * - A record is only removed after it was turned to `retiring`, which its broker hears, and after all open calls of its
 *   incarnation from its `scanFrom` on have acknowledged markers. So removing one is safe also when its broker lives.
 * - Markers are put after the ledger's acknowledgement, and removed only after a settling entry was acknowledged or read.
 */
import type { Clock } from "../../domain/ports/clock.js";
import type { OpenCall, Version } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import type { ConnectionWatch } from "./connection-watch.js";
import type { IndexStore, RecordKey, ScanRecord, StoredScanRecord } from "./index-store.js";
import type { PendingOpening } from "./own-open-calls.js";
import { OwnOpenCalls } from "./own-open-calls.js";
import { RollbackWatch } from "./rollback-watch.js";

/** What a scan of the calls' stream from one version to its end found. */
export interface ScanFindings {
  /** Opened and not settled, with the incarnation that opened each. */
  readonly open: ReadonlyMap<string, string>;
  readonly settled: ReadonlySet<string>;
}

export interface OpenCallIndexOptions {
  readonly store: IndexStore;
  readonly watch: ConnectionWatch;
  readonly incarnation: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly random: () => number;
  /** The newest version in the ledger, from its leader. */
  readonly newestVersion: () => Promise<Version>;
  /** When the entry of a version was stored, in Unix milliseconds; undefined when there is none. */
  readonly storedAt: (version: Version) => Promise<number | undefined>;
  /** Longest that the leader may know less than was acknowledged, in ms. */
  readonly staleForMs: number;
  readonly scan: (from: Version, signal: AbortSignal) => Promise<ScanFindings>;
}

const TICK_MS = 500;
const MARK_AFTER_MS = 2_000;
const MARKS_AT_ONCE = 1_024;
const REMOVALS_AT_ONCE = 32;
/** How often the record is written forward, or read when there is nothing to write. */
const CONFIRM_EVERY_MS = 2_000;
/** A record not seen for this long may be gone: nobody is taken for dead in less than twice this time (B1). */
const CONFIRMED_FOR_MS = 3_000;
/** A broker with nothing to write shows that it lives this often. */
const TOUCH_EVERY_MS = 15_000;
/** A record that nobody wrote for this long is retired by whoever notices. */
const ABANDONED_AFTER_MS = 90_000;

/** See the module's header. `start` first, then everything else. */
export class OpenCallIndex {
  readonly #options: OpenCallIndexOptions;
  readonly #stop = new AbortController();
  #own: OwnOpenCalls;
  #record: StoredScanRecord | undefined;
  #generation = 0;
  #confirmedAt = Number.NEGATIVE_INFINITY;
  #writtenAt = Number.NEGATIVE_INFINITY;
  #confirming: Promise<void> | undefined;
  #timer: { cancel(): void } | undefined;
  #unhear: (() => void) | undefined;
  #unwatch: (() => void) | undefined;
  /** Calls with a marker that the last listing named. */
  #listed = new Set<string>();
  readonly #removals: string[] = [];
  #removing = 0;
  /** When each other broker's record was last seen to be written. */
  readonly #others = new Map<string, { readonly key: RecordKey; seenAt: number }>();
  readonly #rollbacks: RollbackWatch;
  #retiringOther = false;

  constructor(options: OpenCallIndexOptions) {
    this.#options = options;
    const { staleForMs, storedAt, clock } = options;
    this.#rollbacks = new RollbackWatch({ staleForMs, storedAt, now: () => clock.now(), monotonic: () => clock.monotonic() });
    this.#own = new OwnOpenCalls(0);
  }

  /** Writes this broker's record. Nothing may be appended before it resolves. */
  async start(): Promise<void> {
    const { store, watch, newestVersion } = this.#options;
    this.#own = new OwnOpenCalls(await newestVersion());
    this.#unhear = store.hear((key, record) => this.#heard(key, record));
    this.#unwatch = watch.onChange(() => this.#connectionChanged());
    await this.#confirm();
    const now = this.#options.clock.monotonic();
    const { records } = await store.contents(this.#stop.signal);
    for (const { key } of records) if (!this.#isOwn(key)) this.#others.set(nameOf(key), { key, seenAt: now });
    this.#schedule();
  }

  /** Before an opening append is sent. `undefined`: it may be sent at once. */
  beforeOpening(): Promise<void> | undefined {
    return this.#isConfirmed() ? undefined : this.#confirm();
  }

  /** An opening append is about to be sent. */
  openingSent(): PendingOpening {
    return this.#own.sent();
  }

  /** The opening append is stored. Its promise may resolve when the returned one, if any, does. */
  opened(opening: PendingOpening, callId: string, version: Version): Promise<void> | undefined {
    this.#own.stored(version);
    this.#own.opened(opening, callId, version, this.#options.clock.monotonic());
    return this.#isConfirmed() ? undefined : this.#confirm();
  }

  notOpened(opening: PendingOpening): void {
    this.#own.notOpened(opening);
  }

  stored(version: Version): void {
    this.#own.stored(version);
  }

  /** A settling entry of the call was read. Its marker goes if it was listed with one. */
  seenSettled(callId: string): void {
    if (this.#listed.delete(callId)) this.settled(callId);
    else this.#own.settled(callId);
  }

  /** This ledger appended the entry that settles the call. */
  settled(callId: string): void {
    this.#listed.delete(callId);
    if (this.#own.settled(callId) || this.#stop.signal.aborted) return;
    this.#removals.push(callId);
    this.#removeNext();
  }

  /**
   * The entries of a settled call are about to be removed: after that nobody could tell that its marker is one of a settled call. `isGone`:
   * are they already? Then the marker may be that of a new call of the same id.
   */
  async removing(callId: string, isGone: () => Promise<boolean>): Promise<void> {
    this.#listed.delete(callId);
    await this.#options.store.deleteMarker(callId, isGone);
  }

  async *openCalls(): AsyncIterable<OpenCall> {
    const { store, scan } = this.#options;
    const { signal } = this.#stop;
    // Records before the scan: a record that moved past a call did so after the call's marker, which is then among the contents.
    const { records, marked } = await store.contents(signal);
    const from = Math.min(this.#own.scanFrom, ...records.map(({ scanFrom }) => scanFrom));
    const { open, settled } = await scan(from, signal);
    const listed = new Set<string>();
    for (const callId of marked) {
      if (settled.has(callId)) this.settled(callId);
      else listed.add(callId);
    }
    this.#listed = listed;
    for (const callId of new Set([...listed, ...open.keys()])) yield { callId };
  }

  /** Puts markers for all open calls of the incarnation that only a scan would find, and removes its records. */
  async retire(incarnation: string): Promise<void> {
    const { store, scan, log } = this.#options;
    const { signal } = this.#stop;
    const fenced: StoredScanRecord[] = [];
    for (const { key } of await store.recordsOf(incarnation, signal)) {
      const record = await this.#fence(key);
      if (record !== undefined) fenced.push(record);
    }
    if (fenced.length === 0) return;
    const { open } = await scan(Math.min(...fenced.map(({ scanFrom }) => scanFrom)), signal);
    const unmarked = [...open].filter(([, openedBy]) => openedBy === incarnation).map(([callId]) => callId);
    for (let at = 0; at < unmarked.length; at += MARKS_AT_ONCE) {
      await Promise.all(unmarked.slice(at, at + MARKS_AT_ONCE).map((callId) => store.putMarker(callId)));
    }
    await Promise.all(fenced.map((record) => store.deleteRecord(record)));
    for (const { key } of fenced) this.#others.delete(nameOf(key));
    log.info("ledger_incarnation_retired", { incarnation, records: fenced.length, open: unmarked.length });
  }

  /** Leaves nothing behind that a scan would be needed for, when the ledger can be reached within `timeoutMs`. */
  async close(timeoutMs: number): Promise<void> {
    if (this.#stop.signal.aborted) return;
    this.#timer?.cancel();
    const { clock, watch, log } = this.#options;
    const tidy = this.#tidy().catch((error: unknown) => log.warn("ledger_index_left", { reason: textOf(error) }));
    let cancel = (): void => undefined;
    const late = new Promise<void>((resolve) => {
      const timer = clock.schedule(timeoutMs, resolve);
      const unwatch = watch.onChange(() => {
        if (!watch.usable) resolve();
      });
      cancel = () => {
        timer.cancel();
        unwatch();
      };
    });
    await Promise.race([tidy, late]);
    cancel();
    this.#stop.abort();
    this.#unhear?.();
    this.#unwatch?.();
  }

  async #tidy(): Promise<void> {
    if (!this.#options.watch.usable) return;
    await this.#confirming;
    for (let taken = this.#own.takeUnmarked(Number.POSITIVE_INFINITY, MARKS_AT_ONCE); taken.length > 0; ) {
      await Promise.all(taken.map((callId) => this.#mark(callId)));
      taken = this.#own.takeUnmarked(Number.POSITIVE_INFINITY, MARKS_AT_ONCE);
    }
    // What is still pending may yet be stored, and markers under way may fail: then the record stays, and is retired by others.
    if (this.#record !== undefined && this.#own.size === 0) await this.#options.store.deleteRecord(this.#record);
  }

  #isOwn(key: RecordKey): boolean {
    return key.incarnation === this.#options.incarnation;
  }

  #isConfirmed(): boolean {
    return this.#record !== undefined && this.#options.clock.monotonic() - this.#confirmedAt < CONFIRMED_FOR_MS;
  }

  #schedule(): void {
    if (this.#stop.signal.aborted) return;
    this.#timer = this.#options.clock.schedule(TICK_MS, () => {
      this.#tick();
      this.#schedule();
    });
  }

  #tick(): void {
    if (!this.#options.watch.usable) return;
    const now = this.#options.clock.monotonic();
    for (const callId of this.#own.takeUnmarked(now - MARK_AFTER_MS, MARKS_AT_ONCE)) this.#inBackground(this.#mark(callId));
    if (now - this.#confirmedAt >= CONFIRM_EVERY_MS) this.#inBackground(this.#confirm());
    this.#retireAbandoned(now);
  }

  #inBackground(work: Promise<unknown>): void {
    work.catch((error: unknown) => {
      if (!this.#stop.signal.aborted) this.#options.log.warn("ledger_index_failed", { reason: textOf(error) });
    });
  }

  async #mark(callId: string): Promise<void> {
    await this.#options.store.putMarker(callId);
    if (!this.#own.marked(callId)) this.settled(callId);
  }

  /** One at a time: writes the record forward, or reads it, or replaces one that is gone. */
  #confirm(): Promise<void> {
    this.#confirming ??= this.#confirmNow().finally(() => {
      this.#confirming = undefined;
    });
    return this.#confirming;
  }

  async #confirmNow(): Promise<void> {
    const { store, clock, incarnation, log, random } = this.#options;
    const begunAt = clock.monotonic();
    const heardOf = this.#own.newest;
    const newest = await this.#options.newestVersion();
    if (newest >= heardOf) this.#own.stored(newest);
    // To look through too much is always right.
    else this.#own.rolledBack(newest);
    const rollback = await this.#rollbacks.compare(heardOf, newest);
    if (rollback !== undefined) log.error("ledger_rolled_back", { ...rollback });
    for (;;) {
      const known = this.#record;
      const record: ScanRecord = { scanFrom: this.#own.scanFrom, state: "live" };
      if (known === undefined) {
        this.#generation += 1;
        const key = { incarnation, generation: `${this.#generation}-${Math.floor(random() * 2 ** 32).toString(36)}` };
        const sequence = await store.putRecord(key, record, 0);
        if (sequence === undefined) continue;
        if (this.#generation > 1) log.warn("ledger_record_replaced", { incarnation, generation: this.#generation });
        this.#record = { ...record, key, sequence };
        break;
      }
      const isDue = record.scanFrom !== known.scanFrom || begunAt - this.#writtenAt >= TOUCH_EVERY_MS;
      if (!isDue) {
        const found = await store.getRecord(known.key);
        if (found?.sequence === known.sequence) {
          this.#confirmedAt = begunAt;
          return;
        }
      } else {
        const sequence = await store.putRecord(known.key, record, known.sequence);
        if (sequence !== undefined) {
          if (this.#record === known) this.#record = { ...known, ...record, sequence };
          break;
        }
      }
      if (this.#record === known) this.#record = undefined;
    }
    this.#confirmedAt = begunAt;
    this.#writtenAt = begunAt;
  }

  #heard(key: RecordKey, record: ScanRecord): void {
    if (!this.#isOwn(key)) {
      this.#others.set(nameOf(key), { key, seenAt: this.#options.clock.monotonic() });
      return;
    }
    if (record.state === "retiring" && this.#record?.key.generation === key.generation) this.#record = undefined;
  }

  #connectionChanged(): void {
    // What was written meanwhile was not heard: everybody's time begins again, and the own record is looked at before it is relied on.
    const now = this.#options.clock.monotonic();
    for (const other of this.#others.values()) other.seenAt = now;
    this.#confirmedAt = Number.NEGATIVE_INFINITY;
  }

  #retireAbandoned(now: number): void {
    if (this.#retiringOther) return;
    for (const { key, seenAt } of this.#others.values()) {
      if (now - seenAt < ABANDONED_AFTER_MS) continue;
      this.#retiringOther = true;
      this.#others.delete(nameOf(key));
      this.#inBackground(
        this.retire(key.incarnation).finally(() => {
          this.#retiringOther = false;
        }),
      );
      return;
    }
  }

  /** Turns a record to `retiring`. `undefined`: it is gone. */
  async #fence(key: RecordKey): Promise<StoredScanRecord | undefined> {
    for (;;) {
      const found = await this.#options.store.getRecord(key);
      if (found === undefined || found.state === "retiring") return found;
      const record: ScanRecord = { scanFrom: found.scanFrom, state: "retiring" };
      const sequence = await this.#options.store.putRecord(key, record, found.sequence);
      if (sequence !== undefined) return { ...record, key, sequence };
    }
  }

  #removeNext(): void {
    while (this.#removing < REMOVALS_AT_ONCE) {
      const callId = this.#removals.shift();
      if (callId === undefined) return;
      this.#removing += 1;
      this.#inBackground(
        this.#options.store.deleteMarker(callId).finally(() => {
          this.#removing -= 1;
          if (!this.#stop.signal.aborted) this.#removeNext();
        }),
      );
    }
  }
}

function nameOf({ incarnation, generation }: RecordKey): string {
  return `${incarnation}.${generation}`;
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
