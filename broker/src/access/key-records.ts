/**
 * The records of keys, followed in memory.
 *
 * Invariants:
 * 1. One document holds all that there is about a key, under `=keys/<id>`: making and revoking it are one write each.
 *    `=` begins no application's id, so keys cannot clash with an application's documents.
 * 2. A record holds the hash of its credential, never the credential.
 * 3. A flood of wrong credentials reads the store at most {@link READS_PER_SECOND_MAX} times a second: unknown ids are
 *    remembered for a moment, and past the limit an id that memory does not know is answered "later", not "wrong":
 *    it may be a key that another broker has just made.
 */
import { BrokerError } from "../domain/broker-error.js";
import { SCOPES, type Scope } from "../domain/ports/access.js";
import { type CatalogDocument, type CatalogStore, CatalogStoreError } from "../domain/ports/catalog-store.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import { isKeyId, type KeyKind } from "./credentials.js";

export interface KeyRecord {
  readonly id: string;
  readonly kind: KeyKind;
  readonly application: string;
  readonly hash: Buffer;
  readonly name: string | null;
  /** Of an agent key. */
  readonly scopes: readonly Scope[];
  /** Of a runner key; empty for an agent key. */
  readonly binding: string;
  readonly created_at: string;
  readonly revoked_at: string | null;
}

export interface KeyRecords {
  peek(id: string): KeyRecord | undefined;
  /** From memory, else from the store within the limit. Rejects with `ledger_away` and `rate_limited`. */
  find(id: string): Promise<KeyRecord | undefined>;
  all(): Iterable<KeyRecord>;
  /** Stores a new record. */
  add(record: KeyRecord): Promise<void>;
  /** Marks it revoked; keeps the first time. Undefined when there is no such key, or `matches` says no. */
  revoke(id: string, at: string, matches: (record: KeyRecord) => boolean): Promise<KeyRecord | undefined>;
  /** Called when a key stops working, by whichever broker's doing. */
  onRevoked(listener: (record: KeyRecord) => void): { unsubscribe(): void };
  close(): void;
}

const PREFIX = "=keys/";
export const READS_PER_SECOND_MAX = 20;
const UNKNOWN_FOR_MS = 1_000;
const UNKNOWN_IDS_MAX = 10_000;

export function createKeyRecords(store: CatalogStore, clock: Pick<Clock, "monotonic">, log: Log): KeyRecords {
  const records = new Map<string, KeyRecord>();
  const listeners = new Set<{ readonly listener: (record: KeyRecord) => void }>();
  /** Ids that the store did not have, with the time until when that is believed. */
  const unknown = new Map<string, number>();
  const reading = new Map<string, Promise<KeyRecord | undefined>>();
  let window = { startedAt: clock.monotonic(), reads: 0 };

  function tellRevoked(record: KeyRecord): void {
    for (const { listener } of [...listeners]) {
      try {
        listener(record);
      } catch (error) {
        log.error("revocation_listener_failed", { key_id: record.id, error: error instanceof Error ? error.message : "unknown" });
      }
    }
  }

  function learn(path: string, document: CatalogDocument | undefined): void {
    if (!path.startsWith(PREFIX)) return;
    const id = path.slice(PREFIX.length);
    const before = records.get(id);
    const record = document === undefined ? undefined : decode(id, document.value);
    if (document !== undefined && record === undefined) log.error("key_document_unreadable", { key_id: id });
    // A record that cannot be read opens nothing.
    if (record === undefined) records.delete(id);
    else records.set(id, record);
    unknown.delete(id);
    if (before !== undefined && before.revoked_at === null && record?.revoked_at !== null) tellRevoked(record ?? before);
  }

  for (const document of store.peekAll(PREFIX)) learn(document.path, document);
  const subscription = store.watch(learn);

  function mayRead(): boolean {
    const now = clock.monotonic();
    if (now - window.startedAt >= 1_000) window = { startedAt: now, reads: 0 };
    window.reads += 1;
    return window.reads <= READS_PER_SECOND_MAX;
  }

  async function readThrough(id: string): Promise<KeyRecord | undefined> {
    const document = await withStore(() => store.read(PREFIX + id));
    if (document !== undefined) {
      // The watch may be behind the answer, or ahead of it: what it told stays.
      if (!records.has(id)) learn(document.path, document);
      return records.get(id);
    }
    unknown.delete(id);
    unknown.set(id, clock.monotonic() + UNKNOWN_FOR_MS);
    if (unknown.size > UNKNOWN_IDS_MAX) {
      const [oldest] = unknown.keys();
      if (oldest !== undefined) unknown.delete(oldest);
    }
    return undefined;
  }

  return {
    peek: (id) => records.get(id),
    async find(id) {
      const known = records.get(id);
      if (known !== undefined || !isKeyId(id)) return known;
      const believedUntil = unknown.get(id);
      if (believedUntil !== undefined && clock.monotonic() < believedUntil) return undefined;
      const underWay = reading.get(id);
      if (underWay !== undefined) return underWay;
      if (!mayRead()) {
        throw new BrokerError("rate_limited", "Too many requests with unknown keys reach this broker. Repeat in a moment.", {
          retryAfterSeconds: 1,
        });
      }
      const read = readThrough(id).finally(() => reading.delete(id));
      reading.set(id, read);
      return read;
    },
    all: () => records.values(),
    async add(record) {
      const outcome = await withStore(() => store.put(PREFIX + record.id, encode(record), 0));
      if (outcome.kind === "conflict") throw new BrokerError("internal", `Key id ${record.id} is taken already. Repeat the request.`);
    },
    async revoke(id, at, matches) {
      if (!isKeyId(id)) return undefined;
      for (;;) {
        const document = await withStore(() => store.read(PREFIX + id));
        const record = document === undefined ? undefined : decode(id, document.value);
        if (document === undefined || record === undefined || !matches(record)) return undefined;
        if (record.revoked_at !== null) return record;
        const revoked: KeyRecord = { ...record, revoked_at: at };
        const outcome = await withStore(() => store.put(PREFIX + id, encode(revoked), document.revision));
        if (outcome.kind === "stored") return revoked;
      }
    },
    onRevoked(listener) {
      const entry = { listener };
      listeners.add(entry);
      return { unsubscribe: () => listeners.delete(entry) };
    },
    close() {
      subscription.unsubscribe();
      listeners.clear();
    },
  };
}

function encode(record: KeyRecord): string {
  const { id: _, hash, ...rest } = record;
  return JSON.stringify({ v: 1, ...rest, hash: hash.toString("hex") });
}

function decode(id: string, text: string): KeyRecord | undefined {
  const value = parse(text);
  if (value?.v !== 1) return undefined;
  const { kind, application, hash, name, scopes, binding, created_at, revoked_at } = value;
  if ((kind !== "agent" && kind !== "runner") || typeof application !== "string" || typeof binding !== "string") return undefined;
  if (typeof hash !== "string" || !/^[0-9a-f]{64}$/.test(hash) || typeof created_at !== "string" || !Array.isArray(scopes))
    return undefined;
  return {
    id,
    kind,
    application,
    binding,
    created_at,
    hash: Buffer.from(hash, "hex"),
    name: typeof name === "string" ? name : null,
    // A scope that a newer broker gave and this one does not know gives nothing here.
    scopes: SCOPES.filter((scope) => scopes.includes(scope)),
    revoked_at: typeof revoked_at === "string" ? revoked_at : null,
  };
}

function parse(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

async function withStore<T>(task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    if (!(error instanceof CatalogStoreError)) throw error;
    throw new BrokerError("ledger_away", "The store of keys does not answer: a change may have been stored. Repeat later.", {
      cause: error,
    });
  }
}
