import { type CatalogDocument, type CatalogStore, CatalogStoreError, type PutOutcome } from "../../domain/ports/catalog-store.js";

/** A store that several brokers share; each sees foreign changes when `deliver` is called. */
export class SharedStore {
  readonly documents = new Map<string, CatalogDocument>();
  readonly #late: (() => void)[] = [];
  readonly #views: { tell(path: string, document: CatalogDocument | undefined): void }[] = [];
  reads = 0;
  away = false;
  #revision = 0;

  deliver(): void {
    for (const task of this.#late.splice(0)) task();
  }

  open(): CatalogStore {
    const known = new Map(this.documents);
    const listeners = new Set<(path: string, document: CatalogDocument | undefined) => void>();
    const view = {
      tell(path: string, document: CatalogDocument | undefined): void {
        if (known.get(path)?.revision === document?.revision) return;
        if (document === undefined) known.delete(path);
        else known.set(path, document);
        for (const listener of listeners) listener(path, document);
      },
    };
    this.#views.push(view);
    const change = (path: string, document: CatalogDocument | undefined): void => {
      if (document === undefined) this.documents.delete(path);
      else this.documents.set(path, document);
      view.tell(path, document);
      for (const other of this.#views) if (other !== view) this.#late.push(() => other.tell(path, document));
    };
    const check = (): void => {
      if (this.away) throw new CatalogStoreError("unreachable", "away");
    };
    return {
      peek: (path) => known.get(path),
      peekAll: (prefix) => [...known.values()].filter((document) => document.path.startsWith(prefix)),
      read: async (path) => {
        this.reads += 1;
        check();
        const document = this.documents.get(path);
        if (document !== undefined) view.tell(path, document);
        return document;
      },
      put: async (path, value, expected): Promise<PutOutcome> => {
        check();
        const current = this.documents.get(path);
        if ((current?.revision ?? 0) !== expected) return { kind: "conflict", current };
        this.#revision += 1;
        change(path, { path, value, revision: this.#revision });
        return { kind: "stored", revision: this.#revision };
      },
      delete: async (path) => change(path, undefined),
      watch(listener) {
        listeners.add(listener);
        return { unsubscribe: () => listeners.delete(listener) };
      },
      check: async () => check(),
      close: async () => undefined,
    };
  }
}
