/** The port between the client and the ways to reach a broker. Rejections are `ToolRunnerError`s only. */

import type { ToolRunnerError } from "./errors.js";
import type { Binding, Call, CallEvent, CreatedKey, Key, Page, ResultPage, Runner, Toolset } from "./types.js";

/** What a batch is answered: for each call of its list, in order, the call or the refusal. */
export interface BatchAnswers {
  readonly data: readonly (Call | ToolRunnerError)[];
}

/** What each operation answers. Names are those of `/openapi.json`. */
export interface OperationAnswers {
  createCall: Call;
  createBatch: BatchAnswers;
  getCall: Call;
  listCalls: Page<Call>;
  listCallEvents: Page<CallEvent>;
  readResult: ResultPage;
  cancelCall: Call;
  confirmCall: Call;
  reconcileCall: Call;
  putBinding: Binding;
  getBinding: Binding;
  listBindings: Page<Binding>;
  putToolset: Toolset;
  getToolset: Toolset;
  getToolsetVersion: Toolset;
  listToolsets: Page<Toolset>;
  listToolsetVersions: Page<Toolset>;
  createAgentKey: CreatedKey;
  listAgentKeys: Page<Key>;
  getAgentKey: Key;
  revokeAgentKey: Key;
  createRunnerKey: CreatedKey;
  listRunnerKeys: Page<Key>;
  getRunnerKey: Key;
  revokeRunnerKey: Key;
  listRunners: Page<Runner>;
}

/** Name of an operation. */
export type OperationName = keyof OperationAnswers;

/** A request in the names of the HTTP interface. Fields that are undefined are left out. */
export interface OperationRequest {
  /** `id`, `key_id`, `version`: what the address names. */
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly traceparent?: string | undefined;
}

/** Bounds of one attempt. */
export interface SendOptions {
  readonly signal?: AbortSignal | undefined;
  /** Without an answer after this the attempt is `unreachable`. */
  readonly timeoutMs: number;
}

/** A connection to a broker with one key; made anew by itself when it breaks. */
export interface AgentConnection {
  /** One attempt. Rejects with `unreachable` when nobody answers, with the broker's code when it refuses. */
  send<Name extends OperationName>(operation: Name, request: OperationRequest, options: SendOptions): Promise<OperationAnswers[Name]>;
  /**
   * Events with a higher `seq`, then new ones as they come. Ends after `settled`, and quietly when the broker ends the stream;
   * throws `unreachable` when it breaks.
   */
  watch(callId: string, afterSeq: number, signal: AbortSignal | undefined): AsyncIterable<CallEvent>;
  close(): void;
}

/** A way to reach a broker: `connectHttp`, or `connectGrpc` of `@toolrunner/agent-sdk/grpc`. */
export interface AgentTransport {
  connect(options: { readonly key: string }): AgentConnection;
}
