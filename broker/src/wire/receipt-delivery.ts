/**
 * Brings receipts to the drivers of their calls and their dispositions back.
 *
 * Invariants (G5): a receipt is acknowledged only with the disposition of the append that it caused, as often as it was sent;
 * it is repeated until then, for no longer than its session lives: the runner sends it again elsewhere; a large value is stored
 * only for a call that takes it, and once however often it is sent.
 */
import type { Receipt, ResultChunk } from "@toolrunner/proto";
import { type BackOff, backOffMs } from "../domain/call/decide.js";
import type { IdSource } from "../domain/ports/clock.js";
import type { DriverHint } from "./call-router.js";
import { ChunkDesk, type ChunkDeskContext } from "./chunk-desk.js";
import type { ReceiptDispositionName } from "./commands.js";
import { type ReceiptFactsRead, receiptAckFrame } from "./frames.js";
import { type ReceiptAcceptance, readReceipt } from "./receipt-acceptance.js";
import { fault, type RunnerAsks, runnerOf } from "./runner-asks.js";
import type { Session } from "./session.js";

const AGAIN: BackOff = { baseMs: 100, maxMs: 5_000, jitter: 0.5 };

interface Delivery {
  /** How often the runner sent it and was not answered. */
  sent: number;
}

export interface DeliveryContext extends ChunkDeskContext {
  readonly asks: RunnerAsks;
  readonly ids: IdSource;
  /** The receipt of this grant was answered, or its session is over. */
  readonly answered: (session: Session, grantId: string) => void;
  /** The runner of the grant gave a sign of life. */
  readonly heard: (session: Session, callId: string, grantId: string) => void;
}

export class ReceiptDelivery {
  /** By session, then by grant and digest. */
  private readonly under = new WeakMap<Session, Map<string, Delivery>>();

  private readonly chunks: ChunkDesk;

  constructor(
    private readonly acceptance: ReceiptAcceptance,
    private readonly context: DeliveryContext,
  ) {
    this.chunks = new ChunkDesk(context);
  }

  /** Bytes of results in chunks that are held now. */
  get chunkBytes(): number {
    return this.chunks.heldBytes;
  }

  /** The session is over: what it sent in chunks is not wanted any more. */
  ended(session: Session): void {
    this.chunks.ended(session);
  }

  /** A part of a result that is too large for one frame. */
  takeChunk(session: Session, chunk: ResultChunk): void {
    if (session.closed) {
      return;
    }
    const isKnown = this.under.get(session)?.has(`${chunk.grantId}/${chunk.digest}`) === true;
    const answer = this.chunks.take(session, chunk, isKnown);
    if (typeof answer === "string") {
      fault(session, "frame_invalid", `result_chunk: ${answer}`, chunk.callId);
      return;
    }
    session.channel.send(answer);
    // A large result may take longer on its way than a lease: its runner is there.
    this.context.heard(session, chunk.callId, chunk.grantId);
  }

  take(session: Session, receipt: Receipt): void {
    const key = `${receipt.grantId}/${receipt.digest}`;
    const known = this.under.get(session)?.get(key);
    const named = receipt.outcome?.$case === "succeeded" ? receipt.outcome.value.chunks : undefined;
    // What is on its way already needs no chunks again.
    const whole = named === undefined || known !== undefined ? undefined : this.chunks.whole(session, receipt, named);
    if (whole !== undefined && "frame" in whole) {
      session.channel.send(whole);
      return;
    }
    if (known !== undefined) {
      known.sent += 1;
      return;
    }
    const read = readReceipt(receipt, session.ref.runnerId, whole);
    if (typeof read === "string") {
      whole?.release();
      fault(session, "frame_invalid", read, receipt.callId);
      return;
    }
    session.declines = 0;
    session.grants.finish(receipt.grantId);
    const under = this.under.get(session) ?? new Map<string, Delivery>();
    this.under.set(session, under);
    const delivery: Delivery = { sent: 1 };
    under.set(key, delivery);
    session.work.inOrder(receipt.grantId, read.json?.length ?? 0, async () => {
      const disposition = await this.deliver(session, receipt.callId, read);
      whole?.release();
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
        return await this.acceptance.accept({ runner: runnerOf(session), runnerId: session.ref.runnerId }, callId, read, hint);
      } catch (error) {
        this.context.asks.failed(session, callId, "receipt", error);
      }
      hint.driver = undefined;
      await session.work.pause(backOffMs(tries, this.context.ids.random(), AGAIN));
    }
    return undefined;
  }
}
