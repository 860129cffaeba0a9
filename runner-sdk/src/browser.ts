/** The transport for pages and workers, and their journal. */
export { indexedDbJournal } from "./browser/indexed-db-journal.js";
export { connectWebSocket } from "./browser/websocket-transport.js";
export { forwardPageState, type PageStateTarget } from "./browser/worker-place.js";
