/**
 * Brings receipts to the drivers of their calls and their dispositions back.
 *
 * Invariants (G5): a receipt is acknowledged only with the disposition of the append that it caused, as often as it was sent;
 * it is repeated until then, for no longer than its session lives: the runner sends it again elsewhere; a large value is stored
 * only for a call that takes it, and once however often it is sent.
 */
import type { Receipt } from "@toolrunner/proto";
import type { StoredText } from "../domain/call/call-state.js";
import { type BackOff, backOffMs, callError } from "../domain/call/decide.js";
import { RESULT_DEPTH_MAX } from "../domain/limits.js";
import type { IdSource } from "../domain/ports/clock.js";
import { type BlobStore, INLINE_VALUE_BYTES_MAX } from "../domain/ports/ledger.js";
import type { DriverHint } from "./call-router.js";
import type { ReceiptDispositionName } from "./commands.js";
import { inlineText, type ReceiptFactsRead, receiptAckFrame, receiptFacts } from "./frames.js";
import { fault, isId, type RunnerAsks, runnerOf } from "./runner-asks.js";
import { readRunnerJson } from "./runner-json.js";
import type { Session } from "./session.js";
import { storedOnce } from "./stored-once.js";

const AGAIN: BackOff = { baseMs: 100, maxMs: 5_000, jitter: 0.5 };

interface Delivery {
  /** How often the runner sent it and was not answered. */
  sent: number;
}

export class ReceiptDelivery {
  /** By session, then by grant and digest. */
  private readonly under = new WeakMap<Session, Map<string, Delivery>>();

  constructor(
    private readonly context: {
      readonly asks: RunnerAsks;
      readonly blobs: BlobStore;
      readonly ids: IdSource;
      /** The receipt of this grant was answered, or its session is over. */
      readonly answered: (session: Session, grantId: string) => void;
    },
  ) {}

  take(session: Session, receipt: Receipt): void {
    if (!isId(receipt.callId) || !isId(receipt.grantId)) {
      fault(session, "frame_invalid", "receipt: call_id and grant_id are needed, as the grant named them", receipt.callId);
      return;
    }
    const read = receiptFacts(receipt, session.ref.runnerId);
    if (typeof read === "string") {
      fault(session, "frame_invalid", `receipt: ${read}`, receipt.callId);
      return;
    }
    const value = read.json === null ? undefined : readRunnerJson(read.json);
    if (value?.kind === "not_json") {
      fault(session, "frame_invalid", "receipt: the result is not JSON", receipt.callId);
      return;
    }
    session.declines = 0;
    session.grants.finish(receipt.grantId);
    const under = this.under.get(session) ?? new Map<string, Delivery>();
    this.under.set(session, under);
    const key = `${receipt.grantId}/${receipt.digest}`;
    const present = under.get(key);
    if (present !== undefined) {
      present.sent += 1;
      return;
    }
    const delivery: Delivery = { sent: 1 };
    under.set(key, delivery);
    session.work.inOrder(receipt.grantId, read.json?.length ?? 0, async () => {
      const disposition = await this.deliver(session, receipt.callId, value?.kind === "too_deep" ? tooDeep(read.facts) : read);
      under.delete(key);
      if (disposition !== undefined) {
        session.grants.settle(receipt.grantId);
        for (let acknowledged = 0; acknowledged < delivery.sent; acknowledged += 1) {
          session.channel.send(receiptAckFrame(receipt.callId, receipt.grantId, disposition));
        }
      }
      this.context.answered(session, receipt.grantId);
    });
  }

  /** `undefined`: the session is over. */
  private async deliver(session: Session, callId: string, read: ReceiptFactsRead): Promise<ReceiptDispositionName | undefined> {
    const hint: DriverHint = { driver: session.grants.get(read.facts.grantId)?.driver };
    for (let tries = 1; !session.closed; tries += 1) {
      try {
        return await this.disposition(session, callId, read, hint);
      } catch (error) {
        this.context.asks.failed(session, callId, "receipt", error);
      }
      hint.driver = undefined;
      await session.work.pause(backOffMs(tries, this.context.ids.random(), AGAIN));
    }
    return undefined;
  }

  private async disposition(
    session: Session,
    callId: string,
    { facts, json }: ReceiptFactsRead,
    hint: DriverHint,
  ): Promise<ReceiptDispositionName> {
    const { asks, blobs } = this.context;
    const runner = runnerOf(session);
    let value: StoredText | null = json === null ? null : inlineText(json);
    if (value !== null && value.bytes > INLINE_VALUE_BYTES_MAX) {
      const wanted = await asks.ask(session, callId, { op: "receipt_probe", runner, receipt: { ...facts, value: null } }, hint);
      if (wanted?.kind !== "done") {
        return wanted?.kind === "disposition" ? wanted.disposition : "expired";
      }
      value = await storedOnce(blobs, callId, value);
    }
    const answer = await asks.ask(session, callId, { op: "receipt", runner, receipt: { ...facts, value } }, hint);
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
