/**
 * Brings a runner's updates of submitted calls to the drivers of the calls, and what became of them back (X5).
 *
 * Invariants: an update is answered after it is stored, or with the reason why it is not; updates of one call are stored in the
 * order of their frames; one is tried until its session is over, and the runner sends it again in the next, under its id.
 */
import { type CallUpdate, UpdateDisposition } from "@toolrunner/proto";
import { type BackOff, backOffMs } from "../domain/call/decide.js";
import type { IdSource } from "../domain/ports/clock.js";
import type { DriverAnswer } from "./commands.js";
import { updateFacts } from "./final-receipt.js";
import { progressData } from "./progress-data.js";
import { fault, isId, type RunnerAsks, runnerOf } from "./runner-asks.js";
import type { Session } from "./session.js";

const AGAIN: BackOff = { baseMs: 100, maxMs: 5_000, jitter: 0.5 };

/** What a refusal of the driver is to the runner. */
const REFUSALS: Readonly<Record<string, UpdateDisposition>> = {
  not_submitted: UpdateDisposition.NOT_SUBMITTED,
  call_settled: UpdateDisposition.SETTLED,
  updates_exhausted: UpdateDisposition.EXHAUSTED,
  idempotency_conflict: UpdateDisposition.CONFLICT,
};

export class CallUpdates {
  constructor(private readonly context: { readonly asks: RunnerAsks; readonly ids: IdSource }) {}

  take(session: Session, update: CallUpdate): void {
    const { callId, updateId, text, dataJson } = update;
    if (!isId(callId) || !isId(updateId)) {
      fault(session, "frame_invalid", "call_update: call_id and update_id of 1 to 128 letters, digits, _ or - are needed", callId);
      return;
    }
    const data = progressData(update);
    if (typeof data === "string" || Object.keys(data).length === 0) {
      fault(session, "frame_invalid", `call_update: ${typeof data === "string" ? data : "it says nothing"}`, callId);
      return;
    }
    const facts = updateFacts(`runner ${updateId}`, data);
    session.work.inOrder(`update of ${callId}`, text.length + dataJson.length, async () => {
      for (let tries = 1; !session.closed; tries += 1) {
        try {
          const answer = await this.context.asks.ask(
            session,
            callId,
            { op: "update", runner: runnerOf(session), update: facts },
            undefined,
          );
          session.channel.send({ frame: { $case: "updateAnswer", value: { callId, updateId, disposition: dispositionOf(answer) } } });
          return;
        } catch (error) {
          this.context.asks.failed(session, callId, "update", error);
        }
        await session.work.pause(backOffMs(tries, this.context.ids.random(), AGAIN));
      }
    });
  }
}

function dispositionOf(answer: DriverAnswer | undefined): UpdateDisposition {
  if (answer === undefined) {
    return UpdateDisposition.UNKNOWN_CALL;
  }
  const refusal = answer.kind === "refused" ? REFUSALS[answer.code] : undefined;
  if (refusal !== undefined) {
    return refusal;
  }
  if (answer.kind !== "updated") {
    throw new Error(`an update was answered by ${answer.kind}`);
  }
  return UpdateDisposition.STORED;
}
