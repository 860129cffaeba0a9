import { beforeEach, describe, expect, it } from "vitest";
import { TOOLS_PER_TOOLSET_MAX } from "../domain/limits.js";
import { type CatalogStore, CatalogStoreError } from "../domain/ports/catalog-store.js";
import type { Catalog } from "./catalog.js";
import { createMemoryCatalogStore } from "./store/memory-catalog-store.js";
import { createTestCatalog, refusal, tool } from "./testing/catalog-kit.js";

describe("catalog", () => {
  let store: CatalogStore;
  let catalog: Catalog;
  beforeEach(async () => {
    store = createMemoryCatalogStore();
    catalog = await createTestCatalog(store);
  });

  const put = (base_version: number, tools: readonly unknown[], idempotency_key?: string) =>
    catalog.putToolset("default", "orders", { base_version, tools, idempotency_key });

  describe("bindings", () => {
    it("C1: are registered once, may be renamed, and keep kind and time", async () => {
      const first = await catalog.putBinding("default", "page", { name: "Page", kind: "browser" });
      expect(first).toMatchObject({ created: true, binding: { id: "page", name: "Page", kind: "browser" } });
      expect(await catalog.putBinding("default", "page", { name: "Page", kind: "browser" })).toEqual({
        created: false,
        binding: first.binding,
      });
      const renamed = await catalog.putBinding("default", "page", { name: "Shop page", kind: "browser" });
      expect(renamed).toEqual({ created: false, binding: { ...first.binding, name: "Shop page" } });
      expect(await catalog.getBinding("default", "page")).toEqual(renamed.binding);
      expect((await refusal(() => catalog.putBinding("default", "page", { name: "Page", kind: "backend" }))).code).toBe(
        "binding_kind_conflict",
      );
    });

    it("A2: are not found in another application, with the same words as unknown ones", async () => {
      const foreign = await refusal(() => catalog.getBinding("other", "shop"));
      const unknown = await refusal(() => catalog.getBinding("default", "nothing"));
      const malformed = await refusal(() => catalog.getBinding("default", "../default/bindings/shop"));
      expect([foreign.code, foreign.message]).toEqual([unknown.code, unknown.message]);
      expect(malformed.message).toBe(unknown.message);
      expect(catalog.listBindings("other", {}).data).toEqual([]);
    });

    it.each(["", "A", "1a", "a.b", "a/b", "x".repeat(65), "__proto__"])("refuses the id %j", async (id) => {
      expect((await refusal(() => catalog.putBinding("default", id, { name: "n", kind: "backend" }))).code).toBe("id_invalid");
    });

    it("names every fault of the body", async () => {
      const error = await refusal(() => catalog.putBinding("default", "b", { name: "", kind: "phone" as never }));
      expect(error.code).toBe("body_invalid");
      expect(error.details.map((detail) => detail.path)).toEqual(["/name", "/kind"]);
    });

    it("make one binding when twelve register it at once", async () => {
      const outcomes = await Promise.all(
        Array.from({ length: 12 }, () => catalog.putBinding("default", "raced", { name: "n", kind: "desktop" })),
      );
      expect(outcomes.filter((outcome) => outcome.created)).toHaveLength(1);
      expect(new Set(outcomes.map((outcome) => outcome.binding.created_at)).size).toBe(1);
    });
  });

  describe("saving toolsets", () => {
    it("C3, C4: fills in what was left out and numbers versions upward", async () => {
      const first = await put(0, [tool("refund")]);
      expect(first.created).toBe(true);
      expect(first.toolset).toMatchObject({ id: "orders", version: 1 });
      expect(first.toolset.tools).toEqual([
        {
          name: "refund",
          description: "Does refund.",
          input_schema: { type: "object" },
          output_schema: null,
          binding: "shop",
          behaviour: "write",
          confirmation: "never",
          result_semantics: "completion",
          max_result_context_bytes: 16_384,
          version: "1",
          timeout_seconds: 300,
          idempotent: false,
          cancellable: false,
          scopes: [],
        },
      ]);
      const second = await put(1, [tool("refund"), tool("cancel")]);
      expect(second).toMatchObject({ created: false, toolset: { version: 2 } });
      expect(second.toolset.content_hash).not.toBe(first.toolset.content_hash);
      expect(await catalog.getToolset("default", "orders", 1)).toEqual(first.toolset);
      expect(await catalog.getToolset("default", "orders")).toEqual(second.toolset);
    });

    it("C4: makes no version for content that is the latest already, defaults written out or not, whatever its base", async () => {
      const first = await put(0, [tool("refund")]);
      for (const base of [0, 1, 7]) {
        expect(await put(base, [tool("refund", { timeout_seconds: 300, scopes: [], output_schema: null })])).toEqual({
          created: false,
          toolset: first.toolset,
        });
      }
      expect(catalog.listToolsetVersions("default", "orders", {}).data).toHaveLength(1);
    });

    it("C7: keeps schemas byte for byte, order, unknown keywords and odd names included", async () => {
      const text =
        '{"zeta":1,"type":"object","x-note":{"b":[],"a":null},"properties":{"__proto__":{"type":"string"},"b":{},"a":{"const":1e-7}},"$comment":"ü€😀\\u0000"}';
      const { toolset } = await put(0, [tool("refund", { input_schema: JSON.parse(text) as unknown })]);
      expect(JSON.stringify(toolset.tools[0]?.input_schema)).toBe(JSON.stringify(JSON.parse(text)));
      const reopened = await createTestCatalog(store);
      expect(JSON.stringify((await reopened.getToolset("default", "orders")).tools[0]?.input_schema)).toBe(
        JSON.stringify(JSON.parse(text)),
      );
      const [zeta, ...rest] = Object.entries(JSON.parse(text) as object);
      const reordered: unknown = Object.fromEntries([...rest, zeta ?? ["", 0]]);
      expect((await put(1, [tool("refund", { input_schema: reordered })])).toolset.version).toBe(2);
    });

    it("C5: refuses a save that starts from another version than the current, and says which that is", async () => {
      await put(0, [tool("a")]);
      await put(1, [tool("b")]);
      for (const base of [0, 1, 3]) {
        const error = await refusal(() => put(base, [tool("c")]));
        expect([error.code, error.extra.current_version]).toEqual(["version_conflict", 2]);
      }
      expect((await refusal(() => catalog.putToolset("default", "fresh", { base_version: 1, tools: [] }))).extra.current_version).toBe(0);
      expect((await catalog.getToolset("default", "orders")).version).toBe(2);
    });

    it("C5: has one winner for each number when two brokers save at once", async () => {
      const other = await createTestCatalog(store);
      for (let base = 0; base < 5; base += 1) {
        const outcomes = await Promise.allSettled(
          Array.from({ length: 12 }, (_, writer) =>
            (writer % 2 === 0 ? catalog : other).putToolset("default", "orders", {
              base_version: base,
              tools: [tool(`t${base}-${writer}`)],
            }),
          ),
        );
        expect(outcomes.filter((outcome) => outcome.status === "fulfilled")).toHaveLength(1);
        for (const outcome of outcomes) {
          if (outcome.status === "rejected")
            expect(outcome.reason).toMatchObject({ code: "version_conflict", extra: { current_version: base + 1 } });
        }
      }
      expect(catalog.listToolsetVersions("default", "orders", {}).data.map(({ version }) => version)).toEqual([5, 4, 3, 2, 1]);
    });

    it("C6: the same key and content return the same version, also after later saves, from any broker and base", async () => {
      const first = await put(0, [tool("a")], "key-1");
      await put(1, [tool("b")], "key-2");
      const other = await createTestCatalog(store);
      for (const base of [0, 2]) {
        const repeated = await other.putToolset("default", "orders", { base_version: base, tools: [tool("a")], idempotency_key: "key-1" });
        expect(repeated).toEqual({ created: false, toolset: first.toolset });
      }
      const reordered = [Object.fromEntries(Object.entries(tool("a")).reverse())];
      expect((await put(0, reordered, "key-1")).toolset.version).toBe(1);
      expect((await catalog.getToolset("default", "orders")).version).toBe(2);
    });

    it("C6: the same key with other content is refused, before any other check", async () => {
      await put(0, [tool("a")], "key-1");
      for (const tools of [[tool("b")], [], ["nonsense"], [tool("a", { timeout_seconds: 300 })]]) {
        expect((await refusal(() => put(1, tools, "key-1"))).code).toBe("idempotency_conflict");
      }
      expect((await catalog.getToolset("default", "orders")).version).toBe(1);
    });

    it("C6: a key stays with the version that it came to, also when the save made none", async () => {
      await put(0, [tool("a")]);
      expect((await put(1, [tool("a")], "same")).toolset.version).toBe(1);
      await put(1, [tool("b")]);
      expect((await put(1, [tool("a")], "same")).toolset.version).toBe(1);
      expect((await refusal(() => put(2, [tool("c")], "same"))).code).toBe("idempotency_conflict");
    });

    it("C6: a refused save uses up no key, and keys of different toolsets are apart", async () => {
      expect((await refusal(() => put(5, [tool("a")], "key"))).code).toBe("version_conflict");
      expect((await refusal(() => put(0, [tool("a", { binding: "nowhere" })], "key"))).code).toBe("binding_unknown");
      expect((await put(0, [tool("b")], "key")).toolset.version).toBe(1);
      expect(
        (await catalog.putToolset("default", "others", { base_version: 0, tools: [tool("c")], idempotency_key: "key" })).toolset.version,
      ).toBe(1);
    });

    it("C6: twelve saves with one key at two brokers make one version", async () => {
      const other = await createTestCatalog(store);
      const outcomes = await Promise.all(
        Array.from({ length: 12 }, (_, writer) =>
          (writer % 2 === 0 ? catalog : other).putToolset("default", "orders", {
            base_version: 0,
            tools: [tool("a")],
            idempotency_key: "k",
          }),
        ),
      );
      expect(outcomes.filter((outcome) => outcome.created)).toHaveLength(1);
      expect(new Set(outcomes.map((outcome) => outcome.toolset.version))).toEqual(new Set([1]));
    });

    it("C2: takes 64 tools and refuses 65", async () => {
      const tools = Array.from({ length: TOOLS_PER_TOOLSET_MAX + 1 }, (_, index) => tool(`t${index}`));
      expect((await put(0, tools.slice(0, -1))).toolset.tools).toHaveLength(TOOLS_PER_TOOLSET_MAX);
      const error = await refusal(() => put(1, tools));
      expect([error.code, error.details[0]?.actual]).toEqual(["tool_invalid", "65 tools"]);
    });

    it("refuses bindings that are not registered, each tool by its path", async () => {
      const error = await refusal(() => put(0, [tool("a"), tool("b", { binding: "nowhere" }), tool("c", { binding: "gone" })]));
      expect(error.code).toBe("binding_unknown");
      expect(error.details.map((detail) => detail.path)).toEqual(["/tools/1/binding", "/tools/2/binding"]);
    });

    it.each([
      [{ base_version: -1, tools: [] }, "/base_version"],
      [{ base_version: 1.5, tools: [] }, "/base_version"],
      [{ base_version: Number.NaN, tools: [] }, "/base_version"],
      [{ base_version: 0, tools: {} }, "/tools"],
      [{ base_version: 0, tools: [], idempotency_key: "" }, "/idempotency_key"],
      [{ base_version: 0, tools: [], idempotency_key: "x".repeat(257) }, "/idempotency_key"],
    ])("refuses the body %j at %s", async (body, path) => {
      const error = await refusal(() => catalog.putToolset("default", "orders", body as never));
      expect([error.code, error.details[0]?.path]).toEqual(["body_invalid", path]);
    });

    it("refuses hostile nesting without overflowing, key or no key", async () => {
      let deep: unknown = 1;
      for (let level = 0; level < 100_000; level += 1) deep = [deep];
      expect((await refusal(() => put(0, [deep], "key"))).code).toBe("schema_too_large");
      expect((await refusal(() => put(0, [tool("a", { input_schema: { default: Number.POSITIVE_INFINITY } })]))).code).toBe("tool_invalid");
    });

    it("says with ledger_away that the store is away", async () => {
      const away = { ...store, read: () => Promise.reject(new CatalogStoreError("unreachable", "gone")) };
      const error = await refusal(async () => (await createTestCatalog({ ...store, ...away })).getBinding("default", "other"));
      expect(error.code).toBe("ledger_away");
    });
  });

  describe("reading", () => {
    it("A2: tells unknown toolsets, versions and tools apart, and foreign ones not from unknown ones", async () => {
      await put(0, [tool("a")]);
      const codes = await Promise.all(
        [
          () => catalog.getToolset("other", "orders"),
          () => catalog.getToolset("default", "nothing"),
          () => catalog.getToolset("default", "../x"),
          () => catalog.getToolset("default", "orders", 2),
          () => catalog.resolveTool("other", "orders", "a"),
          () => catalog.resolveTool("default", "orders", "b"),
          () => catalog.resolveTool("default", "orders", "a", 9),
          () => catalog.resolveTool("default", "orders", "__proto__"),
          () => catalog.listToolsetVersions("other", "orders", {}),
        ].map(async (task) => (await refusal(task)).code),
      );
      expect(codes).toEqual([
        "toolset_unknown",
        "toolset_unknown",
        "toolset_unknown",
        "toolset_version_unknown",
        "toolset_unknown",
        "tool_unknown",
        "toolset_version_unknown",
        "tool_unknown",
        "toolset_unknown",
      ]);
    });

    it("pages through lists, newest first, each item once, and keeps its place when others are added", async () => {
      for (let index = 0; index < 45; index += 1) await catalog.putToolset("default", `set-${index}`, { base_version: 0, tools: [] });
      const ids: string[] = [];
      let page: string | undefined;
      do {
        const answer = catalog.listToolsets("default", page === undefined ? {} : { page });
        expect(answer.data.length).toBeLessThanOrEqual(20);
        ids.push(...answer.data.map(({ id }) => id));
        page = answer.next_page ?? undefined;
        await catalog.putToolset("default", `later-${ids.length}`, { base_version: 0, tools: [] });
      } while (page !== undefined);
      expect(ids).toEqual(Array.from({ length: 45 }, (_, index) => `set-${44 - index}`));
      expect(catalog.listToolsets("default", { limit: 100 }).next_page).toBeNull();
    });

    it("refuses page tokens of other lists, forged ones, and limits outside 1 to 100", async () => {
      for (let index = 0; index < 3; index += 1) await put(index, [tool(`t${index}`)]);
      await catalog.putBinding("default", "second", { name: "n", kind: "backend" });
      const token = catalog.listToolsetVersions("default", "orders", { limit: 1 }).next_page ?? "";
      expect(catalog.listToolsetVersions("default", "orders", { limit: 1, page: token }).data.map(({ version }) => version)).toEqual([2]);
      await catalog.putToolset("default", "others", { base_version: 0, tools: [] });
      const wrong = [token, "", "x", "e30", "x".repeat(5_000), Buffer.from('[1,"bindings default"]').toString("base64url")];
      for (const page of wrong) expect((await refusal(() => catalog.listBindings("default", { page }))).code).toBe("page_invalid");
      expect((await refusal(() => catalog.listToolsetVersions("default", "others", { page: token }))).code).toBe("page_invalid");
      for (const limit of [0, 101, 1.5, Number.NaN])
        expect((await refusal(() => catalog.listBindings("default", { limit }))).code).toBe("body_invalid");
    });
  });

  describe("resolving tools for calls", () => {
    it("resolves the latest version, or the one that is asked for, with its checks and its binding's kind", async () => {
      const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"], additionalProperties: false };
      await put(0, [tool("a", { input_schema: schema, output_schema: { type: "string" } })]);
      await put(1, [tool("a")]);
      const first = await catalog.resolveTool("default", "orders", "a", 1);
      expect(first).toMatchObject({ toolset: "orders", toolsetVersion: 1, bindingKind: "backend", tool: { name: "a" } });
      expect(first.checkArguments({ n: 1 })).toEqual([]);
      expect(
        first
          .checkArguments({ n: "1", m: 2 })
          .map(({ path }) => path)
          .sort(),
      ).toEqual(["/m", "/n"]);
      expect(first.checkResult(1)).toEqual([{ path: "", expected: "a string", actual: "number 1" }]);
      const latest = await catalog.resolveTool("default", "orders", "a");
      expect(latest.toolsetVersion).toBe(2);
      expect(latest.checkArguments({ n: "1", m: 2 })).toEqual([]);
      expect(latest.checkResult(1)).toEqual([]);
      expect(await catalog.resolveTool("default", "orders", "a")).toBe(latest);
      expect(await catalog.resolveTool("default", "orders", "a", 1)).toBe(first);
    });

    it("finds at once what another broker has just saved, before any notice of it", async () => {
      const deaf = await createTestCatalog({
        ...store,
        watch: () => ({ unsubscribe: () => undefined }),
        peek: () => undefined,
        peekAll: () => [],
      });
      await put(0, [tool("a")]);
      expect((await deaf.resolveTool("default", "orders", "a")).toolsetVersion).toBe(1);
      await put(1, [tool("b")]);
      expect((await deaf.resolveTool("default", "orders", "b")).toolsetVersion).toBe(2);
      await put(2, [tool("c")]);
      expect((await deaf.resolveTool("default", "orders", "c", 3)).toolsetVersion).toBe(3);
    });

    it("asks the store for nothing when memory has it", async () => {
      await put(0, [tool("a")]);
      let reads = 0;
      const counting = await createTestCatalog({
        ...store,
        read(path) {
          reads += 1;
          return store.read(path);
        },
      });
      reads = 0;
      for (let call = 0; call < 10; call += 1) await counting.resolveTool("default", "orders", "a");
      expect(reads).toBe(0);
    });
  });

  describe("merging under development", () => {
    const merge = (...tools: unknown[]) => catalog.mergeTools("default", "shop", tools);
    const bare = (name: string, fields: Readonly<Record<string, unknown>> = {}) => {
      const { binding: _, ...rest } = tool(name, fields);
      return rest;
    };

    it("merges by name into the toolset called like the binding, and makes no version when nothing differs", async () => {
      const first = await merge(bare("a"), bare("b"));
      expect([first.id, first.version, first.tools.map(({ name, binding }) => `${name}@${binding}`)]).toEqual([
        "shop",
        1,
        ["a@shop", "b@shop"],
      ]);
      expect(await merge(bare("b"), bare("a"))).toEqual(first);
      expect(await merge()).toEqual(first);
      const second = await merge(bare("c"), bare("a", { version: "2" }));
      expect([second.version, second.tools.map(({ name, version }) => name + version)]).toEqual([2, ["a2", "b1", "c1"]]);
    });

    it("keeps all tools when two runners merge at once at two brokers", async () => {
      const other = await createTestCatalog(store);
      await Promise.all(
        Array.from({ length: 12 }, (_, index) => (index % 2 === 0 ? catalog : other).mergeTools("default", "shop", [bare(`t${index}`)])),
      );
      const { tools, version } = await catalog.getToolset("default", "shop");
      expect(tools).toHaveLength(12);
      expect(version).toBe(12);
    });

    it("refuses faulty tools, more than 64 in all, and bindings that are not registered", async () => {
      expect((await refusal(() => merge(bare("a", { input_schema: 1 })))).code).toBe("tool_invalid");
      await merge(...Array.from({ length: 60 }, (_, index) => bare(`t${index}`)));
      expect((await refusal(() => merge(...Array.from({ length: 5 }, (_, index) => bare(`u${index}`))))).code).toBe("tool_invalid");
      expect((await refusal(() => catalog.mergeTools("default", "nowhere", [bare("a")]))).code).toBe("binding_unknown");
    });
  });
});
