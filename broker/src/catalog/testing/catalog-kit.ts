/** What tests of the catalog share. */

import { BrokerError } from "../../domain/broker-error.js";
import type { Json } from "../../domain/ports/catalog.js";
import type { CatalogStore } from "../../domain/ports/catalog-store.js";
import type { Clock, IdSource } from "../../domain/ports/clock.js";
import type { Log } from "../../domain/ports/log.js";
import { type Catalog, createCatalog } from "../catalog.js";
import { createMemoryCatalogStore } from "../store/memory-catalog-store.js";

export const quietLog: Log = { debug() {}, info() {}, warn() {}, error() {} };

/** A wall clock that a test moves; one second a reading, so that no two things are made at the same time. */
export function createTestClock(): Clock {
  let now = Date.parse("2026-01-01T00:00:00Z");
  return {
    now: () => {
      now += 1_000;
      return now;
    },
    monotonic: () => now,
    schedule: () => ({ cancel: () => undefined }),
  };
}

export function createTestIds(): IdSource {
  let last = 0;
  return {
    next(prefix) {
      last += 1;
      return `${prefix}_${String(last).padStart(26, "a")}`;
    },
    random: () => 0.5,
  };
}

/** A catalog with the backend binding `shop` registered. */
export async function createTestCatalog(store: CatalogStore = createMemoryCatalogStore()): Promise<Catalog> {
  const catalog = createCatalog({ store, clock: createTestClock(), ids: createTestIds(), log: quietLog });
  await catalog.putBinding("default", "shop", { name: "Shop", kind: "backend" });
  return catalog;
}

/** A tool with as little as a tool can have, and whatever else is given. */
export function tool(name: string, fields: Readonly<Record<string, unknown>> = {}): Record<string, Json> {
  return { name, description: `Does ${name}.`, input_schema: { type: "object" }, binding: "shop", ...fields } as Record<string, Json>;
}

/** The refusal that `task` ends with; fails when it ends otherwise. */
export async function refusal(task: () => unknown): Promise<BrokerError> {
  try {
    await task();
  } catch (error) {
    if (error instanceof BrokerError) return error;
    throw error;
  }
  throw new Error("was not refused");
}
