/**
 * Documents in memory as a tree of path segments: a look-up costs the depth of the path,
 * a listing the size of what it lists, however much else there is.
 */
import type { CatalogDocument } from "../../domain/ports/catalog-store.js";

interface Node {
  document: CatalogDocument | undefined;
  readonly children: Map<string, Node>;
}

export interface DocumentTree {
  get(path: string): CatalogDocument | undefined;
  set(document: CatalogDocument): void;
  remove(path: string): void;
  /** Documents below `prefix` (ending in `/`), sorted by path. */
  below(prefix: string): CatalogDocument[];
  /** All documents, in no order. */
  all(): CatalogDocument[];
}

export function createDocumentTree(): DocumentTree {
  const root: Node = { document: undefined, children: new Map() };

  function find(segments: readonly string[]): Node | undefined {
    let node: Node | undefined = root;
    for (const segment of segments) {
      node = node.children.get(segment);
      if (node === undefined) return undefined;
    }
    return node;
  }

  function collect(node: Node, into: CatalogDocument[]): void {
    for (const child of node.children.values()) {
      if (child.document !== undefined) into.push(child.document);
      collect(child, into);
    }
  }

  return {
    get: (path) => find(path.split("/"))?.document,
    set(document) {
      let node = root;
      for (const segment of document.path.split("/")) {
        let next = node.children.get(segment);
        if (next === undefined) {
          next = { document: undefined, children: new Map() };
          node.children.set(segment, next);
        }
        node = next;
      }
      node.document = document;
    },
    remove(path) {
      const segments = path.split("/");
      const node = find(segments);
      if (node?.document === undefined) return;
      node.document = undefined;
      // Empty branches go, so that a store that creates and deletes does not grow.
      for (let length = segments.length; length > 0; length -= 1) {
        const here = find(segments.slice(0, length));
        if (here === undefined || here.document !== undefined || here.children.size > 0) return;
        find(segments.slice(0, length - 1))?.children.delete(segments[length - 1] ?? "");
      }
    },
    below(prefix) {
      const node = find(prefix.slice(0, -1).split("/"));
      const found: CatalogDocument[] = [];
      if (node !== undefined) collect(node, found);
      return found.sort((left, right) => (left.path < right.path ? -1 : left.path > right.path ? 1 : 0));
    },
    all() {
      const found: CatalogDocument[] = [];
      collect(root, found);
      return found;
    },
  };
}
