/** The call as agents see it; field names are the contract of the HTTP interface. */

import type { FaultDetail } from "./fault.js";
import type { Json } from "./ports/catalog.js";

export const OPEN_STATES = ["awaiting_confirmation", "queued", "running", "submitted", "needs_reconciliation"] as const;
export const SETTLED_STATES = ["succeeded", "failed", "cancelled", "timed_out", "denied"] as const;
export const CALL_STATES = [...OPEN_STATES, ...SETTLED_STATES] as const;
export type OpenStateName = (typeof OPEN_STATES)[number];
export type SettledStateName = (typeof SETTLED_STATES)[number];
export type CallStateName = OpenStateName | SettledStateName;

export type WaitingFor = "runner" | "handler" | "capacity" | "confirmation" | "order";

export interface CallErrorView {
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  readonly retry_after_seconds: number | null;
  readonly details: readonly FaultDetail[];
}

export interface CallView {
  readonly type: "call";
  readonly id: string;
  readonly state: CallStateName;
  readonly toolset: string;
  readonly toolset_version: number;
  readonly tool: string;
  readonly binding: string;
  readonly agent: string | null;
  readonly subject: string | null;
  readonly session: string | null;
  readonly attempt: number;
  readonly waiting_for: WaitingFor | null;
  readonly created_at: string;
  readonly deadline_at: string | null;
  readonly settled_at: string | null;
  readonly receipt: {
    readonly attempt: number;
    readonly fence: number;
    readonly outcome: string;
    readonly runner_id: string;
    readonly received_at: string;
    readonly digest: string;
  } | null;
  /** Left out (undefined) when it is over 256 KiB: `result_ref` is then its address. Null when there is none. */
  readonly result?: Json;
  readonly result_ref: string | null;
  readonly error: CallErrorView | null;
  readonly model_result: {
    readonly text: string;
    readonly bytes_before: number;
    readonly bytes_after: number;
    readonly truncated: boolean;
  } | null;
}

export const EVENT_NAMES = [
  "requested",
  "confirmation_requested",
  "confirmed",
  "queued",
  "waiting",
  "granted",
  "started",
  "progress",
  "lease_lost",
  "retry_scheduled",
  "submitted",
  "needs_reconciliation",
  "cancel_requested",
  "cancel_delivered",
  "cancel_ignored",
  "late_receipt",
  "settled",
] as const;
export type EventName = (typeof EVENT_NAMES)[number];

export interface CallEventView {
  readonly type: "event";
  readonly call_id: string;
  readonly seq: number;
  readonly at: string;
  readonly event: EventName;
  readonly data: { readonly [key: string]: Json };
}

export function isSettled(state: CallStateName): state is SettledStateName {
  return (SETTLED_STATES as readonly string[]).includes(state);
}

/** The agent's turn gets the first of settled, submitted, needs_reconciliation (I6). */
export function answersTurn(state: CallStateName): boolean {
  return isSettled(state) || state === "submitted" || state === "needs_reconciliation";
}

/** Fields that calls are listed by; all that are given must match. The same as the query of `GET /v1/calls`. */
export interface CallFilter {
  readonly state?: CallStateName | undefined;
  readonly tool?: string | undefined;
  readonly toolset?: string | undefined;
  readonly binding?: string | undefined;
  readonly agent?: string | undefined;
  readonly subject?: string | undefined;
  readonly session?: string | undefined;
}
