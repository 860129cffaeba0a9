/** What handlers and `authorize` see of a call, and the answers that they can give. */
import type { ToolError } from "./errors.js";

/** Why `ctx.signal` aborted: `ctx.signal.reason` is an {@link AbortReason} error with this as its `code`. */
export type AbortCode = "cancelled" | "lease_lost" | "deadline" | "revoked" | "draining" | "ended";

/** The reason of an aborted `ctx.signal`. Its name is `AbortError`, as platform functions that take the signal expect. */
export class AbortReason extends Error {
  override readonly name = "AbortError";
  constructor(
    readonly code: AbortCode,
    message: string,
  ) {
    super(message);
  }
}

/** The broker's permission to run this call once. */
export interface GrantFacts {
  readonly grantId: string;
  readonly toolset: string;
  readonly toolsetVersion: number;
  /** Agent session, "" without one. */
  readonly session: string;
  /** W3C trace context, "" without one. */
  readonly traceparent: string;
  /** Signed form of the grant for a product's backend, "" where the broker signs none. */
  readonly token: string;
  /** Names the journal of the runner that holds the grant. */
  readonly journalId: string;
}

/** What is known about a call before its handler runs. */
export interface CallContext {
  readonly callId: string;
  readonly tool: string;
  readonly version: string;
  /** Counts from 1 over all grants that used up an attempt. */
  readonly attempt: number;
  /** Rises with every grant of the call: hand it to what you write to, and let that refuse an older one. */
  readonly fence: number;
  /** The same for every attempt of the call: for use with downstream systems. */
  readonly idempotencyKey: string;
  readonly grant: GrantFacts;
  /** The end user on whose behalf the call runs, "" without one. */
  readonly subject: string;
  readonly agent: string;
  readonly scopes: readonly string[];
  /** When the call is timed out, by this machine's wall clock. */
  readonly deadline: Date;
  /** Aborts when there is no point in going on, and with `ended` once the handler has returned anything but a submission; see {@link AbortCode}. */
  readonly signal: AbortSignal;
}

/** The context of {@link RunnerOptions.authorize}. */
export interface AuthorizeContext extends CallContext {
  readonly arguments: unknown;
}

/** The context of a `reconcile` handler: the call whose start this runner's journal has, and whose outcome nobody knows. */
export interface ReconcileContext extends CallContext {
  /** What `run` was given. */
  readonly arguments: unknown;
  /** When `run` began, by this machine's wall clock then. */
  readonly startedAt: Date;
}

/** A piece of news about a running call. */
export interface ProgressUpdate {
  readonly text?: string;
  /** 0 to 100. */
  readonly percentage?: number;
  /** Any JSON value. */
  readonly data?: unknown;
}

/** The context of a handler. */
export interface ToolContext extends CallContext {
  /**
   * Tells the agent how far the call is. Never throws and never waits: an update that is over 16 KiB, not JSON, or
   * not deliverable right now is dropped, and the log says so. Updates after the handler ended are dropped.
   */
  progress(update: ProgressUpdate): void;
  /**
   * Ends the turn of a tool with `resultSemantics: "submission"`: return what this returns. The final outcome follows by
   * `runner.settle(callId, …)`, news on the way by `runner.update(callId, …)`. A `signal` that was looked at before stays alive: it
   * aborts when the submitted call is cancelled, or its time is up. Throws in a tool of another kind.
   */
  submit(handle: unknown): Submission;
}

/** Made by {@link ToolContext.submit}. */
export class Submission {
  readonly kind = "submission";
  /** @internal */
  constructor(readonly handle: unknown) {}
}

/** An answer of `authorize`. */
export type Authorization = { readonly kind: "allow" } | { readonly kind: "forbid"; readonly reason: string };

/** `authorize` lets the handler run. */
export function allow(): Authorization {
  return { kind: "allow" };
}

/** `authorize` refuses: the call settles as denied with code `forbidden`, and the handler never counts as started (R11). */
export function forbid(reason: string): Authorization {
  return { kind: "forbid", reason };
}

/** An answer of a `reconcile` handler. */
export type Reconciliation =
  | { readonly kind: "applied"; readonly result: unknown }
  | { readonly kind: "not_applied" }
  | { readonly kind: "unknown" };

/** `reconcile` found that the call was applied, with this result. */
export function applied(result: unknown): Reconciliation {
  return { kind: "applied", result };
}

/** `reconcile` found that the call was not applied: it can be run again. */
export function notApplied(): Reconciliation {
  return { kind: "not_applied" };
}

/** `reconcile` cannot tell: a person has to. */
export function unknown(): Reconciliation {
  return { kind: "unknown" };
}

/** The final outcome of a submitted call, for `runner.settle`. */
export type Settlement =
  | { readonly kind: "succeeded"; readonly result: unknown }
  | { readonly kind: "failed"; readonly error: ToolError }
  | { readonly kind: "cancelled"; readonly message?: string };
