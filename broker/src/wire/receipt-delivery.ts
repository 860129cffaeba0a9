/**
 * Brings receipts to the drivers of their calls and their dispositions back.
 *
 * Invariants (G5): a receipt is acknowledged only with the disposition of the append that it caused, as often as it was sent;
 * it is repeated until then, for no longer than its session lives: the runner sends it again elsewhere; a large value is stored
 * only for a call that takes it, and once however often it is sent.
 */
import type { Receipt } from "@toolrunner/proto";
import { type BackOff, backOffMs } from "../domain/call/decide.js";
import type { IdSource } from "../domain/ports/clock.js";
import type { DriverHint } from "./call-router.js";
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

export class ReceiptDelivery {
  /** By session, then by grant and digest. */
  private readonly under = new WeakMap<Session, Map<string, Delivery>>();

  constructor(
    private readonly acceptance: ReceiptAcceptance,
    private readonly context: {
      readonly asks: RunnerAsks;
      readonly ids: IdSource;
      /** The receipt of this grant was answered, or its session is over. */
      readonly answered: (session: Session, grantId: string) => void;
    },
  ) {}

  take(session: Session, receipt: Receipt): void {
    const read = readReceipt(receipt, session.ref.runnerId);
    if (typeof read === "string") {
      fault(session, "frame_invalid", read, receipt.callId);
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
      const disposition = await this.deliver(session, receipt.callId, read);
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
