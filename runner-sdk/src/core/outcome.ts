/** What came of a handler, as an outcome that can be journaled and sent: results checked, errors told apart, sizes bounded. */
import { type AbortCode, Submission } from "./context.js";
import type { Sha256 } from "./digest.js";
import { isToolError, messageOf, NotJsonError, type ToolError, typeNameOf } from "./errors.js";
import type { Handler } from "./handlers.js";
import { clipText, toJsonText, utf8Bytes } from "./json.js";
import type { Grant, Outcome, OutcomeDetail, Receipt } from "./messages.js";

/** Bytes of a result where neither grant nor broker names a limit: a frame of 1 MiB less 64 KiB for its other fields (R9). */
export const RESULT_BYTES_DEFAULT = 1_048_576 - 65_536;
/** Largest frame until a welcome says otherwise. */
export const FRAME_BYTES_DEFAULT = 1_048_576;
/** Bytes of a failure's message; longer ones are cut. */
export const MESSAGE_BYTES_MAX = 8_192;
const DETAILS_MAX = 64;
const DETAIL_BYTES_MAX = 1_024;
const CODE = /^[a-z][a-z0-9_]{0,63}$/;
const RETRY_AFTER_MS_MAX = 7 * 24 * 3_600_000;

type Failure = Extract<Outcome, { kind: "failed" }>;

/** A failure; its texts are cut to what a frame can carry. */
export function failure(code: string, message: string, more: Partial<Omit<Failure, "kind" | "code" | "message">> = {}): Failure {
  return {
    kind: "failed",
    code,
    message: clipText(message, MESSAGE_BYTES_MAX),
    retryable: more.retryable ?? false,
    retryAfterMs: more.retryAfterMs ?? 0,
    details: more.details ?? [],
  };
}

/** The outcome of a handler that returned `value` (R7, R9). */
export function outcomeOfValue(handler: Handler, value: unknown, resultBytesMax: number): Outcome {
  const submitted = value instanceof Submission;
  let text: string;
  try {
    text = toJsonText(submitted ? value.handle : value);
  } catch (error) {
    if (!(error instanceof NotJsonError)) throw error;
    return failure("result_not_json", `tool "${handler.tool.name}" returned what JSON cannot hold: ${error.message}`, {
      details: [{ path: error.path, expected: "a JSON value", actual: error.found }],
    });
  }
  const bytes = utf8Bytes(text);
  // A handle is told to the model as it is, and always fits a frame.
  const limitBytes = submitted ? Math.min(resultBytesMax, RESULT_BYTES_DEFAULT) : resultBytesMax;
  if (bytes > limitBytes) return tooLarge(handler.tool.name, bytes, limitBytes);
  return submitted ? { kind: "submitted", handleJson: text } : { kind: "succeeded", resultJson: text };
}

/** The failure for a result over the limit; not retryable (R9). `ofWhat` names a limit that is not the result's own. */
export function tooLarge(tool: string, bytes: number, limitBytes: number, ofWhat?: string): Failure {
  return failure(
    "result_too_large",
    `tool "${tool}" returned ${bytes} bytes, ${ofWhat === undefined ? `over the limit of ${limitBytes} bytes` : `too much for ${ofWhat} of at most ${limitBytes} bytes`}: return less, or a reference to it`,
  );
}

/**
 * The outcome of a handler that threw. After a cancel it is `cancelled`; after a lease was lost or the runner stopped, a
 * handler that is safe to repeat may be tried again elsewhere.
 */
export function outcomeOfThrow(handler: Handler, thrown: unknown, abort: AbortCode | null): Outcome {
  if (abort === "cancelled") return { kind: "cancelled", message: clipText(messageOf(thrown), MESSAGE_BYTES_MAX) };
  if (isToolError(thrown)) return outcomeOfToolError(thrown);
  const message = `${typeNameOf(thrown)}: ${messageOf(thrown)}`;
  if (abort === null || abort === "deadline") return failure("handler_error", message);
  return failure("handler_error", `the handler ended after its signal aborted (${abort}): ${message}`, { retryable: handler.repeatable });
}

/** The outcome that a {@link ToolError} stands for; fields of a wrong form do no harm. */
export function outcomeOfToolError(error: ToolError): Outcome {
  const wellFormed = typeof error.code === "string" && CODE.test(error.code);
  const retryAfterMs = Number.isFinite(error.retryAfterSeconds) ? Math.round(error.retryAfterSeconds * 1_000) : 0;
  return failure(wellFormed ? error.code : "handler_error", wellFormed ? messageOf(error) : `${String(error.code)}: ${messageOf(error)}`, {
    retryable: error.retryable === true,
    retryAfterMs: Math.min(RETRY_AFTER_MS_MAX, Math.max(0, retryAfterMs)),
    details: detailsOf(error.details),
  });
}

function detailsOf(details: unknown): readonly OutcomeDetail[] {
  if (!Array.isArray(details)) return [];
  const text = (value: unknown) => clipText(typeof value === "string" ? value : "", DETAIL_BYTES_MAX);
  return details.slice(0, DETAILS_MAX).map((detail: Partial<OutcomeDetail> | null) => ({
    path: text(detail?.path),
    expected: text(detail?.expected),
    actual: text(detail?.actual),
  }));
}

/** The receipt of a grant, with the digest of its outcome. */
export async function receiptOf(
  sha256: Sha256,
  grant: Pick<Grant, "callId" | "grantId" | "fence" | "attempt">,
  outcome: Outcome,
  times: { readonly startedAtUnixMs: number; readonly finishedAtUnixMs: number },
): Promise<Receipt> {
  return {
    callId: grant.callId,
    grantId: grant.grantId,
    fence: grant.fence,
    attempt: grant.attempt,
    digest: await sha256(outcomeText(outcome)),
    ...times,
    outcome,
  };
}

/** What the digest is made of: compact JSON with `outcome` first, then its fields, payloads as they are. */
export function outcomeText(outcome: Outcome): string {
  switch (outcome.kind) {
    case "succeeded":
      return `{"outcome":"succeeded","result":${outcome.resultJson}}`;
    case "submitted":
      return `{"outcome":"submitted","handle":${outcome.handleJson}}`;
    case "cancelled":
      return JSON.stringify({ outcome: "cancelled", message: outcome.message });
    case "failed":
      return JSON.stringify({
        outcome: "failed",
        code: outcome.code,
        message: outcome.message,
        retryable: outcome.retryable,
        retry_after_ms: outcome.retryAfterMs,
        details: outcome.details.map(({ path, expected, actual }) => ({ path, expected, actual })),
      });
  }
}
