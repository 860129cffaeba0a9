/**
 * The catalog: bindings, toolsets and their versions, and the tools that calls resolve to.
 *
 * Invariants:
 * 1. Applications are walls: every document lies below its application, and what another one has is unknown here (A2).
 * 2. A call resolves from memory; the store is asked only for what memory does not have, since another broker may just have saved it.
 * 3. A resolved tool changes with the limits of its binding only: versions are immutable, and the kind of a binding is fixed when it is registered.
 */
import { BrokerError } from "../domain/broker-error.js";
import { ID_PATTERN } from "../domain/limits.js";
import type { BindingView, CallLimits, CatalogOperations, ResolvedTool, ToolsetView, ToolView } from "../domain/ports/catalog.js";
import type { CatalogStore } from "../domain/ports/catalog-store.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import { createBindings } from "./bindings.js";
import { createLruCache } from "./lru-cache.js";
import { cutPage, newestFirst } from "./pages.js";
import { createSchemaCompiler } from "./schema/compile-schema.js";
import { createToolChecks } from "./tool-checks.js";
import { createToolContents } from "./tool-contents.js";
import { createToolsetIndex, type KnownToolset, type KnownVersion } from "./toolset-index.js";
import { createToolsetSaves, type Saved } from "./toolset-saves.js";

export interface CatalogOptions {
  readonly store: CatalogStore;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly log: Log;
}

export interface Catalog extends CatalogOperations {
  /** Stops following the store, which stays open. */
  close(): void;
}

/** Tools that are kept ready for calls, with their compiled schemas. */
const RESOLVED_TOOLS_MAX = 2_048;

export function createCatalog(options: CatalogOptions): Catalog {
  const { store, clock, log } = options;
  const bindings = createBindings({ store, clock, log });
  const index = createToolsetIndex(store, log);
  const contents = createToolContents(store);
  const compiler = createSchemaCompiler();
  const checks = createToolChecks(compiler);
  const saves = createToolsetSaves({
    store,
    clock,
    log,
    compiler,
    index,
    contents,
    bindingExists: async (application, id) => (await bindings.find(application, id)) !== undefined,
  });
  const resolved = createLruCache<ResolvedTool>(RESOLVED_TOOLS_MAX);
  /** Changes of bindings so far: what was resolved before one names limits that may be others now. */
  let changes = 0;
  const watching = store.watch((path) => {
    if (path.split("/")[1] !== "bindings") return;
    changes += 1;
    resolved.clear();
  });

  async function readView(application: string, id: string, version: KnownVersion): Promise<ToolsetView> {
    const tools = await Promise.all(version.document.tools.map((tool) => contents.read(application, tool.content)));
    return toView(id, version, tools);
  }

  /** From memory; undefined while a content is still on its way to this broker. */
  function peekView(application: string, id: string, version: KnownVersion): ToolsetView | undefined {
    const tools: ToolView[] = [];
    for (const { content } of version.document.tools) {
      const tool = contents.peek(application, content);
      if (tool === undefined) return undefined;
      tools.push(tool);
    }
    return toView(id, version, tools);
  }

  async function findToolset(application: string, id: string): Promise<KnownToolset> {
    const toolset = index.get(application, id) ?? (ID_PATTERN.test(id) ? await index.refresh(application, id) : undefined);
    if (toolset === undefined) throw new BrokerError("toolset_unknown", "There is no such toolset, or it is not yours. Check its id.");
    return toolset;
  }

  async function findVersion(application: string, id: string, number: number | undefined): Promise<KnownVersion> {
    const toolset = await findToolset(application, id);
    const pick = (from: KnownToolset): KnownVersion | undefined =>
      number === undefined ? from.versions.at(-1) : from.versions.find((version) => version.number === number);
    const newest = toolset.versions.at(-1)?.number ?? 0;
    const version =
      pick(toolset) ?? (number !== undefined && number > newest ? pick((await index.refresh(application, id)) ?? toolset) : undefined);
    if (version === undefined)
      throw new BrokerError("toolset_version_unknown", `Toolset ${id} has no version ${number}. List its versions.`);
    return version;
  }

  async function toSaved(application: string, id: string, saved: Saved): Promise<{ created: boolean; toolset: ToolsetView }> {
    return { created: saved.created, toolset: await readView(application, id, saved.version) };
  }

  return {
    putBinding: (application, id, body) => bindings.put(application, id, body),
    async getBinding(application, id): Promise<BindingView> {
      const binding = await bindings.find(application, id);
      if (binding === undefined) throw new BrokerError("not_found", "There is no such binding, or it is not yours. Check its id.");
      return binding;
    },
    listBindings: (application, page) => bindings.list(application, page),

    async putToolset(application, id, body) {
      return toSaved(application, id, await saves.put(application, id, body));
    },
    async getToolset(application, id, version) {
      return readView(application, id, await findVersion(application, id, version));
    },
    listToolsets(application, page) {
      const views = index.all(application).flatMap((toolset) => {
        const place = placeOf(toolset.versions[0]?.document.created_at ?? "", toolset.id);
        const newest = toolset.versions.at(-1);
        return newest === undefined ? [] : [{ place, id: toolset.id, version: newest }];
      });
      const items = newestFirst(views, (view) => view.place);
      const { data, next_page } = cutPage(
        { listing: `toolsets ${application}`, items, place: (item) => item.place, before: (left, right) => left > right },
        page,
      );
      return { data: data.flatMap(({ id, version }) => peekView(application, id, version) ?? []), next_page };
    },
    listToolsetVersions(application, id, page) {
      const toolset = index.get(application, id);
      if (toolset === undefined) throw new BrokerError("toolset_unknown", "There is no such toolset, or it is not yours. Check its id.");
      const { data, next_page } = cutPage(
        {
          listing: `versions ${application} ${id}`,
          items: [...toolset.versions].reverse(),
          place: (version) => String(version.number),
          before: (left, right) => Number(left) > Number(right),
        },
        page,
      );
      return { data: data.flatMap((version) => peekView(application, id, version) ?? []), next_page };
    },

    async resolveTool(application, id, name, number) {
      let version: KnownVersion | undefined = number === undefined ? index.get(application, id)?.versions.at(-1) : undefined;
      version ??= await findVersion(application, id, number);
      let content = version.contents.get(name);
      if (content === undefined && number === undefined) {
        version = (await index.refresh(application, id))?.versions.at(-1) ?? version;
        content = version.contents.get(name);
      }
      if (content === undefined) {
        throw new BrokerError(
          "tool_unknown",
          `Version ${version.number} of toolset ${id} has no tool ${JSON.stringify(name.slice(0, 64))}. List its tools.`,
        );
      }
      const key = `${application}/${id}/${version.number}/${name}`;
      const known = resolved.get(key);
      if (known !== undefined) return known;

      const changesBefore = changes;
      const tool = await contents.read(application, content);
      const binding = await bindings.find(application, tool.binding);
      if (binding === undefined)
        throw new BrokerError("internal", `Binding ${tool.binding} of tool ${name} is gone from the catalog. Restore it from the backup.`);
      const { checkArguments, checkResult } = checks.of(content, tool);
      const fresh: ResolvedTool = {
        toolset: id,
        toolsetVersion: version.number,
        tool,
        bindingKind: binding.kind,
        limits: limitsFor(binding, tool),
        checkArguments,
        checkResult,
      };
      if (changes === changesBefore) resolved.set(key, fresh);
      return fresh;
    },
    async mergeTools(application, binding, tools) {
      return (await toSaved(application, binding, await saves.merge(application, binding, tools))).toolset;
    },
    close() {
      watching.unsubscribe();
      index.close();
    },
  };
}

/** Newest first by time, then by id. */
function placeOf(createdAt: string, id: string): string {
  return `${createdAt} ${id}`;
}

function toView(id: string, version: KnownVersion, tools: readonly ToolView[]): ToolsetView {
  return { id, version: version.number, content_hash: version.document.content_hash, created_at: version.document.created_at, tools };
}

function limitsFor(binding: BindingView, tool: ToolView): CallLimits | undefined {
  const { max_concurrency: concurrency, max_queue: queue } = tool;
  const own = concurrency === undefined && queue === undefined ? null : { concurrency, queue };
  return own === null && binding.limits === undefined ? undefined : { binding: binding.limits ?? null, tool: own };
}
