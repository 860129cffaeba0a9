/** What every catalog store does. An implementation passes this suite unchanged. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type CatalogDocument, type CatalogStore, CatalogStoreError, DOCUMENT_BYTES_MAX } from "../../domain/ports/catalog-store.js";

/** Where stores of one catalog live; a new one for each test. */
export interface CatalogStoreWorld {
  /** Opens the catalog: of brokers that share it where `shared`, else the one store of its process. */
  open(): Promise<CatalogStore>;
  /** Whether several stores may have the catalog open at once. */
  readonly shared: boolean;
  /** Whether documents are there again when all stores were closed and one is opened. */
  readonly persistent: boolean;
  /** Ends all stores and removes what they kept. */
  close(): Promise<void>;
}

export function describeCatalogStore(name: string, createWorld: () => Promise<CatalogStoreWorld>): void {
  describe(`catalog store: ${name}`, () => {
    let world: CatalogStoreWorld;
    let store: CatalogStore;

    beforeEach(async () => {
      world = await createWorld();
      store = await world.open();
    });
    afterEach(() => world.close());

    async function mustPut(path: string, value: string, expected = 0, into = store): Promise<number> {
      const outcome = await into.put(path, value, expected);
      if (outcome.kind !== "stored") throw new Error(`${path} was not stored: ${JSON.stringify(outcome)}`);
      return outcome.revision;
    }

    async function code(task: () => unknown): Promise<string> {
      try {
        await task();
      } catch (error) {
        return error instanceof CatalogStoreError ? error.code : `no CatalogStoreError: ${String(error)}`;
      }
      return "no error";
    }

    it("shows its own write to peek, peekAll and read at once", async () => {
      const revision = await mustPut("default/bindings/shop", "{}");
      const document: CatalogDocument = { path: "default/bindings/shop", value: "{}", revision };
      expect(store.peek("default/bindings/shop")).toEqual(document);
      expect(store.peekAll("default/bindings/")).toEqual([document]);
      expect(await store.read("default/bindings/shop")).toEqual(document);
      expect(store.peek("default/bindings/other")).toBeUndefined();
      expect(await store.read("default/bindings/other")).toBeUndefined();
    });

    it("writes only at the expected revision, and tells the current document otherwise", async () => {
      const first = await mustPut("a/b", "1");
      expect(await store.put("a/b", "x", 0)).toEqual({ kind: "conflict", current: { path: "a/b", value: "1", revision: first } });
      expect(await store.put("a/b", "x", first + 1)).toMatchObject({ kind: "conflict" });
      const second = await mustPut("a/b", "2", first);
      expect(second).toBeGreaterThan(first);
      expect(await store.put("a/b", "x", first)).toEqual({ kind: "conflict", current: { path: "a/b", value: "2", revision: second } });
      expect(await store.put("a/absent", "x", first)).toEqual({ kind: "conflict", current: undefined });
      expect(store.peek("a/b")?.value).toBe("2");
    });

    it("has one winner when twelve writers race from the same revision, new document or not", async () => {
      let revision = 0;
      for (let round = 0; round < 10; round += 1) {
        const outcomes = await Promise.all(Array.from({ length: 12 }, (_, writer) => store.put("a/raced", `${round}/${writer}`, revision)));
        const winners = outcomes.flatMap((outcome, writer) => (outcome.kind === "stored" ? [{ writer, revision: outcome.revision }] : []));
        expect(winners).toHaveLength(1);
        revision = winners[0]?.revision ?? 0;
        expect(store.peek("a/raced")).toEqual({ path: "a/raced", value: `${round}/${winners[0]?.writer}`, revision });
      }
    });

    it("L3: a document that is deleted and made again never repeats a revision", async () => {
      const revisions: number[] = [];
      for (let round = 0; round < 3; round += 1) {
        revisions.push(await mustPut("a/b", "1"));
        await store.delete("a/b");
        expect(store.peek("a/b")).toBeUndefined();
        expect(await store.read("a/b")).toBeUndefined();
        expect(await store.put("a/b", "stale", revisions.at(-1) ?? 0)).toEqual({ kind: "conflict", current: undefined });
        await store.delete("a/b");
      }
      revisions.push(await mustPut("a/b", "1"));
      expect(revisions).toEqual([...revisions].sort((left, right) => left - right));
      expect(new Set(revisions).size).toBe(4);
    });

    it("lists what is below a prefix, at every depth, sorted by path, and nothing beside it", async () => {
      const within = ["app/x/a", "app/x/a.b", "app/x/a/b", "app/x/a=c", "app/x/b/c/d", "app/x/z_-"];
      for (const path of [...within, "app/x", "app/xy/a", "app/w/a", "other/x/a"]) await mustPut(path, path);
      expect(store.peekAll("app/x/").map((document) => document.path)).toEqual([...within].sort());
      expect(store.peekAll("app/x/a/").map((document) => document.value)).toEqual(["app/x/a/b"]);
      expect(store.peekAll("app/none/")).toEqual([]);
      await store.delete("app/x/a");
      expect(store.peekAll("app/x/a/").map((document) => document.path)).toEqual(["app/x/a/b"]);
    });

    it("tells watchers each own change once, after peek shows it", async () => {
      const heard: string[] = [];
      const watch = store.watch((path, document) => {
        expect(store.peek(path)).toEqual(document);
        heard.push(`${path}=${document?.value ?? "-"}`);
      });
      const revision = await mustPut("a/b", "1");
      await mustPut("a/b", "2", revision);
      await store.put("a/b", "refused", revision);
      await store.delete("a/b");
      await store.delete("a/never");
      await mustPut("a/c", "1");
      watch.unsubscribe();
      watch.unsubscribe();
      await mustPut("a/d", "1");
      expect(heard).toEqual(["a/b=1", "a/b=2", "a/b=-", "a/c=1"]);
    });

    it("is not disturbed by a watcher that throws", async () => {
      const heard: string[] = [];
      store.watch(() => {
        throw new Error("broken on purpose");
      });
      store.watch((path) => heard.push(path));
      await mustPut("a/b", "1");
      expect(heard).toEqual(["a/b"]);
    });

    it.each(["", "/", "a/", "/a", "a//b", "a b", "a/ü", "a/*", "a\\b", "a/\n"])("refuses the path %j with path_invalid", async (path) => {
      expect(await code(() => store.put(path, "", 0))).toBe("path_invalid");
      expect(await code(() => store.read(path))).toBe("path_invalid");
      expect(await code(() => store.delete(path))).toBe("path_invalid");
      expect(store.peek(path)).toBeUndefined();
    });

    it("refuses paths over 240 characters with path_invalid", async () => {
      expect(await code(() => store.put("x".repeat(241), "", 0))).toBe("path_invalid");
      expect(await code(() => store.peekAll(`${"x".repeat(240)}/`))).toBe("path_invalid");
    });

    it("takes paths of every allowed character, also dots alone, and of the greatest length", async () => {
      const paths = ["=k/a.b=c_d-e/F9", "a/..", "./a", "_/__/_d", `a/${"x".repeat(238)}`, "__proto__/constructor"];
      for (const path of paths) await mustPut(path, path);
      for (const path of paths) {
        expect(store.peek(path)?.value).toBe(path);
        expect((await store.read(path))?.value).toBe(path);
      }
    });

    it.each(["", "a", "/", "a//", "/a/"])("refuses the prefix %j with path_invalid", async (prefix) => {
      expect(await code(() => store.peekAll(prefix))).toBe("path_invalid");
    });

    it("keeps values of every kind up to the limit, byte for byte, and refuses more with too_large", async () => {
      const values = ["", '{"b":1,"a":"\\u0000"}', "ü € 😀 \r\n", "é".repeat(DOCUMENT_BYTES_MAX / 2)];
      for (const [index, value] of values.entries()) {
        await mustPut(`v/${index}`, value);
        expect(store.peek(`v/${index}`)?.value === value).toBe(true);
        expect((await store.read(`v/${index}`))?.value === value).toBe(true);
      }
      expect(await code(() => store.put("v/over", "x".repeat(DOCUMENT_BYTES_MAX + 1), 0))).toBe("too_large");
      expect(await store.read("v/over")).toBeUndefined();
    });

    it("answers its check while open, and refuses everything as closed afterwards", async () => {
      await store.check();
      await store.close();
      await store.close();
      expect(await code(() => store.check())).toBe("closed");
      expect(await code(() => store.read("a/b"))).toBe("closed");
      expect(await code(() => store.put("a/b", "1", 0))).toBe("closed");
      expect(await code(() => store.delete("a/b"))).toBe("closed");
    });

    it("has its documents and revisions again after it was closed and opened, where it is persistent", async () => {
      const kept = await mustPut("a/kept", "1");
      const gone = await mustPut("a/gone", "1");
      await store.delete("a/gone");
      await store.close();
      store = await world.open();
      if (!world.persistent) {
        expect(store.peekAll("a/")).toEqual([]);
        return;
      }
      expect(store.peekAll("a/")).toEqual([{ path: "a/kept", value: "1", revision: kept }]);
      expect(await mustPut("a/gone", "2")).toBeGreaterThan(gone);
    });

    it("is seen by the other brokers, where it is shared", async () => {
      if (!world.shared) {
        expect(world.shared).toBe(false);
        return;
      }
      const revision = await mustPut("a/b", "1");
      const other = await world.open();
      expect(other.peek("a/b")).toEqual({ path: "a/b", value: "1", revision });
      const next = await mustPut("a/b", "2", revision, other);
      expect(await store.read("a/b")).toEqual({ path: "a/b", value: "2", revision: next });
      expect(store.peek("a/b")?.revision).toBe(next);

      const changed = new Promise<CatalogDocument | undefined>((resolve) => {
        store.watch((path, document) => {
          if (path === "a/c") resolve(document);
        });
      });
      const foreign = await mustPut("a/c", "3", 0, other);
      expect(await changed).toEqual({ path: "a/c", value: "3", revision: foreign });
      expect(store.peek("a/c")?.revision).toBe(foreign);

      const deleted = new Promise<CatalogDocument | undefined>((resolve) => {
        other.watch((path, document) => {
          if (path === "a/b") resolve(document);
        });
      });
      await store.delete("a/b");
      expect(await deleted).toBeUndefined();
      expect(other.peek("a/b")).toBeUndefined();
      const outcomes = await Promise.all([store.put("a/b", "mine", 0), other.put("a/b", "theirs", 0)]);
      expect(outcomes.map((outcome) => outcome.kind).sort()).toEqual(["conflict", "stored"]);
    });
  });
}
