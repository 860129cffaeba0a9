import { type CatalogStore, createKvCatalogStore } from "@toolrunner/broker/internal";
import { describeCatalogStore } from "@toolrunner/broker/testing";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createNames, type OpenBus, openBus, quiet } from "../bus/bus-kit.js";
import { eventually, type NatsServer, startNatsServer } from "../kit/index.js";

describe.each(["2.9", "2.10"] as const)("nats-server %s", { timeout: 60_000 }, (version) => {
  let server: NatsServer;
  const nextPrefix = createNames("catalog");
  beforeAll(async () => {
    server = await startNatsServer({ version });
  });
  afterAll(() => server.dispose());

  interface OpenStore {
    readonly store: CatalogStore;
    readonly bus: OpenBus;
  }

  async function openStore(prefix: string): Promise<OpenStore> {
    const bus = await openBus(server.url, { prefix });
    return { bus, store: await createKvCatalogStore({ bus: bus.bus, log: quiet }) };
  }

  async function closeStore({ store, bus }: OpenStore): Promise<void> {
    await store.close();
    await bus.close();
  }

  describeCatalogStore("JetStream KV", async () => {
    const prefix = nextPrefix();
    const open: OpenStore[] = [];
    return {
      async open() {
        const one = await openStore(prefix);
        open.push(one);
        return one.store;
      },
      shared: true,
      persistent: true,
      async close() {
        await Promise.all(open.map(closeStore));
      },
    };
  });

  it("loads a large catalog whole before it is open", async () => {
    const prefix = nextPrefix();
    const writer = await openStore(prefix);
    const paths = Array.from({ length: 1_000 }, (_, index) => `default/tool-content/${index}`);
    await Promise.all(paths.map((path) => writer.store.put(path, "x".repeat(10_000), 0)));
    const reader = await openStore(prefix);
    expect(reader.store.peekAll("default/tool-content/").map(({ path }) => path)).toEqual([...paths].sort());
    await Promise.all([writer, reader].map(closeStore));
  });

  it("refuses with unreachable while the server is away, keeps what it knows, and follows on when it is back", async () => {
    const prefix = nextPrefix();
    const [one, two] = [await openStore(prefix), await openStore(prefix)];
    const stored = await one.store.put("a/b", "1", 0);
    await eventually("the other store to see it", () => two.store.peek("a/b"));
    await server.kill9();
    await expect(one.store.put("a/b", "2", stored.kind === "stored" ? stored.revision : 0)).rejects.toMatchObject({ code: "unreachable" });
    await expect(one.store.check()).rejects.toMatchObject({ code: "unreachable" });
    expect(one.store.peek("a/b")?.value).toBe("1");
    await server.restart();
    await eventually(
      "the stores to be back",
      () =>
        Promise.all([one.store.check(), two.store.check()]).then(
          () => true,
          () => false,
        ),
      15_000,
    );
    const now = await one.store.read("a/b");
    expect((await one.store.put("a/b", "3", now?.revision ?? 0)).kind).toBe("stored");
    await eventually("the other store to follow", () => two.store.peek("a/b")?.value === "3", 5_000);
    await Promise.all([one, two].map(closeStore));
  });
});
