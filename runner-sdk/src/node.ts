/** Transports, the file journal and child processes of calls, for Node. */
export { fileJournal } from "./node/file-journal.js";
export { connectGrpc, type GrpcOptions } from "./node/grpc-transport.js";
export {
  endFamily,
  GRANT_MARK,
  killMarkedNow,
  type Mark,
  markedProcesses,
  type ProcessFamily,
  processStat,
} from "./node/processes.js";
export { type CallProcess, type CallProcessEnd, type SpawnForCallOptions, spawnForCall } from "./node/spawn-for-call.js";
export { connectWebSocket, type WebSocketOptions } from "./node/websocket-transport.js";
