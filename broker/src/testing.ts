/** Suites that every implementation of a port passes unchanged. They import vitest; nothing else of this package does. */
export { type BusWorld, describeBus } from "./bus/testing/describe-bus.js";
export { type CatalogStoreWorld, describeCatalogStore } from "./catalog/testing/describe-catalog-store.js";
export { type ParsedMetric, type ParsedMetrics, type ParsedSample, parseMetrics } from "./diagnostics/testing/parse-metrics.js";
export { createFakeOperations, type FakeOperations, FULL_KEY } from "./gateway/testing/fake-operations.js";
export { startTestGrpc, stopTestGrpc, type TestGrpc } from "./gateway/testing/grpc-kit.js";
export { type Answer, startTestGateway, stopTestGateways, type TestGateway } from "./gateway/testing/http-kit.js";
export { type DescribeLedgerOptions, describeLedger, type LedgerFactory } from "./ledger/testing/describe-ledger.js";
