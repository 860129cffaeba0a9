import type { CatalogDocument } from "../../domain/ports/catalog-store.js";
import type { Log } from "../../domain/ports/log.js";

type Listener = (path: string, document: CatalogDocument | undefined) => void;

/** Those who watch a store. One that throws is logged and does not keep the others from hearing. */
export interface ChangeListeners {
  add(listener: Listener): { unsubscribe(): void };
  tell(path: string, document: CatalogDocument | undefined): void;
  clear(): void;
}

export function createChangeListeners(log: Log | undefined): ChangeListeners {
  const listeners = new Set<{ readonly listener: Listener }>();
  return {
    add(listener) {
      const entry = { listener };
      listeners.add(entry);
      return { unsubscribe: () => listeners.delete(entry) };
    },
    tell(path, document) {
      for (const { listener } of [...listeners]) {
        try {
          listener(path, document);
        } catch (error) {
          log?.error("catalog_listener_failed", { path, error: error instanceof Error ? error.message : "unknown" });
        }
      }
    },
    clear: () => listeners.clear(),
  };
}
