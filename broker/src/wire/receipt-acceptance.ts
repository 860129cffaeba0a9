/**
 * What becomes of one receipt, whichever way it came: over a session, or in the last request of a page that closes.
 *
 * Invariants (G5): the disposition is that of the append which the receipt caused; a large value is stored only for a call that takes
 * it, and once however often it is sent.
 */
import type { Receipt } from "@toolrunner/proto";
import type { StoredText } from "../domain/call/call-state.js";
import { callError } from "../domain/call/decide.js";
import type { JsonScanResult } from "../domain/json-scan.js";
import { RESULT_DEPTH_MAX } from "../domain/limits.js";
import { type BlobStore, INLINE_VALUE_BYTES_MAX } from "../domain/ports/ledger.js";
import type { DriverHint } from "./call-router.js";
import type { ReceiptDispositionName, RunnerRef } from "./commands.js";
import { inlineText, type ReceiptFactsRead, receiptFacts } from "./frames.js";
import { isId, type RunnerAsks } from "./runner-asks.js";
import { readRunnerJson } from "./runner-json.js";
import { storedOnce } from "./stored-once.js";

/** Whose receipt it is. */
export interface ReceiptBearer {
  readonly runner: RunnerRef;
  readonly runnerId: string;
}

/** A result that came apart from its receipt. */
export interface ApartResult {
  readonly text: string;
  readonly kind: JsonScanResult;
}

/** What a receipt says; a text says what is not well-formed. `apart`: its result, where the receipt names one that came in chunks. */
export function readReceipt(receipt: Receipt, runnerId: string, apart?: ApartResult): ReceiptFactsRead | string {
  if (!isId(receipt.callId) || !isId(receipt.grantId)) {
    return "receipt: call_id and grant_id are needed, as the grant named them";
  }
  const read = receiptFacts(receipt, runnerId);
  if (typeof read === "string") {
    return `receipt: ${read}`;
  }
  const { facts } = read;
  if (apart !== undefined && read.json !== "") {
    return "receipt: the result is in it, and in chunks: expected one of them";
  }
  const json = apart?.text ?? read.json;
  const kind = apart?.kind ?? (json === null ? undefined : readRunnerJson(json).kind);
  if (kind === "not_json") {
    return "receipt: the result is not JSON";
  }
  return kind === "too_deep" ? tooDeep(facts) : { facts, json };
}

export class ReceiptAcceptance {
  constructor(private readonly context: { readonly asks: RunnerAsks; readonly blobs: BlobStore }) {}

  /** Rejects when it is not known what became of it: it can be given again. */
  async accept(
    { runner, runnerId }: ReceiptBearer,
    callId: string,
    { facts, json }: ReceiptFactsRead,
    hint: DriverHint,
  ): Promise<ReceiptDispositionName> {
    const { asks, blobs } = this.context;
    let value: StoredText | null = json === null ? null : inlineText(json);
    if (value !== null && value.bytes > INLINE_VALUE_BYTES_MAX) {
      const wanted = await asks.askFor(runnerId, callId, { op: "receipt_probe", runner, receipt: { ...facts, value: null } }, hint);
      if (wanted?.kind !== "done") {
        return wanted?.kind === "disposition" ? wanted.disposition : "expired";
      }
      value = await storedOnce(blobs, callId, value);
    }
    const answer = await asks.askFor(runnerId, callId, { op: "receipt", runner, receipt: { ...facts, value } }, hint);
    if (answer === undefined) {
      // Nothing is stored of this call: it was removed after its time, or it is not of this ledger.
      return "expired";
    }
    if (answer.kind !== "disposition") {
      throw new Error(`a receipt was answered by ${answer.kind}`);
    }
    return answer.disposition;
  }
}

/** A result that nobody could be shown: the call fails for it, instead of staying open. */
function tooDeep(facts: ReceiptFactsRead["facts"]): ReceiptFactsRead {
  const message = `the result is nested deeper than ${RESULT_DEPTH_MAX} levels`;
  return { facts: { ...facts, outcome: "failed", error: callError("result_invalid", message) }, json: null };
}
