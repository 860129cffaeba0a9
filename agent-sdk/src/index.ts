export { createAgentClient } from "./client.js";
export type {
  AgentClient,
  AgentClientOptions,
  BindingsClient,
  CallListOptions,
  CallRequest,
  EventsOptions,
  KeysClient,
  PageOptions,
  RequestOptions,
  ToolsetsClient,
  WaitOptions,
} from "./client-types.js";
export { type ErrorDetail, type LocalErrorCode, ToolRunnerError } from "./errors.js";
export { connectHttp, type HttpTransportOptions } from "./http-transport.js";
export type { AgentConnection, AgentTransport, OperationAnswers, OperationName, OperationRequest, SendOptions } from "./transport.js";
export {
  answersTurn,
  type Binding,
  type BindingKind,
  type Call,
  type CallError,
  type CallEvent,
  type CallReceipt,
  type CallState,
  type CreatedKey,
  isSettled,
  type Json,
  type Key,
  type ModelResult,
  type OpenCallState,
  type Page,
  type ResultPage,
  type Runner,
  type Scope,
  type SettledCallState,
  type Tool,
  type ToolInput,
  type Toolset,
} from "./types.js";
