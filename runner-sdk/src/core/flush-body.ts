/**
 * What a page that is put away sends in its last request: receipts that are not acknowledged.
 *
 * Invariants: no larger than what a browser sends for a page that is gone (64 KiB, of which some is the browser's own); the oldest
 * first, and one that is too large holds up no other; nothing is acknowledged for having been sent.
 */
import { utf8Bytes } from "./json.js";
import type { Outcome, Receipt } from "./messages.js";

/** Largest body, in bytes. */
export const FLUSH_BYTES_MAX = 60 * 1_024;
/** Receipts that the broker takes in one request. */
export const FLUSH_RECEIPTS_MAX = 256;

/** Who sends it. */
export interface FlushSender {
  readonly credential: string;
  readonly binding: string;
  /** "" on a backend. */
  readonly subject: string;
  readonly runnerId: string;
}

/** The body, and how many receipts are in it; null when none is, or fits. */
export function flushBody(sender: FlushSender, receipts: Iterable<Receipt>): { readonly body: string; readonly count: number } | null {
  const { credential, binding, subject, runnerId } = sender;
  const head = JSON.stringify({ credential, binding, ...(subject === "" ? {} : { subject }), runner_id: runnerId, receipts: [] }).slice(
    0,
    -2,
  );
  const end = "]}";
  let bytes = utf8Bytes(head) + end.length;
  const texts: string[] = [];
  for (const receipt of receipts) {
    if (texts.length === FLUSH_RECEIPTS_MAX) break;
    const text = receiptText(receipt);
    const more = utf8Bytes(text) + (texts.length === 0 ? 0 : 1);
    if (bytes + more > FLUSH_BYTES_MAX) continue;
    texts.push(text);
    bytes += more;
  }
  return texts.length === 0 ? null : { body: head + texts.join(",") + end, count: texts.length };
}

function receiptText({ callId, grantId, fence, attempt, digest, startedAtUnixMs, finishedAtUnixMs, outcome }: Receipt): string {
  return JSON.stringify({
    call_id: callId,
    grant_id: grantId,
    fence,
    attempt,
    digest,
    started_at_unix_ms: startedAtUnixMs,
    finished_at_unix_ms: finishedAtUnixMs,
    ...outcomeFields(outcome),
  });
}

function outcomeFields(outcome: Outcome): object {
  switch (outcome.kind) {
    case "succeeded":
      return { succeeded: { result_json: outcome.resultJson } };
    case "submitted":
      return { submitted: { handle_json: outcome.handleJson } };
    case "cancelled":
      return { cancelled: { message: outcome.message } };
    case "failed": {
      const { code, message, retryable, retryAfterMs, details } = outcome;
      return { failed: { code, message, retryable, retry_after_ms: retryAfterMs, details } };
    }
  }
}
