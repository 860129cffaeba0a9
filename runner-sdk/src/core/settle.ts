/** The final outcome of a call that ended its turn with `ctx.submit` (X5). */
import type { Clock } from "./clock.js";
import type { Settlement } from "./context.js";
import type { Delivery } from "./delivery.js";
import type { Sha256 } from "./digest.js";
import { isToolError, RunnerStoppedError, SubmissionError } from "./errors.js";
import type { JournalEntry, JournalView } from "./journal.js";
import type { JournalGate } from "./journal-gate.js";
import { toJsonText, utf8Bytes } from "./json.js";
import type { Outcome } from "./messages.js";
import { outcomeOfToolError, receiptOf } from "./outcome.js";
import type { SubmissionSignals } from "./submission-signals.js";

/**
 * `settling` holds the calls that are being settled right now: one settlement wins.
 * Journals the final receipt and sends it; resolves when it is durable. Until it is acknowledged it is sent again, across restarts.
 * @throws SubmissionError when the journal holds no submitted grant of this call, or it has its final receipt already.
 * @throws NotJsonError when the result is not JSON.
 */
export async function settleSubmission(
  deps: {
    readonly journal: JournalGate;
    readonly delivery: Delivery;
    readonly clock: Clock;
    readonly sha256: Sha256;
    readonly settling: Set<string>;
    readonly submissions: SubmissionSignals;
  },
  callId: string,
  settlement: Settlement,
): Promise<void> {
  const { journal, delivery, clock, sha256, settling } = deps;
  const outcome = outcomeOf(callId, settlement, delivery.resultBytesMax);
  const entry = submittedGrant(journal.view, callId);
  if (settling.has(callId)) throw alreadySettled(callId);
  settling.add(callId);
  try {
    const now = clock.now();
    const receipt = await receiptOf(sha256, entry, outcome, { startedAtUnixMs: entry.startedAt, finishedAtUnixMs: now });
    if (!(await journal.appendUntilWritten({ kind: "finished", receipt, at: now }))) {
      throw new RunnerStoppedError(`the runner was stopped before the outcome of call ${callId} was journaled`);
    }
    deps.submissions.forget(callId);
    delivery.send(receipt);
  } finally {
    settling.delete(callId);
  }
}

const alreadySettled = (callId: string) =>
  new SubmissionError("submission_settled", `call ${callId} has its final outcome already`, callId);

function submittedGrant(view: JournalView, callId: string): JournalEntry {
  const entries = view.ofCall(callId).filter((entry) => entry.receipt !== null);
  const newest = entries.at(-1);
  if (newest === undefined) {
    throw new SubmissionError(
      "submission_unknown",
      `this runner's journal holds no submission of call ${callId}: settle it over the API`,
      callId,
    );
  }
  if (newest.receipt?.outcome.kind !== "submitted") throw alreadySettled(callId);
  return newest;
}

function outcomeOf(callId: string, settlement: Settlement, resultBytesMax: number): Outcome {
  switch (settlement.kind) {
    case "succeeded": {
      const resultJson = toJsonText(settlement.result);
      const bytes = utf8Bytes(resultJson);
      if (bytes > resultBytesMax) {
        throw new SubmissionError(
          "result_too_large",
          `the result of call ${callId} is ${bytes} bytes, over the limit of ${resultBytesMax} bytes`,
          callId,
        );
      }
      return { kind: "succeeded", resultJson };
    }
    case "failed":
      if (!isToolError(settlement.error)) throw new TypeError("a failed settlement has a ToolError as its `error`");
      return outcomeOfToolError(settlement.error);
    case "cancelled":
      return { kind: "cancelled", message: settlement.message ?? "" };
  }
}
