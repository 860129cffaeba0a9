/** From the state of a call to what agents see of it. */

import type { CallErrorView, CallEventView, CallView, WaitingFor } from "../call-view.js";
import { isoTime } from "../iso-time.js";
import { RESULT_INLINE_BYTES_MAX } from "../limits.js";
import type { Json } from "../ports/catalog.js";
import { type CallError, type CallRecord, type CallState, isSettledState, type ReceiptFacts, type StoredText } from "./call-state.js";
import { project } from "./projection.js";
import type { CallEvent } from "./transition.js";

export interface ViewOptions {
  /** What a queued call waits for, where its driver knows better than the log. */
  readonly waitingFor?: WaitingFor | null;
  /** The text of a result or handle that is stored as a blob; needed when there is one. */
  readonly blobText?: string | undefined;
  /** Text for the model where there is no result. */
  readonly modelText: (code: string, message: string) => string;
}

export function resultRef(callId: string): string {
  return `/v1/calls/${callId}/result`;
}

/** The value that the call shows: its result, or the handle of a submission. */
export function storedValueOf(state: CallState): StoredText | null {
  if (state.kind === "submitted") {
    return state.handle;
  }
  return isSettledState(state) ? state.settlement.result : null;
}

export function callView(state: Exclude<CallState, { kind: "requested" }>, options: ViewOptions): CallView {
  const { record } = state;
  const { request } = record;
  const settlement = isSettledState(state) ? state.settlement : null;
  const value = storedValueOf(state);
  const error = settlement?.error ?? null;
  const json = value === null ? null : textOf(value, options);
  const large = value !== null && value.bytes > RESULT_INLINE_BYTES_MAX;
  const receipt = state.kind === "submitted" ? state.receipt : (settlement?.receipt ?? null);
  return {
    type: "call",
    id: request.callId,
    state: state.kind,
    toolset: request.toolset,
    toolset_version: request.toolsetVersion,
    tool: request.tool,
    binding: request.binding,
    agent: request.agent,
    subject: request.subject,
    session: request.session,
    attempt: record.attempts,
    waiting_for: waitingFor(state, options),
    created_at: isoTime(request.createdAtMs),
    deadline_at: record.deadlineAtMs === null ? null : isoTime(record.deadlineAtMs),
    settled_at: settlement === null ? null : isoTime(settlement.atMs),
    receipt: receipt === null ? null : receiptView(receipt),
    ...(large ? {} : { result: json === null ? null : (JSON.parse(json) as Json) }),
    result_ref: large ? resultRef(request.callId) : null,
    error: error === null ? null : errorView(error),
    model_result: modelResult(state, record, json, error, options),
  };
}

function textOf(value: StoredText, options: ViewOptions): string {
  if (value.kind === "inline") {
    return value.json;
  }
  if (options.blobText === undefined) {
    // Without it the view would tell the model that the result is null.
    throw new Error(`the text of blob ${value.name} was not loaded for the view of its call`);
  }
  return options.blobText;
}

function waitingFor(state: CallState, options: ViewOptions): WaitingFor | null {
  if (state.kind === "awaiting_confirmation") {
    return "confirmation";
  }
  return state.kind === "queued" ? (options.waitingFor ?? state.waitingFor) : null;
}

function modelResult(
  state: CallState,
  record: CallRecord,
  json: string | null,
  error: CallError | null,
  options: ViewOptions,
): CallView["model_result"] {
  const { callId, modelResultBytesMax } = record.request;
  if (state.kind === "succeeded" || state.kind === "submitted") {
    const shown = project(json ?? "null", modelResultBytesMax, resultRef(callId));
    return { text: shown.text, bytes_before: shown.bytesBefore, bytes_after: shown.bytesAfter, truncated: shown.truncated };
  }
  if (state.kind === "needs_reconciliation") {
    return plainModelResult(options.modelText("outcome_unknown", state.cause), modelResultBytesMax, callId);
  }
  return error === null ? null : plainModelResult(options.modelText(error.code, error.message), modelResultBytesMax, callId);
}

function plainModelResult(text: string, budgetBytes: number, callId: string): NonNullable<CallView["model_result"]> {
  const shown = project(text, budgetBytes, resultRef(callId));
  return { text: shown.text, bytes_before: shown.bytesBefore, bytes_after: shown.bytesAfter, truncated: shown.truncated };
}

function receiptView(receipt: ReceiptFacts): NonNullable<CallView["receipt"]> {
  return {
    attempt: receipt.attempt,
    fence: receipt.fence,
    outcome: receipt.outcome,
    runner_id: receipt.runnerId,
    received_at: isoTime(receipt.receivedAtMs),
    digest: receipt.digest,
  };
}

export function errorView(error: CallError): CallErrorView {
  return {
    code: error.code,
    message: error.message,
    retryable: error.retryable,
    retry_after_seconds: error.retryAfterMs === null ? null : error.retryAfterMs / 1_000,
    details: error.details,
  };
}

export function eventView(callId: string, event: CallEvent): CallEventView {
  return { type: "event", call_id: callId, seq: event.seq, at: isoTime(event.atMs), event: event.event, data: event.data };
}
