/**
 * What this broker knows about the toolsets of all applications, kept by the store's watch.
 *
 * Invariants:
 * 1. A version that was seen once stays: versions never change and are never deleted (C4).
 * 2. Versions are without gaps, since number n + 1 is only ever written by someone who knew n; `refresh` reads on from the
 *    newest that is known until there is none, and so sees everything that was stored before it was asked.
 */

import type { CatalogDocument, CatalogStore } from "../domain/ports/catalog-store.js";
import type { Log } from "../domain/ports/log.js";
import { decodeVersion, paths, type VersionDocument, withStore } from "./document-codec.js";

export interface KnownVersion {
  readonly number: number;
  readonly document: VersionDocument;
  /** Content hash by the tool's name. */
  readonly contents: ReadonlyMap<string, string>;
}

export interface KnownToolset {
  readonly id: string;
  /** By number, oldest first. */
  readonly versions: readonly KnownVersion[];
}

export interface ToolsetIndex {
  get(application: string, id: string): KnownToolset | undefined;
  all(application: string): KnownToolset[];
  /** Reads what the store has beyond what is known. */
  refresh(application: string, id: string): Promise<KnownToolset | undefined>;
  close(): void;
}

interface MutableToolset {
  readonly id: string;
  readonly versions: KnownVersion[];
}

const VERSION_PATH = /^([^/]+)\/toolsets\/([^/]+)\/versions\/(\d{8})$/;

export function createToolsetIndex(store: CatalogStore, log: Log): ToolsetIndex {
  /** Applications are loaded on their first use; the watch keeps those that are. */
  const applications = new Map<string, Map<string, MutableToolset>>();

  function learn(toolsets: Map<string, MutableToolset>, path: string, text: string): void {
    const match = VERSION_PATH.exec(path);
    const id = match?.[2];
    if (match === null || id === undefined) return;
    const number = Number(match[3]);
    const known = toolsets.get(id);
    const newest = known?.versions.at(-1)?.number ?? 0;
    if (number <= newest && known?.versions.some((version) => version.number === number)) return;
    const document = decodeVersion(text);
    if (document === undefined) {
      log.error("catalog_document_unreadable", { path });
      return;
    }
    const toolset = known ?? { id, versions: [] };
    toolset.versions.push({ number, document, contents: new Map(document.tools.map((tool) => [tool.name, tool.content])) });
    if (number < newest) toolset.versions.sort((left, right) => left.number - right.number);
    toolsets.set(id, toolset);
  }

  function load(application: string): Map<string, MutableToolset> {
    let toolsets = applications.get(application);
    if (toolsets === undefined) {
      toolsets = new Map();
      applications.set(application, toolsets);
      for (const document of store.peekAll(paths.toolsets(application))) learn(toolsets, document.path, document.value);
    }
    return toolsets;
  }

  const subscription = store.watch((path: string, document: CatalogDocument | undefined) => {
    const toolsets = applications.get(path.slice(0, path.indexOf("/")));
    if (toolsets !== undefined && document !== undefined) learn(toolsets, path, document.value);
  });

  return {
    get: (application, id) => load(application).get(id),
    all: (application) => [...load(application).values()],
    async refresh(application, id) {
      const toolsets = load(application);
      const newest = (): number => toolsets.get(id)?.versions.at(-1)?.number ?? 0;
      for (;;) {
        const next = newest() + 1;
        const path = paths.version(application, id, next);
        const document = await withStore(() => store.read(path));
        if (document !== undefined) learn(toolsets, path, document.value);
        // Nothing there, or nothing that this broker can read.
        if (newest() < next) return toolsets.get(id);
      }
    },
    close: () => subscription.unsubscribe(),
  };
}
