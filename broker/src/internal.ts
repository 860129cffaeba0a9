export { type ConnectNatsOptions, connectNats, type NatsCredentials } from "./bus/nats/connect-nats.js";
export { createNatsBus, type NatsBusOptions } from "./bus/nats/nats-bus.js";
export { createKvCatalogStore, type KvCatalogStoreOptions } from "./catalog/store/kv-catalog-store.js";
export { METRICS, type MetricDefinition } from "./diagnostics/definitions.js";
export { EDGES, type Edge } from "./domain/call/edges.js";
export type { CallEntry } from "./domain/call/entries.js";
export { decodeEntry } from "./domain/call/entry-codec.js";
export { CALL_STATES, OPEN_STATES, SETTLED_STATES } from "./domain/call-view.js";
export { type Bus, BusError, type Registry, type RegistryChange, type RegistryRecord } from "./domain/ports/bus.js";
export type { CatalogStore } from "./domain/ports/catalog-store.js";
export { type Ledger, LedgerError, type NewEntry, type StoredEntry, type TailedEntry } from "./domain/ports/ledger.js";
export type { Log, LogFields } from "./domain/ports/log.js";
export { type JetStreamLedgerOptions, openJetStreamLedger } from "./ledger/jetstream/jetstream-ledger.js";
export {
  createMemoryLedger,
  createMemoryLedgerStore,
  type MemoryLedgerOptions,
  type MemoryLedgerStore,
} from "./ledger/memory/memory-ledger.js";
export { openSqliteLedger, type SqliteLedgerOptions } from "./ledger/sqlite/sqlite-ledger.js";
