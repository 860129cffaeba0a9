import type { FaultDetail } from "./fault.js";

/**
 * A refusal that crosses the broker's boundary. `code` is a row of the error table in `@toolrunner/proto`
 * (checked by the gateways when they map it to HTTP and gRPC); the message says what was wrong, where, and what to do.
 */
export class BrokerError extends Error {
  override readonly name = "BrokerError";
  readonly details: readonly FaultDetail[];
  readonly retryAfterSeconds: number | undefined;
  /** Further fields for the error object, such as `current_version` of a version conflict. */
  readonly extra: Readonly<Record<string, string | number | boolean | null>>;
  constructor(
    readonly code: string,
    message: string,
    options: ErrorOptions & {
      readonly details?: readonly FaultDetail[];
      readonly retryAfterSeconds?: number;
      readonly extra?: Readonly<Record<string, string | number | boolean | null>>;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.details = options.details ?? [];
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.extra = options.extra ?? {};
  }
}
