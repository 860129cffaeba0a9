/**
 * The catalog store that many brokers share: a registry of the bus (a JetStream KV bucket on NATS), watched into memory.
 *
 * Invariants:
 * 1. `peek` never goes back: a change with a revision below the newest that is known for its path is dropped,
 *    so a late notice of an older write does not undo what this broker wrote or read since.
 * 2. A deletion is remembered by its revision until the watch has passed it, for the same reason.
 * 3. Everything that was stored before `createKvCatalogStore` resolved can be peeked at.
 */
import { type Bus, BusError, type RegistryChange, type RegistryRecord } from "../../domain/ports/bus.js";
import { type CatalogDocument, type CatalogStore, CatalogStoreError } from "../../domain/ports/catalog-store.js";
import type { Log } from "../../domain/ports/log.js";
import { createChangeListeners } from "./change-listeners.js";
import { checkPath, checkPrefix, checkValue } from "./document-rules.js";
import { createDocumentTree } from "./document-tree.js";

export interface KvCatalogStoreOptions {
  /** Its registry `name` holds the documents; closing the store leaves the bus open. */
  readonly bus: Pick<Bus, "registry" | "check">;
  /** Default `catalog`. */
  readonly name?: string | undefined;
  readonly log?: Log | undefined;
}

/** Deletions kept for late notices; older ones can no longer be overtaken. */
const TOMBSTONES_MAX = 10_000;

/** Opens the shared store and loads it. Rejects with {@link CatalogStoreError} `unreachable`. */
export async function createKvCatalogStore(options: KvCatalogStoreOptions): Promise<CatalogStore> {
  const tree = createDocumentTree();
  const tombstones = new Map<string, number>();
  const listeners = createChangeListeners(options.log);
  let closed = false;

  function known(path: string): number {
    return tree.get(path)?.revision ?? tombstones.get(path) ?? 0;
  }

  function show(document: CatalogDocument): void {
    if (document.revision <= known(document.path)) return;
    tombstones.delete(document.path);
    tree.set(document);
    listeners.tell(document.path, document);
  }

  function hide(path: string, revision: number): void {
    if (revision <= known(path)) return;
    const shown = tree.get(path) !== undefined;
    tree.remove(path);
    tombstones.delete(path);
    tombstones.set(path, revision);
    if (tombstones.size > TOMBSTONES_MAX) {
      const [oldest] = tombstones.keys();
      if (oldest !== undefined) tombstones.delete(oldest);
    }
    if (shown) listeners.tell(path, undefined);
  }

  function follow(change: RegistryChange): void {
    if (closed) return;
    if (change.kind === "put") show(toDocument(change.record));
    else hide(toPath(change.key), change.revision);
  }

  async function use<T>(task: () => Promise<T>): Promise<T> {
    if (closed) throw new CatalogStoreError("closed", "The catalog store is closed.");
    try {
      return await task();
    } catch (error) {
      throw toStoreError(error);
    }
  }

  const registry = await use(() => options.bus.registry(options.name ?? "catalog"));
  const subscription = await use(() => registry.watch(follow));

  async function read(path: string): Promise<CatalogDocument | undefined> {
    const before = known(path);
    const record = await use(() => registry.get(toKey(path)));
    if (record !== undefined) {
      show(toDocument(record));
      // A newer state may have arrived while the answer travelled.
      return known(path) > record.revision ? tree.get(path) : toDocument(record);
    }
    // Gone, unless it was written after the question was asked. The watch brings the deletion's own revision.
    if (tree.get(path) !== undefined && known(path) === before) hide(path, before + 1);
    return tree.get(path);
  }

  return {
    peek: (path) => tree.get(path),
    peekAll(prefix) {
      checkPrefix(prefix);
      return tree.below(prefix);
    },
    async read(path) {
      checkPath(path);
      return read(path);
    },
    async put(path, value, expected) {
      checkPath(path);
      checkValue(path, value);
      const revision = await use(() => registry.update(toKey(path), value, expected));
      if (revision === undefined) return { kind: "conflict", current: await read(path) };
      show({ path, value, revision });
      return { kind: "stored", revision };
    },
    async delete(path) {
      checkPath(path);
      await use(() => registry.delete(toKey(path)));
      await read(path);
    },
    watch: (listener) => listeners.add(listener),
    async check() {
      await use(() => options.bus.check());
    },
    async close() {
      if (closed) return;
      closed = true;
      subscription.unsubscribe();
      listeners.clear();
    },
  };
}

/** Paths allow two characters that keys do not: they are written with `_`, which then stands for itself when doubled. */
function toKey(path: string): string {
  return path.replace(/[_.=]/g, (character) => (character === "_" ? "__" : character === "." ? "_d" : "_e")).replaceAll("/", ".");
}

function toPath(key: string): string {
  return key.replaceAll(".", "/").replace(/_([_de])/g, (_, code: string) => (code === "_" ? "_" : code === "d" ? "." : "="));
}

function toDocument(record: RegistryRecord): CatalogDocument {
  return { path: toPath(record.key), value: record.value, revision: record.revision };
}

function toStoreError(error: unknown): CatalogStoreError {
  if (error instanceof CatalogStoreError) return error;
  const code = error instanceof BusError && (error.code === "closed" || error.code === "too_large") ? error.code : "unreachable";
  const reason = error instanceof Error ? error.message : String(error);
  return new CatalogStoreError(code, `The shared catalog does not answer: ${reason}`, { cause: error });
}
