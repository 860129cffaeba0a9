/** Transports and the file journal for Node. */
export { fileJournal } from "./node/file-journal.js";
export { connectGrpc, type GrpcOptions } from "./node/grpc-transport.js";
export { connectWebSocket, type WebSocketOptions } from "./node/websocket-transport.js";
