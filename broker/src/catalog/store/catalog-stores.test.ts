import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Bus, Registry, RegistryChange } from "../../domain/ports/bus.js";
import type { CatalogStore } from "../../domain/ports/catalog-store.js";
import { openSqlite } from "../../sqlite/open-sqlite.js";
import { describeCatalogStore } from "../testing/describe-catalog-store.js";
import { createKvCatalogStore } from "./kv-catalog-store.js";
import { createMemoryCatalogStore } from "./memory-catalog-store.js";
import { createSqliteCatalogStore } from "./sqlite-catalog-store.js";

describeCatalogStore("memory", async () => ({
  open: async () => createMemoryCatalogStore(),
  shared: false,
  persistent: false,
  close: async () => undefined,
}));

describeCatalogStore("sqlite", async () => {
  const directory = await mkdtemp(join(tmpdir(), "catalog-store-"));
  const stores: CatalogStore[] = [];
  return {
    async open() {
      const store = createSqliteCatalogStore({ directory: join(directory, "data") });
      stores.push(store);
      return store;
    },
    shared: false,
    persistent: true,
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      await rm(directory, { recursive: true, force: true });
    },
  };
});

describe("the SQLite catalog store", () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "catalog-store-"));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it("refuses a file that is no database, naming it, and leaves it alone", async () => {
    await writeFile(join(directory, "catalog.db"), "this is not a database, but long enough to look at ".repeat(50));
    const { size } = await stat(join(directory, "catalog.db"));
    expect(() => createSqliteCatalogStore({ directory })).toThrow(/catalog\.db cannot be opened/);
    expect((await stat(join(directory, "catalog.db"))).size).toBe(size);
  });

  it("refuses a file of a newer layout", () => {
    const database = openSqlite(join(directory, "catalog.db"));
    database.pragma("user_version = 2");
    database.close();
    expect(() => createSqliteCatalogStore({ directory })).toThrow(/newer version/);
  });

  it("writes with synchronous=FULL and a write-ahead log", async () => {
    const store = createSqliteCatalogStore({ directory });
    await store.put("a/b", "1", 0);
    const reader = openSqlite(join(directory, "catalog.db"), { readonly: true });
    expect(reader.pragma("journal_mode", { simple: true })).toBe("wal");
    expect(reader.prepare("SELECT value FROM documents WHERE path = 'a/b'").pluck().get()).toBe("1");
    reader.close();
    await store.close();
  });
});

describe("the shared catalog store", () => {
  /** A registry whose notices arrive when the test says so. */
  function createLateBus(): { bus: Pick<Bus, "registry" | "check">; deliver(): void } {
    const records = new Map<string, { key: string; value: string; revision: number }>();
    const late: RegistryChange[] = [];
    let revision = 0;
    let tell: (change: RegistryChange) => void = () => undefined;
    const write = (key: string, value: string): number => {
      revision += 1;
      const record = { key, value, revision };
      records.set(key, record);
      late.push({ kind: "put", record });
      return revision;
    };
    const registry: Registry = {
      put: async (key, value) => write(key, value),
      update: async (key, value, expected) => ((records.get(key)?.revision ?? 0) === expected ? write(key, value) : undefined),
      get: async (key) => records.get(key),
      async delete(key) {
        records.delete(key);
        revision += 1;
        late.push({ kind: "delete", key, revision });
      },
      list: async () => [...records.values()],
      async watch(listener) {
        tell = listener;
        return { unsubscribe: () => undefined };
      },
    };
    return {
      bus: { registry: async () => registry, check: async () => undefined },
      deliver() {
        for (const change of late.splice(0)) tell(change);
      },
    };
  }

  it("never goes back when notices of older writes and deletions arrive late", async () => {
    const { bus, deliver } = createLateBus();
    const store = await createKvCatalogStore({ bus });
    const heard: string[] = [];
    store.watch((path, document) => heard.push(`${path}=${document?.value ?? "-"}`));
    const first = await store.put("a/b", "1", 0);
    await store.delete("a/b");
    expect(store.peek("a/b")).toBeUndefined();
    const again = await store.put("a/b", "2", 0);
    await store.put("a/c", "1", 0);
    await store.delete("a/c");
    expect(first.kind === "stored" && again.kind === "stored" && again.revision > first.revision).toBe(true);
    deliver();
    expect(store.peek("a/b")?.value).toBe("2");
    expect(store.peek("a/c")).toBeUndefined();
    expect(heard).toEqual(["a/b=1", "a/b=-", "a/b=2", "a/c=1", "a/c=-"]);
  });

  it("shows what a read has found before the notice of it arrives, once", async () => {
    const { bus, deliver } = createLateBus();
    const one = await createKvCatalogStore({ bus });
    const registry = await bus.registry("catalog");
    await registry.put("a.b", "foreign");
    const heard: string[] = [];
    one.watch((path) => heard.push(path));
    expect(one.peek("a/b")).toBeUndefined();
    expect((await one.read("a/b"))?.value).toBe("foreign");
    expect(one.peek("a/b")?.value).toBe("foreign");
    deliver();
    expect(heard).toEqual(["a/b"]);
  });
});
