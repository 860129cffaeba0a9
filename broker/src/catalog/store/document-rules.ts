/** The rules for paths and sizes of documents, the same in every store. */
import { CatalogStoreError, DOCUMENT_BYTES_MAX } from "../../domain/ports/catalog-store.js";

const PATH = /^[A-Za-z0-9_.=-]+(?:\/[A-Za-z0-9_.=-]+)*$/;
const PREFIX = /^(?:[A-Za-z0-9_.=-]+\/)+$/;

/** Longest path of a document, in characters. */
export const PATH_CHARACTERS_MAX = 240;

/** Throws {@link CatalogStoreError} `path_invalid`. */
export function checkPath(path: string): void {
  if (path.length > PATH_CHARACTERS_MAX || !PATH.test(path)) {
    throw new CatalogStoreError(
      "path_invalid",
      `Path ${JSON.stringify(path.slice(0, 80))} is not /-separated segments of [A-Za-z0-9_.=-] with at most ${PATH_CHARACTERS_MAX} characters.`,
    );
  }
}

/** Throws {@link CatalogStoreError} `path_invalid`. */
export function checkPrefix(prefix: string): void {
  if (prefix.length > PATH_CHARACTERS_MAX || !PREFIX.test(prefix)) {
    throw new CatalogStoreError("path_invalid", `Prefix ${JSON.stringify(prefix.slice(0, 80))} is not segments that each end in /.`);
  }
}

/** Throws {@link CatalogStoreError} `too_large`. */
export function checkValue(path: string, value: string): void {
  const bytes = Buffer.byteLength(value);
  if (bytes > DOCUMENT_BYTES_MAX) {
    throw new CatalogStoreError("too_large", `Document ${path} has ${bytes} bytes; at most ${DOCUMENT_BYTES_MAX} fit.`);
  }
}
