/** Faults that end a command: what is printed, and with which exit code. */

/** An error object of the HTTP interface. */
export interface ErrorBody {
  readonly type: "error";
  readonly error: { readonly type: string; readonly code: string; readonly message: string; readonly details?: readonly unknown[] };
  readonly request_id?: string;
}

/** Exit codes, by name. `docs` for people: `toolrunner help`. */
export const EXIT = {
  /** Done; for `call`: succeeded or submitted. */
  done: 0,
  /** Settled otherwise, or a start-up fault. */
  failed: 1,
  /** Wrong usage. */
  usage: 2,
  /** Still open when the wait was over. */
  stillOpen: 3,
  /** Refused by the broker, or no broker answered. */
  refused: 4,
} as const;

/** One of {@link EXIT}. */
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/**
 * Ends a command. `message` is one line: what was wrong, where, and what to do.
 * With `--json` it is printed as an error object whose `code` this is.
 */
export class CliError extends Error {
  override readonly name = "CliError";
  constructor(
    readonly code: string,
    readonly exitCode: ExitCode,
    message: string,
    options?: ErrorOptions & { readonly body?: ErrorBody },
  ) {
    super(message, options);
    this.body = options?.body;
  }
  /** The broker's own error object, when the broker refused. */
  readonly body: ErrorBody | undefined;
}

/** Wrong usage: exit code 2. */
export function usageError(message: string): CliError {
  return new CliError("usage", EXIT.usage, message);
}

/** Something that kept a broker or runner from starting: exit code 1. */
export function startError(code: string, message: string, cause?: unknown): CliError {
  return new CliError(code, EXIT.failed, message, { cause });
}

/** The first line of an unknown value thrown. */
export function messageOf(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return text.split("\n", 1)[0]?.trim() || "unknown fault";
}

/** What `--json` prints on stderr for any fault, in the form of the HTTP interface's errors. */
export function errorObject(error: CliError): ErrorBody {
  return error.body ?? { type: "error", error: { type: ERROR_TYPES[error.exitCode], code: error.code, message: error.message } };
}

const ERROR_TYPES: Readonly<Record<ExitCode, string>> = {
  [EXIT.done]: "cli_error",
  [EXIT.failed]: "start_error",
  [EXIT.usage]: "usage_error",
  [EXIT.stillOpen]: "cli_error",
  [EXIT.refused]: "unavailable_error",
};
