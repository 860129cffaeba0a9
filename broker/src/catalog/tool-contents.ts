/** The stored texts of tools, each under the hash of its content, and their parsed forms for as long as they are in use. */
import { BrokerError } from "../domain/broker-error.js";
import type { ToolView } from "../domain/ports/catalog.js";
import type { CatalogStore } from "../domain/ports/catalog-store.js";
import { paths, withStore } from "./document-codec.js";
import { createLruCache } from "./lru-cache.js";
import type { PreparedTool } from "./tool-check.js";

/** Parsed tools kept in memory. */
const PARSED_TOOLS_MAX = 4_096;
/** Writes of one save that are under way at once. */
const WRITES_AT_ONCE = 16;

export interface ToolContents {
  /** Stores what is not stored yet; durable when it resolves. */
  store(application: string, tools: readonly PreparedTool[]): Promise<void>;
  /** From memory; undefined when this broker does not know it yet. */
  peek(application: string, hash: string): ToolView | undefined;
  /** Rejects with `internal` when the store has lost it. */
  read(application: string, hash: string): Promise<ToolView>;
}

export function createToolContents(store: CatalogStore): ToolContents {
  const parsed = createLruCache<ToolView>(PARSED_TOOLS_MAX);

  function parse(path: string, text: string): ToolView {
    const known = parsed.get(path);
    if (known !== undefined) return known;
    const tool = JSON.parse(text) as ToolView;
    parsed.set(path, tool);
    return tool;
  }

  function peek(application: string, hash: string): ToolView | undefined {
    const path = paths.content(application, hash);
    const known = parsed.get(path);
    if (known !== undefined) return known;
    const document = store.peek(path);
    return document === undefined ? undefined : parse(path, document.value);
  }

  return {
    peek,
    async store(application, tools) {
      const missing = new Map<string, string>();
      for (const tool of tools) {
        const path = paths.content(application, tool.content);
        if (store.peek(path) === undefined) missing.set(path, tool.text);
      }
      const queue = [...missing];
      const writer = async (): Promise<void> => {
        for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
          const [path, text] = next;
          // A conflict means that another save stored the same text.
          await withStore(() => store.put(path, text, 0));
        }
      };
      await Promise.all(Array.from({ length: Math.min(WRITES_AT_ONCE, queue.length) }, writer));
    },
    async read(application, hash) {
      const known = peek(application, hash);
      if (known !== undefined) return known;
      const path = paths.content(application, hash);
      const document = await withStore(() => store.read(path));
      if (document === undefined)
        throw new BrokerError("internal", `The catalog has lost a tool's content (${path}). Restore it from the backup.`);
      return parse(path, document.value);
    },
  };
}
