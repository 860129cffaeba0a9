/** What the gateways may ask of the wire. HTTP and gRPC are two spellings of these operations. */

import type { BrokerFrame, FrameChannel, Receipt, RunnerFrame } from "@toolrunner/proto";
import type { CallEventView, CallFilter, CallView } from "../domain/call-view.js";
import type { FaultDetail } from "../domain/fault.js";
import type { AgentPrincipal, RunnerPrincipal } from "../domain/ports/access.js";
import type { Json, Page, PageRequest } from "../domain/ports/catalog.js";

/** Body of `POST /v1/calls`. `undefined` and absent are the same. Types are checked by the gateway's schema, meanings by the wire. */
export interface CreateCallBody {
  readonly toolset: string;
  readonly tool: string;
  readonly arguments: Json;
  readonly toolset_version?: number | undefined;
  readonly agent?: string | undefined;
  readonly release?: number | undefined;
  readonly subject?: string | undefined;
  readonly session?: string | undefined;
  readonly idempotency_key?: string | undefined;
  readonly timeout_seconds?: number | undefined;
  readonly wait_seconds?: number | undefined;
  readonly ordering_key?: string | undefined;
  readonly priority?: "interactive" | "background" | undefined;
  readonly max_attempts?: number | undefined;
  readonly audience?: string | undefined;
}

/** Says when nobody waits any more. An `AbortSignal` is one; there are lighter ones, and one is made for each call. */
export interface WaitSignal {
  readonly aborted: boolean;
  /** `listener` is called once, when {@link aborted} becomes true. */
  addEventListener(type: "abort", listener: () => void, options?: { readonly once?: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

export type WaitGoal = "answer" | "settled";
export type CancelMode = "kill" | "skip" | "killnowait";
export type ReconcileOutcome = "applied" | "not_applied" | "abandon";

/** All refusals are `BrokerError`s. Ids of another application are `not_found`, the same as unknown ones. */
export interface CallOperations {
  /**
   * Accepts the call, or finds the one with the same idempotency key, and waits up to `wait_seconds` for the turn's answer.
   * `signal` aborts the wait, not the call. Gateway: 200 when `answersTurn(view.state)`, else 202.
   */
  create(
    principal: AgentPrincipal,
    body: CreateCallBody,
    context: { readonly traceparent?: string | undefined; readonly signal?: WaitSignal | undefined },
  ): Promise<CallView>;
  get(
    principal: AgentPrincipal,
    callId: string,
    options: {
      readonly wait_seconds?: number | undefined;
      /** What ends the wait: the turn's answer (default), or settlement. */
      readonly wait_for?: WaitGoal | undefined;
      readonly signal?: WaitSignal | undefined;
    },
  ): Promise<CallView>;
  list(principal: AgentPrincipal, filter: CallFilter, page: PageRequest): Promise<Page<CallView>>;
  /** Events with `seq` above `afterSeq` that are known now. */
  listEvents(principal: AgentPrincipal, callId: string, afterSeq: number): Promise<readonly CallEventView[]>;
  /** The same, then live ones; ends after `settled` or when `signal` aborts. Rejects on the first `next()` when the call is not found. */
  watchEvents(principal: AgentPrincipal, callId: string, afterSeq: number, signal: WaitSignal): AsyncIterable<CallEventView>;
  readResult(
    principal: AgentPrincipal,
    callId: string,
    page: { readonly offset?: number | undefined; readonly max_bytes?: number | undefined },
  ): Promise<{ readonly text: string; readonly next_offset: number; readonly eof: boolean }>;
  /** `answered` false: the kill is under way (202). */
  cancel(
    principal: AgentPrincipal,
    callId: string,
    body: { readonly mode?: CancelMode | undefined; readonly reason?: string | undefined },
  ): Promise<{ readonly answered: boolean; readonly call: CallView }>;
  confirm(principal: AgentPrincipal, callId: string, body: { readonly decision: "allow" | "deny" }): Promise<CallView>;
  reconcile(
    principal: AgentPrincipal,
    callId: string,
    body: { readonly outcome: ReconcileOutcome; readonly result?: Json | undefined; readonly note?: string | undefined },
  ): Promise<CallView>;
}

/** Body of `POST /v1/calls/{id}/updates`. At least one of `text`, `percentage` and `data`. */
export interface UpdateBody {
  readonly text?: string | undefined;
  /** 0 to 100. */
  readonly percentage?: number | undefined;
  readonly data?: Json | undefined;
  readonly idempotency_key?: string | undefined;
}

/** Body of `POST /v1/calls/{id}/receipt`. */
export interface FinalReceiptBody {
  readonly outcome: "succeeded" | "failed" | "cancelled";
  /** With `succeeded`; absent: null. */
  readonly result?: Json | undefined;
  /** With `failed`. */
  readonly error?: { readonly code: string; readonly message: string; readonly details?: readonly FaultDetail[] | undefined } | undefined;
  /** With `cancelled`. */
  readonly message?: string | undefined;
  /** Of the grant that the work was begun for: an older one is refused, and the newest one's counts also before its handle arrived. */
  readonly fence?: number | undefined;
}

/** What is known of a final receipt that took effect; the same for every repeat of it. */
export interface FinalReceiptView {
  readonly type: "receipt";
  readonly call_id: string;
  readonly outcome: string;
  readonly digest: string;
  /** The call's state. */
  readonly state: string;
  readonly settled_at: string;
}

/** What the holder of a binding's key may say about its submitted calls. Calls of other bindings are `not_found`. */
export interface SubmissionOperations {
  /** Resolves with the event that agents see, once it is stored; the same one for a repeat of the same key. */
  update(principal: RunnerPrincipal, callId: string, body: UpdateBody): Promise<CallEventView>;
  /** Settles the call. A repeat is answered the same, another outcome is refused. */
  settle(principal: RunnerPrincipal, callId: string, body: FinalReceiptBody): Promise<FinalReceiptView>;
}

export interface RunnerView {
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

export interface RunnerOperations {
  /** Runners connected to any broker, newest first. */
  list(principal: AgentPrincipal, page: PageRequest): Promise<Page<RunnerView>>;
}

/** What a gateway knows about a connection before its hello. */
export interface RunnerConnection {
  /** From `authorization`, already checked; undefined: the credential must be in the hello. */
  readonly principal: RunnerPrincipal | undefined;
  /** Set when the connection came with an `Origin`: a browser. */
  readonly origin: string | undefined;
  readonly remoteAddress: string;
}

/** The broker's end of a session's channel. */
export type RunnerChannel = FrameChannel<RunnerFrame, BrokerFrame>;

export interface RunnerSessions {
  /** Serves one session over `channel` until it closed. Never rejects. */
  serve(channel: RunnerChannel, connection: RunnerConnection): Promise<void>;
}

/** The last request of a page that closes: receipts that it may not have brought to its session any more. */
export interface FlushRequest {
  readonly credential: string;
  readonly binding: string;
  /** "" on a backend. */
  readonly subject: string;
  readonly runnerId: string;
  readonly receipts: readonly Receipt[];
}

/** What came of one receipt of a flush. */
export type FlushedReceipt =
  | { readonly kind: "taken"; readonly disposition: "settled" | "repeated" | "evidence" | "expired" }
  /** Not well-formed: it cannot be taken, now or later. */
  | { readonly kind: "refused"; readonly message: string }
  /** What became of it is not known: it can be given again. */
  | { readonly kind: "failed"; readonly error: unknown };

export interface RunnerFlush {
  /** Takes each receipt as it would be taken from a frame; answers in their order. Rejects with a `BrokerError` when none may be taken. */
  flush(request: FlushRequest): Promise<readonly FlushedReceipt[]>;
}
