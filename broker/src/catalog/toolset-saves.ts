/**
 * Saving toolsets (features.md C4 to C6).
 *
 * Invariants:
 * 1. A version's number is taken by a create-only write of its document: of two saves from the same base one wins,
 *    the other is answered `version_conflict` and has overwritten nothing.
 * 2. The contents that a version names are stored before it.
 * 3. An idempotency key is looked up before any other check (B5). It is part of the version's document, so key and version
 *    are one write; before a save decides, it has read every version that was stored, and a key that comes in between takes
 *    the number that this save wants, so it is seen on the next round.
 */
import { BrokerError } from "../domain/broker-error.js";
import { canonicalJson } from "../domain/canonical-json.js";
import { ID_PATTERN, IDEMPOTENCY_KEY_CHARACTERS_MAX, SCHEMA_DEPTH_MAX, TOOLS_PER_TOOLSET_MAX } from "../domain/limits.js";
import type { CatalogStore } from "../domain/ports/catalog-store.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import { decodeSave, encodeDocument, paths, sha256, TOOLSET_VERSION_MAX, type VersionDocument, withStore } from "./document-codec.js";
import { createKeyedTurns } from "./keyed-turns.js";
import type { SchemaCompiler } from "./schema/compile-schema.js";
import { findShapeFault } from "./schema/json-shape.js";
import { renderActual } from "./schema/render-actual.js";
import { checkTools, type PreparedTool } from "./tool-check.js";
import type { ToolContents } from "./tool-contents.js";
import type { KnownToolset, KnownVersion, ToolsetIndex } from "./toolset-index.js";

export interface SaveBody {
  readonly base_version: number;
  readonly tools: readonly unknown[];
  readonly idempotency_key?: string | undefined;
}

export interface Saved {
  /** The toolset is new: this is its first version, made by this very save. */
  readonly created: boolean;
  readonly version: KnownVersion;
}

export interface ToolsetSaves {
  put(application: string, id: string, body: SaveBody): Promise<Saved>;
  merge(application: string, binding: string, tools: readonly unknown[]): Promise<Saved>;
}

export interface ToolsetSavesOptions {
  readonly store: CatalogStore;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
  readonly compiler: SchemaCompiler;
  readonly index: ToolsetIndex;
  readonly contents: ToolContents;
  readonly bindingExists: (application: string, binding: string) => Promise<boolean>;
}

/** A tool nests its schemas two levels down: /tools/0/input_schema. */
const TOOLS_DEPTH_MAX = SCHEMA_DEPTH_MAX + 3;

interface Key {
  readonly text: string;
  readonly keyHash: string;
  readonly requestHash: string;
}

export function createToolsetSaves(options: ToolsetSavesOptions): ToolsetSaves {
  const { store, clock, log, compiler, index, contents } = options;
  const turns = createKeyedTurns();

  async function findByKey(
    application: string,
    id: string,
    toolset: KnownToolset | undefined,
    key: Key,
  ): Promise<KnownVersion | undefined> {
    const made = toolset?.versions.findLast((version) => version.document.idempotency?.key_hash === key.keyHash);
    let requestHash = made?.document.idempotency?.request_hash;
    let version = made;
    if (made === undefined) {
      const document = await withStore(() => store.read(paths.save(application, id, key.text)));
      const save = document === undefined ? undefined : decodeSave(document.value);
      if (save === undefined) return undefined;
      requestHash = save.request_hash;
      version = toolset?.versions.find((candidate) => candidate.number === save.version);
    }
    if (requestHash !== key.requestHash) {
      throw new BrokerError(
        "idempotency_conflict",
        `The idempotency key was used for another save of toolset ${id}. Use a new key for new content.`,
      );
    }
    if (version === undefined) {
      throw new BrokerError("internal", `The version of toolset ${id} that this save came to cannot be read by this broker.`);
    }
    return version;
  }

  async function checkBindings(application: string, tools: readonly PreparedTool[]): Promise<void> {
    const unknown = new Set<string>();
    for (const binding of new Set(tools.map((tool) => tool.binding))) {
      if (!(await options.bindingExists(application, binding))) unknown.add(binding);
    }
    if (unknown.size === 0) return;
    throw new BrokerError(
      "binding_unknown",
      `There is no binding ${[...unknown].join(", ")}. Register it first with PUT /v1/bindings/{id}.`,
      {
        details: tools.flatMap((tool, position) =>
          unknown.has(tool.binding)
            ? [{ path: `/tools/${position}/binding`, expected: "the id of a registered binding", actual: renderActual(tool.binding) }]
            : [],
        ),
      },
    );
  }

  /** One try at the next number; undefined when another save took it. */
  async function takeNumber(
    application: string,
    id: string,
    number: number,
    tools: readonly { readonly name: string; readonly content: string }[],
    contentHash: string,
    key: Key | undefined,
  ): Promise<KnownVersion | undefined> {
    const document: VersionDocument = {
      created_at: new Date(clock.now()).toISOString(),
      content_hash: contentHash,
      tools: tools.map(({ name, content }) => ({ name, content })),
      idempotency: key === undefined ? null : { key_hash: key.keyHash, request_hash: key.requestHash },
    };
    const outcome = await withStore(() => store.put(paths.version(application, id, number), encodeDocument(document), 0));
    if (outcome.kind === "conflict") return undefined;
    log.info("toolset_saved", { application, toolset: id, version: number, tools: tools.length });
    return index.get(application, id)?.versions.find((version) => version.number === number);
  }

  async function save(application: string, id: string, body: SaveBody, key: Key | undefined): Promise<Saved> {
    let prepared: readonly PreparedTool[] | undefined;
    for (let seen = -1; ; ) {
      const toolset = await index.refresh(application, id);
      const repeated = key === undefined ? undefined : await findByKey(application, id, toolset, key);
      if (repeated !== undefined) return { created: false, version: repeated };
      if (prepared === undefined) {
        prepared = await checkTools(compiler, body.tools);
        await checkBindings(application, prepared);
      }
      const contentHash = hashOf(prepared);
      const current = toolset?.versions.at(-1);
      if (current !== undefined && current.document.content_hash === contentHash) {
        if (key !== undefined) {
          const record = encodeDocument({ request_hash: key.requestHash, version: current.number });
          const outcome = await withStore(() => store.put(paths.save(application, id, key.text), record, 0));
          if (outcome.kind === "conflict") continue;
        }
        return { created: false, version: current };
      }
      const number = current?.number ?? 0;
      if (body.base_version !== number) {
        throw new BrokerError(
          "version_conflict",
          `Toolset ${id} is at version ${number}, and the save starts from version ${body.base_version}. Read the current version, apply the change to it and save again.`,
          { extra: { current_version: number } },
        );
      }
      if (number <= seen || number >= TOOLSET_VERSION_MAX) {
        throw new BrokerError(
          "internal",
          `Version ${number + 1} of toolset ${id} cannot be made: its document exists and cannot be read by this broker.`,
        );
      }
      seen = number;
      await contents.store(application, prepared);
      const version = await takeNumber(application, id, number + 1, prepared, contentHash, key);
      if (version !== undefined) return { created: version.number === 1, version };
    }
  }

  async function merge(application: string, binding: string, tools: readonly unknown[]): Promise<Saved> {
    const prepared = await checkTools(compiler, tools, binding);
    await checkBindings(application, prepared);
    const changes = new Map(prepared.map((tool) => [tool.name, tool]));
    for (let seen = -1; ; ) {
      const current = (await index.refresh(application, binding))?.versions.at(-1);
      const kept = (current?.document.tools ?? []).map((tool) => changes.get(tool.name) ?? tool);
      const added = prepared.filter((tool) => current?.contents.has(tool.name) !== true);
      const merged = [...kept, ...added];
      if (merged.length > TOOLS_PER_TOOLSET_MAX) {
        throw new BrokerError(
          "tool_invalid",
          `Toolset ${binding} would have ${merged.length} tools; at most ${TOOLS_PER_TOOLSET_MAX} fit. Remove tools that no runner has any more.`,
          { details: [{ path: "/tools", expected: `at most ${TOOLS_PER_TOOLSET_MAX} tools`, actual: `${merged.length} tools` }] },
        );
      }
      const contentHash = hashOf(merged);
      if (current !== undefined && current.document.content_hash === contentHash) return { created: false, version: current };
      const number = current?.number ?? 0;
      if (number <= seen) throw new BrokerError("internal", `Version ${number + 1} of toolset ${binding} cannot be made by this broker.`);
      seen = number;
      await contents.store(application, prepared);
      const version = await takeNumber(application, binding, number + 1, merged, contentHash, undefined);
      if (version !== undefined) return { created: version.number === 1, version };
    }
  }

  return {
    async put(application, id, body) {
      checkBody(id, body);
      return turns.run(`${application}/${id}`, () => save(application, id, body, keyOf(body)));
    },
    async merge(application, binding, tools) {
      checkBody(binding, { base_version: 0, tools });
      return turns.run(`${application}/${binding}`, () => merge(application, binding, tools));
    },
  };
}

/** Order counts: it is what people and models are shown. */
function hashOf(tools: readonly { readonly content: string }[]): string {
  return sha256(tools.map((tool) => tool.content).join("\n"));
}

function keyOf(body: SaveBody): Key | undefined {
  const { idempotency_key: text } = body;
  return text === undefined ? undefined : { text, keyHash: sha256(text), requestHash: sha256(canonicalJson(body.tools)) };
}

/** What can be told without the store, and must hold before the body may be hashed. */
function checkBody(id: string, body: SaveBody): void {
  if (!ID_PATTERN.test(id))
    throw new BrokerError("id_invalid", `Toolset id ${JSON.stringify(id.slice(0, 80))} is not [a-z][a-z0-9_-]{0,63}.`);
  if (!Number.isInteger(body.base_version) || body.base_version < 0) {
    throw bodyFault("/base_version", "an integer of 0 or more", renderActual(body.base_version));
  }
  if (!Array.isArray(body.tools)) throw bodyFault("/tools", "an array of tools", renderActual(body.tools));
  const key: unknown = body.idempotency_key;
  if (key !== undefined && (typeof key !== "string" || key.length === 0 || key.length > IDEMPOTENCY_KEY_CHARACTERS_MAX)) {
    throw bodyFault("/idempotency_key", `a string of 1 to ${IDEMPOTENCY_KEY_CHARACTERS_MAX} characters`, renderActual(key));
  }
  const shape = findShapeFault(body.tools, TOOLS_DEPTH_MAX);
  if (shape === undefined) return;
  if (shape.kind === "too_deep") {
    throw new BrokerError(
      "schema_too_large",
      `A tool nests deeper than ${SCHEMA_DEPTH_MAX} levels, at /tools${shape.path.slice(0, 200)}.`,
      {
        details: [
          {
            path: `/tools${shape.path}`,
            expected: `at most ${SCHEMA_DEPTH_MAX} levels of nesting`,
            actual: `more than ${SCHEMA_DEPTH_MAX} levels`,
          },
        ],
      },
    );
  }
  throw new BrokerError("tool_invalid", `A tool holds a value that JSON cannot, at /tools${shape.path.slice(0, 200)}.`, {
    details: [
      { path: `/tools${shape.path}`, expected: "a value that JSON can hold", actual: "something else, such as an infinite number" },
    ],
  });
}

function bodyFault(path: string, expected: string, actual: string): BrokerError {
  return new BrokerError("body_invalid", `${path} must be ${expected}, but is ${actual}.`, { details: [{ path, expected, actual }] });
}
