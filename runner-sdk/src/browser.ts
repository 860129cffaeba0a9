/** The transport for pages and workers. */
export { connectWebSocket } from "./browser/websocket-transport.js";
export { forwardPageState, type PageStateTarget } from "./browser/worker-place.js";
