/**
 * The one place where whatever an operation threw becomes what a caller may see.
 *
 * Only `BrokerError`s with a code of the error table, and a few storage errors of known meaning, cross the border;
 * everything else is `internal`: its text stays in the log (`unexpected`).
 */

import { ERROR_CODES, type ErrorCode, type ErrorType, isErrorCode } from "@toolrunner/proto";
import { BrokerError } from "../../domain/broker-error.js";
import type { FaultDetail } from "../../domain/fault.js";
import { BusError } from "../../domain/ports/bus.js";
import { CatalogStoreError } from "../../domain/ports/catalog-store.js";
import { LedgerError } from "../../domain/ports/ledger.js";

/** A refusal as it leaves the broker, whatever the interface. */
export interface Fault {
  readonly code: ErrorCode;
  readonly type: ErrorType;
  readonly http: number;
  readonly message: string;
  readonly details: readonly FaultDetail[];
  /** Whole seconds, at least 1; set for every 429 and 503. */
  readonly retryAfterSeconds: number | undefined;
  readonly extra: Readonly<Record<string, string | number | boolean | null>>;
  /** For the log only: what was thrown, when nobody foresaw it. */
  readonly unexpected: unknown;
}

/** More details than this are left out, and the last one says how many. */
export const FAULT_DETAILS_MAX = 100;

const STORAGE_CODES: Readonly<Record<string, ErrorCode>> = { unreachable: "ledger_away", closed: "draining", timeout: "ledger_away" };

/** Maps anything thrown to a {@link Fault}. Never throws. */
export function faultFrom(error: unknown): Fault {
  if (error instanceof BrokerError && isErrorCode(error.code)) {
    const http = ERROR_CODES[error.code].http;
    if (http !== null) {
      return fault(error.code, http, error.message, {
        details: error.details,
        retryAfterSeconds: error.retryAfterSeconds,
        extra: error.extra,
        unexpected: error.code === "internal" ? error : undefined,
      });
    }
  }
  if (error instanceof LedgerError || error instanceof CatalogStoreError || error instanceof BusError) {
    const code = STORAGE_CODES[error.code];
    if (code !== undefined)
      return fault(code, ERROR_CODES[code].http ?? 503, `${ERROR_CODES[code].meaning} ${ERROR_CODES[code].action}`, {});
  }
  return fault("internal", 500, `${ERROR_CODES.internal.meaning} ${ERROR_CODES.internal.action}`, {
    unexpected: error ?? "undefined was thrown",
  });
}

function fault(
  code: ErrorCode,
  http: number,
  message: string,
  rest: {
    readonly details?: readonly FaultDetail[];
    readonly retryAfterSeconds?: number | undefined;
    readonly extra?: Fault["extra"];
    readonly unexpected?: unknown;
  },
): Fault {
  const waits = http === 429 || http === 503;
  return {
    code,
    type: ERROR_CODES[code].type,
    http,
    message,
    details: cut(rest.details ?? []),
    retryAfterSeconds: waits || rest.retryAfterSeconds !== undefined ? Math.max(1, Math.ceil(rest.retryAfterSeconds ?? 1)) : undefined,
    extra: rest.extra ?? {},
    unexpected: rest.unexpected,
  };
}

function cut(details: readonly FaultDetail[]): readonly FaultDetail[] {
  if (details.length <= FAULT_DETAILS_MAX) return details;
  const kept = details.slice(0, FAULT_DETAILS_MAX - 1);
  return [...kept, { path: "", expected: "no further faults", actual: `${details.length - kept.length} more faults are not listed` }];
}

/** The error object of the HTTP interface. */
export function faultBody(fault: Fault, requestId: string): object {
  return {
    type: "error",
    // Extra fields come first so that they can never replace one of the contract's own.
    error: { ...fault.extra, type: fault.type, code: fault.code, message: fault.message, details: fault.details },
    request_id: requestId,
  };
}

/** The error object of one part of an answer: it has no headers, so the time to wait is a field of it. */
export function faultInList(fault: Fault, requestId: string): object {
  const { retryAfterSeconds } = fault;
  const extra = retryAfterSeconds === undefined ? fault.extra : { ...fault.extra, retry_after_seconds: retryAfterSeconds };
  return faultBody({ ...fault, extra }, requestId);
}

/** Name and message for one log field; never a payload. */
export function describeUnexpected(unexpected: unknown): { readonly error: string; readonly stack: string | undefined } {
  if (unexpected instanceof Error) return { error: `${unexpected.name}: ${unexpected.message}`, stack: unexpected.stack };
  return { error: `a value of type ${typeof unexpected} was thrown`, stack: undefined };
}
