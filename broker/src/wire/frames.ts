/** Between frames and the domain's terms: the only place of the wire that spells wire enums out. */
import { type BrokerFrame, Grant, GrantPhase, type Receipt, ReceiptDisposition, type SessionLimits } from "@toolrunner/proto";
import type { CallError, StoredText } from "../domain/call/call-state.js";
import type { ReceiptEntryFacts } from "../domain/call/entries.js";
import {
  CHUNK_BYTES_MAX,
  ERROR_DETAILS_MAX,
  ERROR_MESSAGE_CHARACTERS_MAX,
  FRAME_BYTES_MAX,
  PROGRESS_BYTES_MAX,
  RESULT_BYTES_MAX,
  SLOTS_MAX,
} from "../domain/limits.js";
import type { GrantToSend, HeldPhase, ReceiptDispositionName } from "./commands.js";
import type { Session } from "./session.js";

/** `pongNumber`: the ping answer from which the runner counts the lease. */
export function grantFrame(
  grant: GrantToSend,
  session: Session,
  times: { readonly leaseMs: number; readonly nowMs: number; readonly pongNumber: number; readonly resultBytesMax: number },
): BrokerFrame {
  return {
    frame: {
      $case: "grant",
      value: Grant.create({
        callId: grant.callId,
        grantId: grant.grantId,
        attempt: grant.attempt,
        fence: grant.fence,
        sessionEpoch: session.ref.sessionEpoch,
        tool: grant.tool,
        version: grant.version,
        toolset: grant.toolset,
        toolsetVersion: grant.toolsetVersion,
        argumentsJson: grant.argumentsJson,
        subject: grant.subject ?? "",
        agent: grant.agent ?? "",
        session: grant.session ?? "",
        idempotencyKey: grant.callId,
        deadlineUnixMs: grant.deadlineAtMs,
        remainingMs: Math.max(0, grant.deadlineAtMs - times.nowMs),
        leaseMs: times.leaseMs,
        pongNumber: times.pongNumber,
        traceparent: grant.traceparent ?? "",
        scopes: [...grant.scopes],
        maxResultBytes: times.resultBytesMax,
      }),
    },
  };
}

/** What a welcome says that a runner may send. `resultBytesMax`: largest result, in chunks or in one frame. */
export function sessionLimits(resultBytesMax: number): SessionLimits {
  return {
    frameBytes: FRAME_BYTES_MAX,
    resultBytes: Math.min(RESULT_BYTES_MAX, resultBytesMax),
    progressBytes: PROGRESS_BYTES_MAX,
    slots: SLOTS_MAX,
    chunkedResultBytes: resultBytesMax,
    chunkBytes: CHUNK_BYTES_MAX,
  };
}

const PHASES: Partial<Record<GrantPhase, HeldPhase>> = {
  [GrantPhase.NOT_STARTED]: "not_started",
  [GrantPhase.RUNNING]: "running",
  [GrantPhase.OUTCOME_UNKNOWN]: "outcome_unknown",
  [GrantPhase.FINISHED]: "finished",
};

export function phaseName(phase: GrantPhase): HeldPhase | undefined {
  return PHASES[phase];
}

const DISPOSITIONS: Record<ReceiptDispositionName, ReceiptDisposition> = {
  settled: ReceiptDisposition.SETTLED,
  repeated: ReceiptDisposition.REPEATED,
  evidence: ReceiptDisposition.EVIDENCE,
  expired: ReceiptDisposition.EXPIRED,
};

export function receiptAckFrame(callId: string, grantId: string, disposition: ReceiptDispositionName): BrokerFrame {
  return { frame: { $case: "receiptAck", value: { callId, grantId, disposition: DISPOSITIONS[disposition] } } };
}

/** What a receipt says, before its value is stored. */
export interface ReceiptFactsRead {
  readonly facts: Omit<ReceiptEntryFacts, "value">;
  /** Result or handle, as it was written. */
  readonly json: string | null;
}

/** A text says what is not well-formed. */
export function receiptFacts(receipt: Receipt, runnerId: string): ReceiptFactsRead | string {
  const { outcome } = receipt;
  if (outcome === undefined) {
    return "outcome: expected one of succeeded, failed, cancelled, submitted, got nothing";
  }
  if (!/^[0-9a-f]{64}$/.test(receipt.digest)) {
    return "digest: expected 64 hexadecimal digits (SHA-256)";
  }
  const common = {
    grantId: receipt.grantId,
    attempt: receipt.attempt,
    fence: receipt.fence,
    runnerId,
    digest: receipt.digest,
    startedAtMs: isTime(receipt.startedAtUnixMs) ? receipt.startedAtUnixMs : null,
  };
  switch (outcome.$case) {
    case "succeeded":
      return { facts: { ...common, outcome: "succeeded", error: null }, json: outcome.value.resultJson };
    case "submitted":
      return { facts: { ...common, outcome: "submitted", error: null }, json: outcome.value.handleJson };
    case "cancelled":
      return {
        facts: {
          ...common,
          outcome: "cancelled",
          error: {
            code: "call_cancelled",
            message: cut(outcome.value.message, ERROR_MESSAGE_CHARACTERS_MAX),
            retryable: false,
            retryAfterMs: null,
            details: [],
          },
        },
        json: null,
      };
    case "failed": {
      const { code, message, retryable, retryAfterMs, details } = outcome.value;
      const error: CallError = {
        code: code === "" ? "handler_error" : cut(code, ERROR_CODE_CHARACTERS_MAX),
        message: cut(message, ERROR_MESSAGE_CHARACTERS_MAX),
        retryable,
        retryAfterMs: retryAfterMs > 0 ? retryAfterMs : null,
        details: details.slice(0, ERROR_DETAILS_MAX).map((detail) => ({
          path: cut(detail.path, ERROR_DETAIL_CHARACTERS_MAX),
          expected: cut(detail.expected, ERROR_DETAIL_CHARACTERS_MAX),
          actual: cut(detail.actual, ERROR_DETAIL_CHARACTERS_MAX),
        })),
      };
      return { facts: { ...common, outcome: "failed", error }, json: null };
    }
  }
}

/** Could a clock have said so? */
export function isTime(unixMs: number): boolean {
  return unixMs > 0 && unixMs <= TIME_MS_MAX;
}

/** The last moment that a date can name. */
const TIME_MS_MAX = 8.64e15;
const ERROR_CODE_CHARACTERS_MAX = 128;
const ERROR_DETAIL_CHARACTERS_MAX = 512;

/** Texts that a runner writes are stored up to a limit: an entry of the ledger has one too. */
export function cut(text: string, charactersMax: number): string {
  return text.length <= charactersMax ? text : `${text.slice(0, charactersMax - 1)}…`;
}

export function inlineText(json: string): StoredText & { readonly kind: "inline" } {
  return { kind: "inline", json, bytes: Buffer.byteLength(json) };
}
