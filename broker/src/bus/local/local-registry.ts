/**
 * A registry in memory, shared by the buses of one hub.
 *
 * Invariants:
 * 1. Revisions rise with every write to the registry, deletions included, and are never reused.
 * 2. A watcher sees every change once, in revision order, never inside the writer's call.
 */
import {
  BUS_MESSAGE_BYTES_MAX,
  BusError,
  type Registry,
  type RegistryChange,
  type RegistryRecord,
  type Subscription,
} from "../../domain/ports/bus.js";
import { checkKey } from "../subjects.js";

interface Watcher {
  readonly listener: (change: RegistryChange) => void;
  active: boolean;
}

/** The records of one name; each bus of the hub gets its own view of it. */
export interface SharedRegistry {
  view(isClosed: () => boolean): Registry;
  /** Ends the watches that a closing bus opened through `view`. */
  release(registry: Registry): void;
}

export function createSharedRegistry(): SharedRegistry {
  const records = new Map<string, RegistryRecord>();
  const watchers = new Set<Watcher>();
  const owned = new WeakMap<Registry, Set<Watcher>>();
  let revision = 0;

  function tell(change: RegistryChange): void {
    for (const watcher of watchers) {
      queueMicrotask(() => {
        if (watcher.active) watcher.listener(change);
      });
    }
  }

  function checkValue(key: string, value: string): void {
    const bytes = Buffer.byteLength(value);
    if (bytes > BUS_MESSAGE_BYTES_MAX) {
      throw new BusError("too_large", `Record ${key} has ${bytes} bytes; at most ${BUS_MESSAGE_BYTES_MAX} fit.`);
    }
  }

  function write(key: string, value: string): number {
    revision += 1;
    const record: RegistryRecord = { key, value, revision };
    records.set(key, record);
    tell({ kind: "put", record });
    return revision;
  }

  return {
    view(isClosed) {
      const mine = new Set<Watcher>();
      const check = (key?: string): void => {
        if (key !== undefined) checkKey(key);
        if (isClosed()) throw new BusError("closed", "The bus is closed.");
      };
      const registry: Registry = {
        async put(key, value) {
          check(key);
          checkValue(key, value);
          return write(key, value);
        },
        async update(key, value, expected) {
          check(key);
          checkValue(key, value);
          return (records.get(key)?.revision ?? 0) === expected ? write(key, value) : undefined;
        },
        async get(key) {
          check(key);
          return records.get(key);
        },
        async delete(key, expected) {
          check(key);
          const present = records.get(key);
          if (present === undefined || (expected !== undefined && present.revision !== expected)) return;
          records.delete(key);
          revision += 1;
          tell({ kind: "delete", key, revision });
        },
        async list() {
          check();
          return [...records.values()];
        },
        async watch(listener): Promise<Subscription> {
          check();
          const watcher: Watcher = { listener, active: true };
          const present = [...records.values()].sort((left, right) => left.revision - right.revision);
          watchers.add(watcher);
          mine.add(watcher);
          // Queued like any change, so that none that comes meanwhile overtakes them.
          await new Promise<void>((resolve) => {
            queueMicrotask(() => {
              for (const record of present) {
                if (watcher.active) listener({ kind: "put", record });
              }
              resolve();
            });
          });
          return {
            unsubscribe() {
              watcher.active = false;
              watchers.delete(watcher);
              mine.delete(watcher);
            },
          };
        },
      };
      owned.set(registry, mine);
      return registry;
    },
    release(registry) {
      for (const watcher of owned.get(registry) ?? []) {
        watcher.active = false;
        watchers.delete(watcher);
      }
    },
  };
}
