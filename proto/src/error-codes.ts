/**
 * Every refusal and failure that crosses a boundary has one code from this closed table.
 * Source of `docs/errors.md`. `http` is null, and there is no gRPC status, where a code only appears inside a call or a session.
 */
import { GRPC_STATUS, type GrpcStatusName } from "./grpc-status.js";

/** Families of codes; `error.type` of the interface. */
export type ErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "not_found_error"
  /** Was there, and is not any more. */
  | "expired_error"
  | "conflict_error"
  | "too_large_error"
  | "rate_limit_error"
  | "unavailable_error"
  | "internal_error"
  /** Why a call settled as it did; never an HTTP refusal. */
  | "call_error"
  /** Why a runner session or one of its frames was refused. */
  | "session_error";

interface ErrorRow {
  readonly type: ErrorType;
  /** Status of the HTTP answer. */
  readonly http: number | null;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  readonly meaning: string;
  /** What the reader should do. */
  readonly action: string;
}

const row = (type: ErrorType, http: number | null, retryable: boolean, meaning: string, action: string): ErrorRow => ({
  type,
  http,
  retryable,
  meaning,
  action,
});

/** The closed table: every code with its type, HTTP status, meaning and what to do. */
export const ERROR_CODES = {
  // refused before anything was stored
  body_invalid: row(
    "invalid_request_error",
    400,
    false,
    "The body is not JSON or does not have the expected form.",
    "Correct the fields named in details.",
  ),
  field_unknown: row(
    "invalid_request_error",
    400,
    false,
    "The body or query has a field that this call does not know.",
    "Remove the field named in details.",
  ),
  arguments_invalid: row(
    "invalid_request_error",
    400,
    false,
    "The arguments break the tool's input schema.",
    "Correct every path named in details and call again.",
  ),
  page_invalid: row(
    "invalid_request_error",
    400,
    false,
    "The page token is unknown or belongs to other filters.",
    "List again from the first page with the same filters.",
  ),
  subject_required: row(
    "invalid_request_error",
    400,
    false,
    "The tool runs on a browser or desktop binding and the call names no subject.",
    "Send subject.",
  ),
  tool_invalid: row("invalid_request_error", 400, false, "A tool of the toolset has a fault.", "Correct every path named in details."),
  binding_unknown: row(
    "invalid_request_error",
    400,
    false,
    "A tool names a binding that is not registered.",
    "Register the binding first.",
  ),
  id_invalid: row("invalid_request_error", 400, false, "An id does not have the form [a-z][a-z0-9_-]{0,63}.", "Choose another id."),
  release_unsupported: row(
    "invalid_request_error",
    400,
    false,
    "The call names a release and this broker keeps none.",
    "Leave the field out.",
  ),
  upgrade_invalid: row(
    "invalid_request_error",
    400,
    false,
    "The handshake of a WebSocket has a fault.",
    "Correct what the message names; offer one of the subprotocols toolrunner.v1.proto and toolrunner.v1.json.",
  ),
  key_missing: row("authentication_error", 401, false, "The request has no key.", "Send Authorization: Bearer KEY."),
  key_invalid: row("authentication_error", 401, false, "The key is wrong, revoked or of another kind.", "Use a valid key."),
  scope_missing: row(
    "permission_error",
    403,
    false,
    "The key does not hold the scope that this call needs.",
    "Use a key with the scope named in the message.",
  ),
  origin_not_permitted: row(
    "permission_error",
    403,
    false,
    "The request's Host or Origin is not allowed here.",
    "Start the broker with --allow-origin.",
  ),
  not_found: row("not_found_error", 404, false, "There is nothing here with this id, or it is not yours.", "Check the id."),
  call_expired: row(
    "expired_error",
    410,
    false,
    "The call settled so long ago that it is being removed with its result.",
    "Nothing is left to read. The same idempotency key now makes a new call.",
  ),
  route_unknown: row("not_found_error", 404, false, "There is no such address or method.", "See /openapi.json."),
  toolset_unknown: row("not_found_error", 404, false, "There is no such toolset, or it is not yours.", "Check the toolset's id."),
  toolset_version_unknown: row("not_found_error", 404, false, "The toolset has no such version.", "List its versions."),
  tool_unknown: row("not_found_error", 404, false, "The toolset has no tool of this name.", "List the toolset's tools."),
  idempotency_conflict: row(
    "conflict_error",
    409,
    false,
    "The idempotency key was used for another request.",
    "Use a new key for a new request.",
  ),
  version_conflict: row(
    "conflict_error",
    409,
    false,
    "Another save came first.",
    "Read the current version, apply your change to it and save again.",
  ),
  binding_kind_conflict: row("conflict_error", 409, false, "The binding exists with another kind.", "Use another binding id."),
  not_cancellable: row(
    "conflict_error",
    409,
    false,
    "The handler that runs the call cannot be cancelled.",
    "Wait for it, or cancel with mode skip or killnowait.",
  ),
  not_reconcilable: row("conflict_error", 409, false, "The call does not wait for reconciliation.", "Read the call's state."),
  not_awaiting_confirmation: row("conflict_error", 409, false, "The call does not wait for a confirmation.", "Read the call's state."),
  not_submitted: row(
    "conflict_error",
    409,
    false,
    "The call is open and not submitted: the handle that its runner returned has not arrived.",
    "Repeat it in a moment, or name the fence of the grant that the work was begun for.",
  ),
  call_settled: row("conflict_error", 409, false, "The call is settled: it takes no more updates.", "Read the call's state."),
  receipt_conflict: row(
    "conflict_error",
    409,
    false,
    "The call is settled with another outcome. What came now is kept as evidence.",
    "Read the call's state.",
  ),
  fence_stale: row(
    "conflict_error",
    409,
    false,
    "The fence is not that of the call's newest grant: the call was granted again since.",
    "Give the work up; the newer grant decides.",
  ),
  updates_exhausted: row(
    "conflict_error",
    409,
    false,
    "The call has as many updates as it may have.",
    "Send no more; the final receipt is taken all the same.",
  ),
  update_too_large: row(
    "too_large_error",
    413,
    false,
    "The text and data of the update are over the limit.",
    "Send less; the message names bytes and limit.",
  ),
  result_over_limit: row(
    "too_large_error",
    413,
    false,
    "The result is over the limit.",
    "Send a reference to it; the message names bytes and limit.",
  ),
  body_too_large: row("too_large_error", 413, false, "The body is over the limit.", "Send less; the message names bytes and limit."),
  arguments_too_large: row(
    "too_large_error",
    413,
    false,
    "The arguments are over the limit.",
    "Send less; the message names the tool, bytes and limit.",
  ),
  schema_too_large: row(
    "too_large_error",
    413,
    false,
    "A schema of the tool is over the limit of size or depth.",
    "Make it smaller; the message names the tool, bytes and limit.",
  ),
  queue_full: row(
    "rate_limit_error",
    429,
    true,
    "As many calls wait as the limits of the binding or the tool allow.",
    "Wait for retry-after, then repeat with the same idempotency key.",
  ),
  rate_limited: row("rate_limit_error", 429, true, "Too many requests.", "Wait for retry-after."),
  ledger_away: row(
    "unavailable_error",
    503,
    true,
    "The broker cannot reach its ledger: the call may be stored.",
    "Repeat with the same idempotency key.",
  ),
  draining: row("unavailable_error", 503, true, "This broker is shutting down.", "Repeat with the same idempotency key at another broker."),
  index_away: row(
    "unavailable_error",
    503,
    true,
    "This broker keeps no index of calls and no other one answered.",
    "Repeat later, or at a broker with an index.",
  ),
  internal: row(
    "internal_error",
    500,
    true,
    "Something failed inside the broker; its log has the request id.",
    "Repeat with the same idempotency key; report the request id.",
  ),

  // why a call settled
  handler_error: row("call_error", null, false, "The handler threw.", "Read the message."),
  result_invalid: row(
    "call_error",
    null,
    false,
    "The result breaks the tool's output schema; it is kept.",
    "Correct the handler or the schema.",
  ),
  result_not_json: row(
    "call_error",
    null,
    false,
    "The handler returned something that JSON cannot hold.",
    "Return plain JSON values; the message names the path.",
  ),
  result_too_large: row(
    "call_error",
    null,
    false,
    "The result is over the limit.",
    "Return less; the message names the tool, bytes and limit.",
  ),
  attempts_exhausted: row("call_error", null, false, "Every attempt that the call had was used up.", "Look at the call's events."),
  not_applied: row(
    "call_error",
    null,
    false,
    "The call was found not to have been applied, and neither time nor attempts were left.",
    "Call again.",
  ),
  outcome_unknown: row(
    "call_error",
    null,
    false,
    "Nobody knows whether the call was applied.",
    "Do not repeat it blindly; look at the system that it acts on.",
  ),
  call_timed_out: row("call_error", null, false, "The call's time was up.", "Call again with more time, or see why no runner took it."),
  call_cancelled: row("call_error", null, false, "The call was cancelled.", "Nothing; it was asked for."),
  confirmation_denied: row("call_error", null, false, "A person refused the call.", "Do not try it again unasked."),
  confirmation_expired: row("call_error", null, false, "Nobody confirmed the call in time.", "Ask the person, then call again."),
  no_longer_authorized: row(
    "call_error",
    null,
    false,
    "The key that made the call was revoked before a runner took it.",
    "Do not try it again unasked.",
  ),
  forbidden: row("call_error", null, false, "The product that runs the tool does not allow this call.", "Do not try it again unasked."),

  // runner sessions
  protocol_version_unsupported: row(
    "session_error",
    null,
    false,
    "Broker and runner share no protocol version.",
    "Update the one that is older.",
  ),
  hello_expected: row("session_error", null, false, "The first frame of a session is a hello, and only the first.", "Correct the client."),
  hello_invalid: row("session_error", null, false, "The hello has a fault.", "Correct the field named in the message."),
  frame_unknown: row(
    "session_error",
    null,
    false,
    "The frame has a kind that this side does not know.",
    "Use what the chosen protocol version has.",
  ),
  frame_invalid: row("session_error", null, false, "A field of the frame has a fault.", "Correct the field named in the message."),
  credential_invalid: row(
    "session_error",
    null,
    false,
    "The runner's credential is missing, wrong, revoked or expired.",
    "Use a valid runner key.",
  ),
  binding_not_permitted: row("session_error", null, false, "The runner key is for another binding.", "Use a key of this binding."),
  credential_not_permitted: row(
    "session_error",
    null,
    false,
    "The credential is for another application, binding or subject than the session.",
    "Send a credential for what the session serves, or connect anew with this one.",
  ),
  subject_token_required: row(
    "session_error",
    null,
    false,
    "A browser or desktop runner must prove its subject, and a runner key cannot.",
    "Use the development broker until subject tokens exist.",
  ),
} as const satisfies Record<string, ErrorRow>;

/** A code of the table. */
export type ErrorCode = keyof typeof ERROR_CODES;

/** gRPC status of each refusal's type; null for types that are never a refusal of a request. */
export const GRPC_STATUS_OF_ERROR_TYPE = {
  invalid_request_error: "INVALID_ARGUMENT",
  authentication_error: "UNAUTHENTICATED",
  permission_error: "PERMISSION_DENIED",
  not_found_error: "NOT_FOUND",
  // gRPC does not tell the two apart
  expired_error: "NOT_FOUND",
  // ABORTED would ask generic clients to repeat
  conflict_error: "FAILED_PRECONDITION",
  // RESOURCE_EXHAUSTED stays apart for what passes by waiting
  too_large_error: "OUT_OF_RANGE",
  rate_limit_error: "RESOURCE_EXHAUSTED",
  unavailable_error: "UNAVAILABLE",
  internal_error: "INTERNAL",
  call_error: null,
  session_error: null,
} as const satisfies Record<ErrorType, GrpcStatusName | null>;

/** Number of the gRPC status with which a request is refused for `code`; null when `code` never refuses a request. */
export function grpcStatusOfError(code: ErrorCode): number | null {
  const name = GRPC_STATUS_OF_ERROR_TYPE[ERROR_CODES[code].type];
  return name === null ? null : GRPC_STATUS[name];
}

/** Whether `code` is in the table. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERROR_CODES, code);
}
