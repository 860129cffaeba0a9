/** What the broker answers: its JSON, field by field as in the HTTP interface. Times are RFC 3339. */

/** Any JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** States in which something may still happen by itself, or by somebody's answer. */
export type OpenCallState = "awaiting_confirmation" | "queued" | "running" | "submitted" | "needs_reconciliation";
/** States that never change. */
export type SettledCallState = "succeeded" | "failed" | "cancelled" | "timed_out" | "denied";
/** State of a call. */
export type CallState = OpenCallState | SettledCallState;

/** Why a call settled as it did. */
export interface CallError {
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  readonly retry_after_seconds: number | null;
  readonly details: readonly { readonly path: string; readonly expected: string; readonly actual: string }[];
}

/** The runner's statement of what came of a grant. */
export interface CallReceipt {
  readonly attempt: number;
  readonly fence: number;
  readonly outcome: string;
  readonly runner_id: string;
  readonly received_at: string;
  readonly digest: string;
}

/** The part of the result that the model sees. */
export interface ModelResult {
  /** Compact JSON of the result, or its cut form; without a result a short text that the model can act on. */
  readonly text: string;
  readonly bytes_before: number;
  readonly bytes_after: number;
  readonly truncated: boolean;
}

/** One request to run a tool. */
export interface Call {
  readonly type: "call";
  readonly id: string;
  readonly state: CallState;
  readonly toolset: string;
  readonly toolset_version: number;
  readonly tool: string;
  readonly binding: string;
  readonly agent: string | null;
  readonly subject: string | null;
  readonly session: string | null;
  readonly attempt: number;
  readonly waiting_for: "runner" | "handler" | "capacity" | "confirmation" | "order" | null;
  readonly created_at: string;
  readonly deadline_at: string | null;
  readonly settled_at: string | null;
  readonly receipt: CallReceipt | null;
  /** Null until there is one; left out over 256 KiB: read it with `wholeResult` or `result`. In `submitted`: the handle. */
  readonly result?: Json;
  /** Address of a result that is left out. */
  readonly result_ref: string | null;
  readonly error: CallError | null;
  readonly model_result: ModelResult | null;
}

/** Something that happened to a call. More names may come: ignore those you do not know. */
export interface CallEvent {
  readonly type: "event";
  readonly call_id: string;
  /** Starts at 1 and rises; only progress may leave gaps. */
  readonly seq: number;
  readonly at: string;
  readonly event: string;
  readonly data: { readonly [key: string]: Json };
}

/** A page of a list, newest first. */
export interface Page<T> {
  readonly data: readonly T[];
  /** For the `page` of the next request with the same filters; null at the end. */
  readonly next_page: string | null;
}

/** A part of the compact JSON of a result. */
export interface ResultPage {
  readonly text: string;
  /** In bytes. */
  readonly next_offset: number;
  readonly eof: boolean;
}

/** Where a binding's tools run. */
export type BindingKind = "browser" | "desktop" | "backend";

/** A registered place where tools run. */
export interface Binding {
  readonly id: string;
  readonly name: string;
  readonly kind: BindingKind;
  /** How many calls run at once, and how many wait before more are refused. Absent: no limits. */
  readonly limits?: { readonly concurrency?: number; readonly queue?: number };
  readonly created_at: string;
}

/** A tool of a toolset. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly input_schema: Json;
  readonly output_schema: Json | null;
  readonly binding: string;
  readonly behaviour: "read_only" | "write";
  readonly confirmation: "never" | "always";
  readonly result_semantics: "completion" | "submission";
  /** How long a submitted call waits for its final receipt; absent: 7 days. */
  readonly submission_timeout_seconds?: number;
  readonly max_result_context_bytes: number;
  /** Of the handler. */
  readonly version: string;
  readonly timeout_seconds: number;
  readonly idempotent: boolean;
  readonly cancellable: boolean;
  readonly scopes: readonly string[];
}

/** A tool as it is saved: what is left out gets its default. */
export type ToolInput = Pick<Tool, "name" | "description" | "input_schema" | "binding"> & Partial<Tool>;

/** One immutable version of a toolset. */
export interface Toolset {
  readonly id: string;
  readonly version: number;
  readonly content_hash: string;
  readonly created_at: string;
  readonly tools: readonly Tool[];
}

/** What a key may do. */
export type Scope = "calls:write" | "calls:read" | "confirm" | "catalog:write" | "diagnostics:read" | "admin";

/** What is known of a key. */
export interface Key {
  readonly id: string;
  readonly name: string | null;
  /** Of agent keys. */
  readonly scopes?: readonly Scope[];
  /** Of runner keys. */
  readonly binding?: string;
  readonly created_at: string;
  readonly revoked_at: string | null;
}

/** A new key: `key` is shown this once. */
export interface CreatedKey extends Key {
  readonly key: string;
}

/** A connected runner. */
export interface Runner {
  readonly runner_id: string;
  readonly binding: string;
  readonly subject: string | null;
  readonly broker_id: string;
  readonly session_epoch: number;
  readonly transport: string;
  readonly sdk: string;
  readonly connected_at: string;
  readonly slots: number;
  readonly grants_held: number;
  readonly handlers: readonly {
    readonly tool: string;
    readonly version: string;
    readonly idempotent: boolean;
    readonly cancellable: boolean;
  }[];
}

const SETTLED: ReadonlySet<string> = new Set<SettledCallState>(["succeeded", "failed", "cancelled", "timed_out", "denied"]);

/** Whether a call can no longer change. */
export function isSettled(call: Pick<Call, "state">): boolean {
  return SETTLED.has(call.state);
}

/** Whether the agent's turn has its answer: the call is settled, submitted, or of unknown outcome. */
export function answersTurn(call: Pick<Call, "state">): boolean {
  return isSettled(call) || call.state === "submitted" || call.state === "needs_reconciliation";
}
