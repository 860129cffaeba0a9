/** The one error of this package. */

import { ERROR_CODES, isErrorCode } from "@toolrunner/proto";

/** What is wrong with one part of a request. */
export interface ErrorDetail {
  /** JSON Pointer. */
  readonly path: string;
  readonly expected: string;
  readonly actual: string;
}

/**
 * Codes that the broker never sends:
 * - `unreachable`: nobody answered, for as long as it was tried; a request may have been carried out;
 * - `aborted`: the caller's signal aborted; a call that was started goes on;
 * - `answer_invalid`: what answered is no ToolRunner broker, or a much newer one;
 * - `options_invalid`: the client was made or used wrongly;
 * - `unsupported`: the transport does not carry this operation.
 */
export type LocalErrorCode = "unreachable" | "aborted" | "answer_invalid" | "options_invalid" | "unsupported";

/** Everything about a failure but its text. */
export interface ToolRunnerErrorFields {
  /** `local_error` for the codes of {@link LocalErrorCode}. */
  readonly type?: string;
  /** HTTP status; over gRPC the one that HTTP would have had. */
  readonly status?: number | undefined;
  readonly details?: readonly ErrorDetail[];
  readonly requestId?: string | undefined;
  readonly retryAfterSeconds?: number | undefined;
  /** Further fields of the error object, such as `current_version`. */
  readonly extra?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

/** A refusal of the broker, or the reason why there is no answer. The only error that a client throws. */
export class ToolRunnerError extends Error {
  override readonly name = "ToolRunnerError";
  /** A code of the broker's error table, or a {@link LocalErrorCode}. */
  readonly code: string;
  /** Such as `invalid_request_error`; `local_error` when the broker had no part in it. */
  readonly type: string;
  /** HTTP status of the refusal; undefined when nobody answered. */
  readonly status: number | undefined;
  readonly details: readonly ErrorDetail[];
  /** Finds the broker's log line. */
  readonly requestId: string | undefined;
  /** Whether the same request, with the same idempotency key, may succeed later. */
  readonly retryable: boolean;
  readonly retryAfterSeconds: number | undefined;
  readonly extra: Readonly<Record<string, unknown>>;

  constructor(code: string, message: string, fields: ToolRunnerErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = code;
    this.type = fields.type ?? "local_error";
    this.status = fields.status;
    this.details = fields.details ?? [];
    this.requestId = fields.requestId;
    this.retryable = code === "unreachable" || (isErrorCode(code) && ERROR_CODES[code].retryable);
    this.retryAfterSeconds = fields.retryAfterSeconds;
    this.extra = fields.extra ?? {};
  }
}

/** The caller's signal aborted. */
export function abortedError(signal: AbortSignal): ToolRunnerError {
  return new ToolRunnerError("aborted", "The caller's signal aborted: a call that was started goes on.", { cause: signal.reason });
}

/** Text of whatever was thrown. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
