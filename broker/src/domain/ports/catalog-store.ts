/**
 * The second store of a broker: documents of the catalog, keys and remembered rules.
 * `describeCatalogStore` in `catalog/testing` is the suite that each implementation passes unchanged.
 */

export interface CatalogDocument {
  /** `/`-separated segments of `[A-Za-z0-9_.=-]`, at most 240 characters; the first names the kind of document. */
  readonly path: string;
  /** JSON text, at most {@link DOCUMENT_BYTES_MAX} bytes. */
  readonly value: string;
  /** Rises with every write to the document; what `put` compares. */
  readonly revision: number;
}

export const DOCUMENT_BYTES_MAX = 917_504;

export type PutOutcome =
  | { readonly kind: "stored"; readonly revision: number }
  | { readonly kind: "conflict"; readonly current: CatalogDocument | undefined };

export interface CatalogStore {
  /** From memory: what this broker knows now, at most moments old. For the path of a call. */
  peek(path: string): CatalogDocument | undefined;
  /** Documents below `prefix` (ending in `/`) from memory, sorted by path. */
  peekAll(prefix: string): CatalogDocument[];
  /** From the store itself; also refreshes what `peek` sees. */
  read(path: string): Promise<CatalogDocument | undefined>;
  /** Writes when the document's revision is `expected` (0: it does not exist). Durable when it resolves; own `peek` sees it at once. */
  put(path: string, value: string, expected: number): Promise<PutOutcome>;
  /** Deletes it at whatever revision; no-op when absent. */
  delete(path: string): Promise<void>;
  /** Told of each change, own and foreign, after `peek` shows it. `document` is undefined after a deletion. */
  watch(listener: (path: string, document: CatalogDocument | undefined) => void): { unsubscribe(): void };
  /** Rejects with {@link CatalogStoreError} `unreachable` when the store does not answer. */
  check(): Promise<void>;
  close(): Promise<void>;
}

export type CatalogStoreErrorCode = "closed" | "unreachable" | "too_large" | "path_invalid";

export class CatalogStoreError extends Error {
  override readonly name = "CatalogStoreError";
  constructor(
    readonly code: CatalogStoreErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
