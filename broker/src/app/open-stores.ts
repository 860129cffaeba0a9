/** Opens ledger, bus and catalog store for the kind of store that a broker is started with. */
import { mkdir, open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLocalBus } from "../bus/local/local-bus.js";
import { connectNats } from "../bus/nats/connect-nats.js";
import { createNatsBus } from "../bus/nats/nats-bus.js";
import { createKvCatalogStore } from "../catalog/store/kv-catalog-store.js";
import { createMemoryCatalogStore } from "../catalog/store/memory-catalog-store.js";
import { createSqliteCatalogStore } from "../catalog/store/sqlite-catalog-store.js";
import { BusError } from "../domain/ports/bus.js";
import { CatalogStoreError } from "../domain/ports/catalog-store.js";
import type { Clock } from "../domain/ports/clock.js";
import { LedgerError } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import { openJetStreamLedger } from "../ledger/jetstream/jetstream-ledger.js";
import { createMemoryLedger } from "../ledger/memory/memory-ledger.js";
import { openSqliteLedger } from "../ledger/sqlite/sqlite-ledger.js";
import type { StoreOptions, Stores } from "./broker-options.js";
import { makeIndexFolder } from "./index-folder.js";
import { StartError } from "./start-error.js";

export async function openStores(
  store: StoreOptions,
  context: { readonly brokerId: string; readonly clock: Clock; readonly log: Log },
): Promise<Stores> {
  switch (store.kind) {
    case "memory":
      return {
        ledger: createMemoryLedger(),
        catalog: createMemoryCatalogStore({ log: context.log }),
        bus: createLocalBus({ clock: context.clock, log: context.log }),
        indexFile: ":memory:",
        indexLife: "temporary",
        close: async () => undefined,
      };
    case "sqlite": {
      await keepPrivate(store.dataDir, ["ledger.db", "catalog.db", "index.db"]);
      // The ledger first: it locks the folder.
      const ledger = await openSqliteLedger({ dataDir: store.dataDir, log: context.log }).catch(explainData(store.dataDir));
      try {
        const catalog = createSqliteCatalogStore({ directory: store.dataDir, log: context.log });
        return {
          ledger,
          catalog,
          bus: createLocalBus({ clock: context.clock, log: context.log }),
          indexFile: join(store.dataDir, "index.db"),
          indexLife: "kept",
          close: async () => undefined,
        };
      } catch (error) {
        await ledger.close();
        return explainData(store.dataDir)(error);
      }
    }
    case "nats":
      return openNats(store, context);
  }
}

/** Makes the folder and its files readable to their owner only: they hold payloads. SQLite gives its side files the same rights. */
async function keepPrivate(folder: string, names: readonly string[]): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    for (const name of names) {
      const file = await open(join(folder, name), "a", 0o600);
      try {
        await file.chmod(0o600);
      } finally {
        await file.close();
      }
    }
  } catch (cause) {
    explainData(folder)(cause);
  }
}

async function openNats(
  store: Extract<StoreOptions, { readonly kind: "nats" }>,
  { brokerId, clock, log }: { readonly brokerId: string; readonly clock: Clock; readonly log: Log },
): Promise<Stores> {
  const { replicas = 1, prefix = "tr" } = store;
  const connection = await connectNats({ url: store.url, name: brokerId, log }).catch(explainNats);
  try {
    const bus = createNatsBus({ connection, prefix, replicas, log });
    const ledger = await openJetStreamLedger({ connection, prefix, replicas, incarnation: brokerId, clock, log });
    const catalog = await createKvCatalogStore({ bus, log });
    // Made anew at each start from the shared ledger, and too large to be kept in memory.
    const index = await makeIndexFolder(tmpdir(), log);
    return {
      ledger,
      catalog,
      bus,
      indexFile: index.file,
      indexLife: "temporary",
      async close() {
        await connection.close();
        await index.remove();
      },
    };
  } catch (error) {
    await connection.close();
    return explainNats(error);
  }
}

function explainNats(error: unknown): never {
  if (error instanceof LedgerError || error instanceof BusError || error instanceof CatalogStoreError) {
    const code = error.code === "unsupported_server" || error.code === "misconfigured" ? "nats_unsupported" : "nats_unreachable";
    throw new StartError(code, error.message, { cause: error });
  }
  throw error;
}

function explainData(dataDir: string): (error: unknown) => never {
  return (error) => {
    if (error instanceof LedgerError && error.code === "in_use") {
      throw new StartError("data_in_use", error.message, { cause: error });
    }
    if (error instanceof LedgerError || error instanceof CatalogStoreError || isSystemError(error)) {
      throw new StartError("data_unusable", `the data folder ${dataDir} cannot be used: ${error.message}`, { cause: error });
    }
    throw error;
  };
}

function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "syscall" in error;
}
