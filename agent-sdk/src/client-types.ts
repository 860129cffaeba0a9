/** What an agent runtime asks a client for. */

import type { ToolRunnerError } from "./errors.js";
import type { AgentTransport } from "./transport.js";
import type {
  Binding,
  BindingKind,
  Call,
  CallEvent,
  CallState,
  CreatedKey,
  Json,
  Key,
  Page,
  ResultPage,
  Runner,
  Scope,
  ToolInput,
  Toolset,
} from "./types.js";

/** Options of `createAgentClient`. */
export interface AgentClientOptions {
  /** `http://…` or `https://…` of the broker. Needed unless `transport` is given. */
  readonly url?: string;
  /** An agent key. */
  readonly key: string;
  /** Another way to reach the broker, such as `connectGrpc("grpc://…")`. */
  readonly transport?: AgentTransport;
  /**
   * How long a request is repeated while the broker cannot be reached, drains or asks for patience, in milliseconds.
   * Default 60,000; 0: not at all.
   */
  readonly retryForMs?: number;
  /** How long an attempt may take beyond the wait that it asks for, in milliseconds. Default 15,000. */
  readonly answerTimeoutMs?: number;
}

/** A tool call to make. */
export interface CallRequest {
  readonly toolset: string;
  readonly tool: string;
  /** Must satisfy the tool's input schema. */
  readonly arguments: unknown;
  /** Default: the latest. */
  readonly toolsetVersion?: number;
  readonly agent?: string;
  readonly release?: number;
  /** The end user on whose behalf the call runs. Needed on browser and desktop bindings. */
  readonly subject?: string;
  readonly session?: string;
  /** The same key and request give the same call. Default: a random one, so that repeats of this request are safe. */
  readonly idempotencyKey?: string;
  /** May only shorten the tool's. */
  readonly timeoutSeconds?: number;
  readonly orderingKey?: string;
  readonly priority?: "interactive" | "background";
  /** 1 to 10. */
  readonly maxAttempts?: number;
  readonly audience?: string;
  /** W3C trace context to run under. */
  readonly traceparent?: string;
}

/** A call of a batch. */
export type BatchRequest = Omit<CallRequest, "traceparent">;

/** What a batch runs under. */
export interface TraceOptions {
  /** W3C trace context of all its calls. */
  readonly traceparent?: string;
}

/** Options of any request. */
export interface RequestOptions {
  /** Ends the request with code `aborted`; a call that was started goes on. */
  readonly signal?: AbortSignal;
}

/** Options of a request that can wait. */
export interface WaitOptions extends RequestOptions {
  /** How long to wait for the turn's answer, in milliseconds. */
  readonly waitMs?: number;
}

/** Which page of a list. */
export interface PageOptions extends RequestOptions {
  /** 1 to 100. Default 20. */
  readonly limit?: number;
  /** The `next_page` of the page before. */
  readonly page?: string;
}

/** Which calls to list. */
export interface CallListOptions extends PageOptions {
  readonly state?: CallState;
  readonly tool?: string;
  readonly toolset?: string;
  readonly binding?: string;
  readonly agent?: string;
  readonly subject?: string;
  readonly session?: string;
}

/** Options of `events`. */
export interface EventsOptions extends RequestOptions {
  /** Only events with a higher `seq`. Default 0. */
  readonly afterSeq?: number;
}

/** Talks to one broker with one key. Every rejection is a `ToolRunnerError`. */
export interface AgentClient {
  /**
   * Calls a tool and resolves when the turn has its answer: the call is settled, `submitted` or `needs_reconciliation`,
   * however long that takes; with `waitMs`, at the latest then, with the call as it is. Rejects only when the call was refused,
   * nobody can be reached, or the signal aborts.
   */
  call(request: CallRequest, options?: WaitOptions): Promise<Call>;
  /** Calls a tool and resolves as soon as the call is accepted. */
  start(request: CallRequest, options?: RequestOptions): Promise<Call>;
  /**
   * Calls 1 to 64 tools at once: each is a call of its own, with its own key. Answers in the order of `requests` with each call, as
   * {@link call} resolves with it, or the error that it was refused with; one that is refused harms no other. Rejects only when
   * the whole batch could not be asked for.
   */
  batch(requests: readonly BatchRequest[], options?: WaitOptions & TraceOptions): Promise<readonly (Call | ToolRunnerError)[]>;
  /**
   * Waits until the call is settled: for the final receipt of a submitted call, or until somebody reconciled it, however long
   * that takes; with `waitMs`, at the latest then, with the call as it is.
   */
  settled(id: string, options?: WaitOptions): Promise<Call>;
  /** Reads a call; with `waitMs`, waits for the turn's answer. Default: 0. */
  get(id: string, options?: WaitOptions): Promise<Call>;
  list(options?: CallListOptions): Promise<Page<Call>>;
  /** A call's events, also across broken connections, each once and in order. Ends after `settled`. */
  events(id: string, options?: EventsOptions): AsyncGenerator<CallEvent, void>;
  /** The events that are known now. */
  listEvents(id: string, options?: EventsOptions): Promise<Page<CallEvent>>;
  /** A part of the compact JSON of the result. `offset` and `maxBytes` (65,536; at most 262,144) count bytes. */
  result(id: string, options?: RequestOptions & { readonly offset?: number; readonly maxBytes?: number }): Promise<ResultPage>;
  /** The whole result, however large, read in pages. */
  wholeResult(id: string, options?: RequestOptions): Promise<Json>;
  /** `kill` (default) waits for the runner's answer, `skip` settles now and lets it run, `killnowait` settles now and tells it. */
  cancel(
    id: string,
    options?: RequestOptions & { readonly mode?: "kill" | "skip" | "killnowait"; readonly reason?: string },
  ): Promise<Call>;
  /** Answers a call in `awaiting_confirmation`. */
  confirm(id: string, answer: { readonly decision: "allow" | "deny" }, options?: RequestOptions): Promise<Call>;
  /** Says what became of a call in `needs_reconciliation`. */
  reconcile(
    id: string,
    finding: { readonly outcome: "applied" | "not_applied" | "abandon"; readonly result?: unknown; readonly note?: string },
    options?: RequestOptions,
  ): Promise<Call>;
  readonly toolsets: ToolsetsClient;
  readonly bindings: BindingsClient;
  readonly keys: KeysClient;
  readonly runners: { list(options?: PageOptions): Promise<Page<Runner>> };
  /** Lets go of connections. Requests under way are `unreachable` or go on to their end. */
  close(): void;
}

/** Toolsets. */
export interface ToolsetsClient {
  list(options?: PageOptions): Promise<Page<Toolset>>;
  /** Default: the latest version. */
  get(id: string, options?: RequestOptions & { readonly version?: number }): Promise<Toolset>;
  versions(id: string, options?: PageOptions): Promise<Page<Toolset>>;
  /** Saves the next version. `baseVersion` is the one that was edited, 0 for the first; another save in between is `version_conflict`. */
  put(
    id: string,
    save: { readonly baseVersion: number; readonly tools: readonly ToolInput[]; readonly idempotencyKey?: string },
    options?: RequestOptions,
  ): Promise<Toolset>;
}

/** Bindings, and the keys of their runners. */
export interface BindingsClient {
  list(options?: PageOptions): Promise<Page<Binding>>;
  get(id: string, options?: RequestOptions): Promise<Binding>;
  put(
    id: string,
    binding: { readonly name: string; readonly kind: BindingKind; readonly limits?: Binding["limits"] },
    options?: RequestOptions,
  ): Promise<Binding>;
  readonly keys: {
    list(binding: string, options?: PageOptions): Promise<Page<Key>>;
    get(binding: string, keyId: string, options?: RequestOptions): Promise<Key>;
    create(binding: string, key?: { readonly name?: string }, options?: RequestOptions): Promise<CreatedKey>;
    /** Revokes it: its runners are disconnected within seconds. */
    delete(binding: string, keyId: string, options?: RequestOptions): Promise<Key>;
  };
}

/** Agent keys. */
export interface KeysClient {
  list(options?: PageOptions): Promise<Page<Key>>;
  get(keyId: string, options?: RequestOptions): Promise<Key>;
  create(key: { readonly scopes: readonly Scope[]; readonly name?: string }, options?: RequestOptions): Promise<CreatedKey>;
  /** Revokes it. */
  delete(keyId: string, options?: RequestOptions): Promise<Key>;
}
