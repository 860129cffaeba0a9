/**
 * The questions to reconcile handlers on sessions of this broker: sent, and their answers brought to the drivers of their calls.
 *
 * Invariants: only a handler that said it reconciles is asked, on the session that the question was made for; an answer counts
 * only for a question that its session was sent, so nothing of it is stored otherwise; it is brought to the driver until that
 * heard it or the session is over: then the next hello leads to another question.
 */
import type { ReconcileAnswer } from "@toolrunner/proto";
import type { StoredText } from "../domain/call/call-state.js";
import { type BackOff, backOffMs } from "../domain/call/decide.js";
import { ERROR_MESSAGE_CHARACTERS_MAX, RESULT_BYTES_MAX, RESULT_DEPTH_MAX } from "../domain/limits.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { BlobStore } from "../domain/ports/ledger.js";
import type { DriverHint } from "./call-router.js";
import type { DriverCommand, QuestionToSend, SessionAnswer } from "./commands.js";
import type { Figures } from "./figures.js";
import { cut, grantFrame, inlineText, receiptAckFrame } from "./frames.js";
import { handlerKey } from "./requirement.js";
import { fault, isId, type RunnerAsks, runnerOf } from "./runner-asks.js";
import { readRunnerJson } from "./runner-json.js";
import type { Session } from "./session.js";
import { SESSION_GRANTS_MAX } from "./session-grants.js";
import { storedOnce } from "./stored-once.js";

const AGAIN: BackOff = { baseMs: 100, maxMs: 5_000, jitter: 0.5 };

/** What a handler said, in the driver's terms. */
type Said = Pick<Extract<DriverCommand, { op: "reconcile_answer" }>, "outcome" | "message"> & { readonly json: string | null };

interface Asked {
  readonly callId: string;
  readonly startedGrantId: string;
  driver: string | undefined;
}

export class SessionAsks {
  /** By the reconcile grant's id. */
  private readonly asked = new WeakMap<Session, Map<string, Asked>>();

  constructor(
    private readonly context: {
      readonly asks: RunnerAsks;
      readonly blobs: BlobStore;
      readonly clock: Pick<Clock, "now">;
      readonly ids: IdSource;
      readonly figures: Pick<Figures, "leaseMs">;
    },
  ) {}

  /** `sent`: a question about a call of this tool would be; `never_sent`: no handler of the session answers one. */
  canAsk(session: Session, tool: { readonly tool: string; readonly version: string; readonly journalId: string }): SessionAnswer {
    const { application, binding } = session.ref;
    const handler = session.handlers.get(handlerKey(application, binding, tool.tool, tool.version));
    return handler?.reconciles === true && session.journalId === tool.journalId && !session.draining ? "sent" : "never_sent";
  }

  /** Idempotent: the same question asked again is the same question. */
  send(session: Session, question: QuestionToSend): SessionAnswer {
    const { grant, startedGrantId, startedFence, journalId } = question;
    const asked = this.asked.get(session) ?? new Map<string, Asked>();
    this.asked.set(session, asked);
    if (this.canAsk(session, { tool: grant.tool, version: grant.version, journalId }) !== "sent" || asked.size >= SESSION_GRANTS_MAX) {
      return "never_sent";
    }
    asked.set(grant.grantId, { callId: grant.callId, startedGrantId, driver: grant.driver });
    const { figures, clock } = this.context;
    const times = { leaseMs: figures.leaseMs, nowMs: clock.now(), pongNumber: session.pongNumber, resultBytesMax: RESULT_BYTES_MAX };
    const { frame } = grantFrame(grant, session, times);
    session.channel.send({
      frame: { $case: "reconcile", value: { grant: frame?.$case === "grant" ? frame.value : undefined, startedGrantId, startedFence } },
    });
    return "sent";
  }

  /** The driver wants no answer any more. */
  forget(session: Session, grantId: string): void {
    this.asked.get(session)?.delete(grantId);
  }

  take(session: Session, answer: ReconcileAnswer): void {
    const { callId, grantId } = answer;
    if (!isId(callId) || !isId(grantId)) {
      fault(session, "frame_invalid", "reconcile_answer: call_id and grant_id are needed, as the question named them", callId);
      return;
    }
    const said = saidIn(answer);
    if (typeof said === "string") {
      fault(session, "frame_invalid", `reconcile_answer: ${said}`, callId);
      return;
    }
    const asked = this.asked.get(session)?.get(grantId);
    if (asked === undefined || asked.callId !== callId) {
      // It was taken back, or answered: as late as a cancel's answer may be.
      return;
    }
    this.forget(session, grantId);
    session.work.inOrder(grantId, said.json?.length ?? 0, () => this.deliver(session, grantId, asked, said));
  }

  private async deliver(session: Session, grantId: string, { callId, startedGrantId, driver }: Asked, said: Said): Promise<void> {
    const { asks, ids, blobs } = this.context;
    const hint: DriverHint = { driver };
    for (let tries = 1; !session.closed; tries += 1) {
      try {
        const value: StoredText | null = said.json === null ? null : await storedOnce(blobs, callId, inlineText(said.json));
        const { outcome, message } = said;
        const command = { op: "reconcile_answer", runner: runnerOf(session), grantId, outcome, message, value } as const;
        const answer = await asks.ask(session, callId, command, hint);
        const isOver = answer === undefined || (answer.kind === "held" && answer.over === true);
        if (isOver && outcome !== "unavailable") {
          // No receipt of it is stored, and none is waited for: the runner may forget it.
          session.channel.send(receiptAckFrame(callId, startedGrantId, "expired"));
        }
        return;
      } catch (error) {
        asks.failed(session, callId, "reconcile_answer", error);
      }
      hint.driver = undefined;
      await session.work.pause(backOffMs(tries, ids.random(), AGAIN));
    }
  }
}

/** What the frame says; a text says what is not well-formed. */
function saidIn({ outcome }: ReconcileAnswer): Said | string {
  switch (outcome?.$case) {
    case "applied": {
      const { resultJson } = outcome.value;
      const read = readRunnerJson(resultJson);
      if (read.kind === "not_json") {
        return "the result is not JSON";
      }
      if (read.kind === "too_deep") {
        return unknown(`it was applied, but its result is nested deeper than ${RESULT_DEPTH_MAX} levels`);
      }
      const { bytes } = inlineText(resultJson);
      if (bytes > RESULT_BYTES_MAX) {
        return unknown(`it was applied, but its result has ${bytes} bytes, over the limit of ${RESULT_BYTES_MAX}`);
      }
      return { outcome: "applied", message: "", json: resultJson };
    }
    case "notApplied":
      return { outcome: "not_applied", message: "", json: null };
    case "unknown":
      return unknown(outcome.value.message);
    case "unavailable":
      return { outcome: "unavailable", message: cut(outcome.value.message, ERROR_MESSAGE_CHARACTERS_MAX), json: null };
    default:
      return "outcome: expected one of applied, not_applied, unknown, unavailable, got nothing";
  }
}

function unknown(message: string): Said {
  return { outcome: "unknown", message: cut(message, ERROR_MESSAGE_CHARACTERS_MAX), json: null };
}
