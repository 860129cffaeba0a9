/** Close codes of a runner session: the range says whether to redial. Source of the table in `docs/protocol.md`. */
import { GRPC_STATUS, type GrpcStatusName } from "./grpc-status.js";

interface CloseRow {
  readonly name: string;
  readonly meaning: string;
  readonly redial: RedialRule;
  /** Status of the gRPC stream that ends with this code; the code itself is in the trailers. */
  readonly grpc: GrpcStatusName;
}

/** Every close code: its name, what it says, whether to dial again, and its status over gRPC. */
export const CLOSE_CODES = {
  1000: { name: "normal", meaning: "The session ended as planned.", redial: "never", grpc: "OK" },
  4400: {
    name: "protocol_violation",
    meaning: "A frame could not be decoded or came out of order.",
    redial: "never",
    grpc: "INVALID_ARGUMENT",
  },
  4401: {
    name: "credential_invalid",
    meaning: "The credential is missing, wrong, revoked or expired.",
    redial: "with_new_credential",
    grpc: "UNAUTHENTICATED",
  },
  4403: {
    name: "not_permitted",
    meaning: "The credential is valid, but not for this binding or subject.",
    redial: "never",
    grpc: "PERMISSION_DENIED",
  },
  // Of this range and dialled again all the same: where thousands reconnect at once, a hello is late by nobody's fault.
  4408: { name: "hello_late", meaning: "No valid hello came within 5 s.", redial: "at_once", grpc: "DEADLINE_EXCEEDED" },
  4409: { name: "superseded", meaning: "A newer session of the same runner id took over.", redial: "never", grpc: "ABORTED" },
  4413: { name: "frame_too_large", meaning: "A frame was over the limit.", redial: "never", grpc: "OUT_OF_RANGE" },
  4426: {
    name: "protocol_version_unsupported",
    meaning: "Broker and runner share no protocol version.",
    redial: "never",
    grpc: "FAILED_PRECONDITION",
  },
  4429: { name: "flooding", meaning: "Too many frames or connections.", redial: "after_retry_after", grpc: "RESOURCE_EXHAUSTED" },
  4500: {
    name: "internal",
    meaning: "The broker failed at something; the session can be made again.",
    redial: "at_once",
    grpc: "INTERNAL",
  },
  4501: {
    name: "draining",
    meaning: "The broker drains or stops; another one, or a later one, will serve.",
    redial: "at_once",
    grpc: "UNAVAILABLE",
  },
  4502: { name: "unresponsive", meaning: "A ping went unanswered.", redial: "at_once", grpc: "UNAVAILABLE" },
  4503: { name: "ledger_away", meaning: "The broker cannot reach its ledger.", redial: "at_once", grpc: "UNAVAILABLE" },
} as const satisfies Record<number, CloseRow>;

/** What a runner does about dialling again. */
export type RedialRule = "never" | "with_new_credential" | "after_retry_after" | "at_once";
/** A code that either side may close with. */
export type CloseCode = keyof typeof CLOSE_CODES;

/**
 * What a runner does after a close with `code`. A code that this version does not know follows its range: 4400 to 4499 is not
 * dialled again; everything else, a broken connection included, is.
 */
export function redialRule(code: number): RedialRule {
  if (isCloseCode(code)) return CLOSE_CODES[code].redial;
  return code >= 4400 && code <= 4499 ? "never" : "at_once";
}

/** Whether `code` is one of the table. */
export function isCloseCode(code: number): code is CloseCode {
  return Object.hasOwn(CLOSE_CODES, code);
}

/** The close code called `name` in the table, such as `frame_too_large`; `undefined` when there is none. */
export function closeCodeNamed(name: string): CloseCode | undefined {
  const entry = Object.entries(CLOSE_CODES).find(([, row]) => row.name === name);
  return entry === undefined ? undefined : (Number(entry[0]) as CloseCode);
}

/** Number of the gRPC status with which a broker ends a stream for `code`. */
export function grpcStatusOfClose(code: CloseCode): number {
  return GRPC_STATUS[CLOSE_CODES[code].grpc];
}
