/** A catalog store that lives as long as its process: for tests, and for brokers that keep nothing. */
import { type CatalogStore, CatalogStoreError } from "../../domain/ports/catalog-store.js";
import type { Log } from "../../domain/ports/log.js";
import { createChangeListeners } from "./change-listeners.js";
import { checkPath, checkPrefix, checkValue } from "./document-rules.js";
import { createDocumentTree } from "./document-tree.js";

/** Revisions rise over the whole store, so that a document that was deleted and made again never repeats one. */
export function createMemoryCatalogStore(options: { readonly log?: Log | undefined } = {}): CatalogStore {
  const tree = createDocumentTree();
  const listeners = createChangeListeners(options.log);
  let revision = 0;
  let closed = false;

  const checkOpen = (): void => {
    if (closed) throw new CatalogStoreError("closed", "The catalog store is closed.");
  };

  return {
    peek: (path) => tree.get(path),
    peekAll(prefix) {
      checkPrefix(prefix);
      return tree.below(prefix);
    },
    async read(path) {
      checkPath(path);
      checkOpen();
      return tree.get(path);
    },
    async put(path, value, expected) {
      checkPath(path);
      checkValue(path, value);
      checkOpen();
      const current = tree.get(path);
      if ((current?.revision ?? 0) !== expected) return { kind: "conflict", current };
      revision += 1;
      const document = { path, value, revision };
      tree.set(document);
      listeners.tell(path, document);
      return { kind: "stored", revision };
    },
    async delete(path) {
      checkPath(path);
      checkOpen();
      if (tree.get(path) === undefined) return;
      revision += 1;
      tree.remove(path);
      listeners.tell(path, undefined);
    },
    watch: (listener) => listeners.add(listener),
    async check() {
      checkOpen();
    },
    async close() {
      closed = true;
      listeners.clear();
    },
  };
}
