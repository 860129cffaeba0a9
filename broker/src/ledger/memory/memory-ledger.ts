/**
 * The ledger in memory: for tests and for trying things out. It keeps nothing when the process ends.
 *
 * Invariants:
 * - Nothing takes effect in the caller's turn and nothing is answered in the turn in which it took effect, as with a real store.
 * - What is stored belongs to the {@link MemoryLedgerStore}; a ledger is only a door to it. Two ledgers on one store behave
 *   like two brokers on one ledger, and a new ledger on an old store like a restart.
 */
import { createHash } from "node:crypto";
import type { LaneStore } from "../../domain/ports/lanes.js";
import {
  type AppendOutcome,
  type BlobPlace,
  type BlobStore,
  type EntryPlace,
  type Ledger,
  LedgerError,
  type NewEntry,
  type OpenCall,
  type StoredEntry,
  type TailedEntry,
  type Version,
} from "../../domain/ports/ledger.js";
import { checkAppend, checkBlobName, closedError, isCallId } from "../append-rules.js";
import { Arrivals } from "../arrivals.js";
import { createMemoryLanes, type MemoryLanes, memoryLaneStore } from "./memory-lanes.js";

interface StoredBlob {
  text: string;
  readonly digest: string;
  readonly place: number;
}

/** What outlives a memory ledger. Made by {@link createMemoryLedgerStore}; its fields are for fault injection in tests. */
export interface MemoryLedgerStore {
  /** All entries in version order; the entry of version n is at n − 1, undefined when it was removed. */
  readonly entries: ((StoredEntry & { readonly note?: string | undefined }) | undefined)[];
  readonly entriesOfCall: Map<string, StoredEntry[]>;
  readonly openCalls: Set<string>;
  /** In the order in which they were put. */
  readonly blobs: Map<string, StoredBlob>;
  readonly lanes: MemoryLanes;
  /** Of the newest put. */
  blobPlace: number;
  /** Woken on each append, through whichever ledger it came. */
  readonly listeners: Set<(version: Version) => void>;
}

export interface MemoryLedgerOptions {
  /** What an earlier ledger stored. Default: nothing. */
  readonly store?: MemoryLedgerStore;
  /** Waited for before an operation takes effect and again before it is answered. Default: one turn of the event loop. */
  readonly turn?: () => Promise<void>;
}

/** An empty store for {@link createMemoryLedger}. */
export function createMemoryLedgerStore(): MemoryLedgerStore {
  return {
    entries: [],
    entriesOfCall: new Map(),
    openCalls: new Set(),
    blobs: new Map(),
    blobPlace: 0,
    lanes: createMemoryLanes(),
    listeners: new Set(),
  };
}

/** A {@link Ledger} that lives in memory. */
export function createMemoryLedger(options: MemoryLedgerOptions = {}): Ledger {
  return new MemoryLedger(options.store ?? createMemoryLedgerStore(), options.turn ?? nextTurn);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function digestOf(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("base64url");
}

class MemoryLedger implements Ledger {
  readonly description = { kind: "memory", durability: "entries live in this process only and end with it" } as const;
  readonly blobs: BlobStore;
  readonly lanes: LaneStore;
  readonly #store: MemoryLedgerStore;
  readonly #turn: () => Promise<void>;
  readonly #arrivals: Arrivals;
  readonly #heard: (version: Version) => void;
  #closed = false;

  constructor(store: MemoryLedgerStore, turn: () => Promise<void>) {
    this.#store = store;
    this.#turn = turn;
    this.#arrivals = new Arrivals(store.entries.length);
    this.#heard = (version) => this.#arrivals.announce(version);
    store.listeners.add(this.#heard);
    this.blobs = {
      put: (name, text) => this.#putBlob(name, text),
      get: (name) => this.#getBlob(name),
      places: (from, signal) => this.#blobPlaces(from, signal),
      placeOf: (name) => this.#placeOfBlob(name),
      remove: (blob) => this.#removeBlob(blob),
    };
    this.lanes = memoryLaneStore(store.lanes, (what) => {
      this.#assertOpen(what);
      return this.#turn();
    });
  }

  async append(callId: string, expected: Version, entry: NewEntry): Promise<AppendOutcome> {
    this.#assertOpen("append");
    checkAppend(callId, expected, entry);
    const { entryId, data, mark, note } = entry;
    await this.#turn();
    const outcome = this.#appendNow(callId, expected, { entryId, data, mark, note });
    await this.#turn();
    return outcome;
  }

  #appendNow(callId: string, expected: Version, { entryId, data, mark, note }: NewEntry): AppendOutcome {
    const store = this.#store;
    const ofCall = store.entriesOfCall.get(callId) ?? [];
    const current = ofCall.at(-1)?.version ?? 0;
    if (current !== expected) {
      const same = ofCall.find((stored) => stored.version > expected && stored.entryId === entryId);
      return same === undefined ? { kind: "conflict", current } : { kind: "duplicate", version: same.version };
    }
    const version = store.entries.length + 1;
    const stored: StoredEntry = Object.freeze({ callId, version, previous: expected, entryId, data });
    store.entries.push(note === undefined ? stored : Object.freeze({ ...stored, note }));
    ofCall.push(stored);
    store.entriesOfCall.set(callId, ofCall);
    if (mark === "opens") store.openCalls.add(callId);
    else if (mark === "settles") store.openCalls.delete(callId);
    for (const listener of store.listeners) listener(version);
    return { kind: "appended", version };
  }

  async *read(callId: string, from: Version = 0): AsyncIterable<StoredEntry> {
    this.#assertOpen("read");
    await this.#turn();
    if (!isCallId(callId)) return;
    const ofCall = this.#store.entriesOfCall.get(callId) ?? [];
    for (let index = 0; index < ofCall.length; index += 1) {
      const stored = ofCall[index];
      if (stored !== undefined && stored.version >= from) yield stored;
    }
  }

  async *tail(from: Version, signal: AbortSignal): AsyncIterable<TailedEntry> {
    this.#assertOpen("tail");
    let next = Math.max(1, from);
    while (!signal.aborted) {
      await this.#arrivals.reached(next, signal);
      if (signal.aborted) return;
      const stored = this.#store.entries[next - 1];
      if (next > this.#store.entries.length) continue;
      next += 1;
      if (stored === undefined) continue;
      yield stored.note === undefined ? { ...stored, note: undefined } : { ...stored, note: stored.note };
    }
  }

  async latest(): Promise<Version> {
    this.#assertOpen("latest");
    await this.#turn();
    return this.#store.entries.length;
  }

  async *openCalls(): AsyncIterable<OpenCall> {
    this.#assertOpen("openCalls");
    await this.#turn();
    for (const callId of [...this.#store.openCalls]) yield { callId };
  }

  async check(): Promise<void> {
    this.#assertOpen("check");
    await this.#turn();
  }

  /** Nothing to do: the index of open calls is kept with the entries. */
  async retire(_incarnation: string): Promise<void> {
    this.#assertOpen("retire");
    await this.#turn();
  }

  async *places(from: Version, signal: AbortSignal): AsyncIterable<EntryPlace> {
    this.#assertOpen("places");
    await this.#turn();
    const end = this.#store.entries.length;
    for (let version = Math.max(1, from); version <= end && !signal.aborted; version += 1) {
      const stored = this.#store.entries[version - 1];
      if (stored !== undefined) yield { callId: stored.callId, version, previous: stored.previous };
    }
  }

  async remove(callId: string, versions: readonly Version[]): Promise<void> {
    this.#assertOpen("remove");
    for (const version of versions) {
      await this.#turn();
      const ofCall = this.#store.entriesOfCall.get(callId) ?? [];
      const at = ofCall.findIndex((stored) => stored.version === version);
      if (at < 0) continue;
      ofCall.splice(at, 1);
      this.#store.entries[version - 1] = undefined;
      if (ofCall.length === 0) this.#store.entriesOfCall.delete(callId);
    }
    await this.#turn();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#store.listeners.delete(this.#heard);
    this.#arrivals.fail(closedError("tail"));
    await this.#turn();
  }

  async #putBlob(name: string, text: string): Promise<void> {
    this.#assertOpen("blobs.put");
    checkBlobName(name);
    await this.#turn();
    const digest = digestOf(text);
    const stored = this.#store.blobs.get(name);
    if (stored !== undefined && stored.digest !== digest && digestOf(stored.text) === stored.digest) {
      throw new TypeError(`blob ${name} is stored already with another text: a name is written once`);
    }
    this.#store.blobs.delete(name);
    this.#store.blobPlace += 1;
    this.#store.blobs.set(name, { text, digest, place: this.#store.blobPlace });
    await this.#turn();
  }

  async *#blobPlaces(from: number, signal: AbortSignal): AsyncIterable<BlobPlace> {
    this.#assertOpen("blobs.places");
    await this.#turn();
    for (const [name, { place }] of [...this.#store.blobs]) {
      if (signal.aborted) return;
      if (place >= from) yield { name, place };
    }
  }

  async #placeOfBlob(name: string): Promise<number | undefined> {
    this.#assertOpen("blobs.placeOf");
    await this.#turn();
    return this.#store.blobs.get(name)?.place;
  }

  async #removeBlob({ name, place }: BlobPlace): Promise<boolean> {
    this.#assertOpen("blobs.remove");
    checkBlobName(name);
    await this.#turn();
    const removed = this.#store.blobs.get(name)?.place === place && this.#store.blobs.delete(name);
    await this.#turn();
    return removed;
  }

  async #getBlob(name: string): Promise<string> {
    this.#assertOpen("blobs.get");
    await this.#turn();
    const stored = this.#store.blobs.get(name);
    if (stored === undefined) throw new LedgerError("blob_missing", `blob ${name} is not stored`);
    if (digestOf(stored.text) !== stored.digest) {
      throw new LedgerError("blob_corrupt", `blob ${name} does not match its digest: restore it from a backup`);
    }
    return stored.text;
  }

  #assertOpen(what: string): void {
    if (this.#closed) throw closedError(what);
  }
}
