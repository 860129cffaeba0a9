/** Local errors of the SDK: each has a string code, says what was wrong, where, and what to do. None of them crosses the wire. */
/** A fault in the options or in a tool, found by `defineTool` or `createRunner` before anything connects (R6). */
export class RunnerConfigError extends Error {
  override readonly name = "RunnerConfigError";
  constructor(
    readonly code:
      | "tool_invalid"
      | "tool_name_invalid"
      | "tool_version_invalid"
      | "tool_duplicate"
      | "schema_invalid"
      | "schema_without_json_schema"
      | "options_invalid"
      | "place_unsupported",
    message: string,
    /** Name of the tool at fault; null when the fault is not in a tool. */
    readonly tool: string | null = null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The broker refused the session for good: the runner does not redial. */
export class RunnerRefusedError extends Error {
  override readonly name = "RunnerRefusedError";
  constructor(
    /** From the error table where the broker sent a refusal, else the name of the close code. */
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** A new credential was not taken; the session goes on with the one it has. */
export class CredentialError extends Error {
  override readonly name = "CredentialError";
  constructor(
    /** From the error table where the broker refused it, such as `credential_invalid`; else `credential_unanswered`. */
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The runner was stopped before what was asked could be done. */
export class RunnerStoppedError extends Error {
  override readonly name = "RunnerStoppedError";
  readonly code = "runner_stopped";
}

/** A journal that cannot be taken, read or written. */
export class JournalError extends Error {
  override readonly name = "JournalError";
  constructor(
    readonly code: "journal_in_use" | "journal_corrupt" | "journal_unwritable" | "journal_closed",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A transport could not make a channel. Thrown by `Transport.connect`; anything else it throws counts as retryable. */
export class ConnectError extends Error {
  override readonly name = "ConnectError";
  constructor(
    message: string,
    /** Close code whose redial rule applies; null for a broken or absent connection. */
    readonly closeCode: number | null,
    /** Earliest next attempt, in ms from now; 0 when the other side named none. */
    readonly retryAfterMs: number = 0,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A value that JSON cannot hold (R7). `path` is a JSON Pointer to it, "" for the value itself. */
export class NotJsonError extends Error {
  override readonly name = "NotJsonError";
  readonly code = "result_not_json";
  constructor(
    readonly path: string,
    /** What was found there, such as "a BigInt" or "a cycle". */
    readonly found: string,
    options?: ErrorOptions,
  ) {
    super(
      `${found} at ${path === "" ? "the root" : path} cannot be written as JSON: return plain objects, arrays, strings, finite numbers, booleans and null`,
      options,
    );
  }
}

/**
 * `settle` or `update` was called for a call that does not take it:
 * - `submission_unknown`: the journal (`settle`) or the broker (`update`) knows no such submission of this runner's binding;
 * - `submission_settled`: it has its final outcome already;
 * - `result_too_large`, `update_too_large`: over the limit; `update_invalid`: not JSON, or it says nothing;
 * - `updates_exhausted`: the call has as many updates as it may have;
 * - `updates_waiting`: too many updates wait for a broker;
 * - `updates_unsupported`: the broker is older than this SDK and takes none.
 */
export class SubmissionError extends Error {
  override readonly name = "SubmissionError";
  constructor(
    readonly code:
      | "submission_unknown"
      | "submission_settled"
      | "result_too_large"
      | "update_invalid"
      | "update_too_large"
      | "updates_exhausted"
      | "updates_waiting"
      | "updates_unsupported",
    message: string,
    readonly callId: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** One thing that is wrong, for people and models. `path` is a JSON Pointer. */
export interface ToolErrorDetail {
  readonly path: string;
  readonly expected: string;
  readonly actual: string;
}

const TOOL_ERROR = Symbol.for("@toolrunner/runner-sdk ToolError");

/** Whether it is a {@link ToolError}, of this copy of the package or another one. Never throws. */
export function isToolError(thrown: unknown): thrown is ToolError {
  try {
    return thrown instanceof Error && TOOL_ERROR in thrown;
  } catch {
    return false;
  }
}

/**
 * A failure of the business: thrown by a handler, it settles the call as failed with this code and message.
 * Not retried unless `retryable` is true (X7). Anything else that is thrown becomes `handler_error`.
 */
export class ToolError extends Error {
  override readonly name = "ToolError";
  /** @internal Tells a ToolError of another copy of this package, as when a command runs a project's tools. */
  readonly [TOOL_ERROR] = true;
  readonly retryable: boolean;
  /** Earliest next attempt, in seconds; 0 when the broker may choose. */
  readonly retryAfterSeconds: number;
  readonly details: readonly ToolErrorDetail[];
  /** @param code Lower case letters, digits and `_`, at most 64 characters, such as `order_unknown`; another form is sent as `handler_error`. */
  constructor(
    readonly code: string,
    message: string,
    options: { retryable?: boolean; retryAfterSeconds?: number; details?: readonly ToolErrorDetail[]; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.retryable = options.retryable ?? false;
    this.retryAfterSeconds = options.retryAfterSeconds ?? 0;
    this.details = options.details ?? [];
  }
}

/** The message of whatever was thrown; never throws itself. */
export function messageOf(thrown: unknown): string {
  try {
    if (thrown instanceof Error) return thrown.message === "" ? thrown.name : String(thrown.message);
    if (typeof thrown === "string") return thrown;
    return `a value of type ${thrown === null ? "null" : typeof thrown} was thrown`;
  } catch {
    return "a value that cannot be read was thrown";
  }
}

/** The type name of whatever was thrown, such as `TypeError`; never throws itself. */
export function typeNameOf(thrown: unknown): string {
  try {
    if (thrown instanceof Error) return typeof thrown.name === "string" && thrown.name !== "" ? thrown.name : "Error";
    return thrown === null ? "null" : typeof thrown;
  } catch {
    return "unknown";
  }
}
