/**
 * Brings receipts to the broker: sends each when it is journaled, again in every new session, and again when a session leaves
 * one unanswered, until it is acknowledged.
 *
 * Invariants: only what is durable is sent (I7). An acknowledgement names the grant, not the receipt; the broker takes the
 * receipts of one grant in order, so each acknowledgement is of the oldest one sent and not yet answered in this session. Thus
 * the one for a submission never counts for the final receipt that followed it. Receipts are never dropped: what a slow connection
 * does not take waits in the journal, not in memory, and is sent at the connection's pace.
 */
import { type Clock, elapsedMs, type Instant, instant } from "./clock.js";
import type { Sha256 } from "./digest.js";
import type { JournalGate } from "./journal-gate.js";
import { utf8Bytes } from "./json.js";
import type { EventLog } from "./log.js";
import type { ChunkAnswer, ChunkReference, Outcome, Receipt, ReceiptDisposition } from "./messages.js";
import { FRAME_BYTES_DEFAULT, RESULT_BYTES_DEFAULT, receiptOf, tooLarge } from "./outcome.js";
import { ResultChunks } from "./result-chunks.js";
import type { SessionLink } from "./session-link.js";
import { receiptFrame } from "./wire.js";

interface Sent {
  readonly digests: string[];
  at: Instant;
}

/** Delivers receipts; see the rules above. */
export class Delivery {
  #link: SessionLink | null = null;
  #sent = new Map<string, Sent>();
  /** Sends what waits, on this session. */
  #pumping: SessionLink | null = null;
  /** A receipt came that waits, after the pump took what there was. */
  #more = false;
  readonly #chunks: ResultChunks;

  constructor(
    private readonly deps: {
      readonly journal: JournalGate;
      readonly clock: Clock;
      readonly log: EventLog;
      readonly sha256: Sha256;
      readonly onAcknowledged: () => void;
    },
  ) {
    this.#chunks = new ResultChunks({
      ...deps,
      delivery: {
        complete: (receipt, chunks) => this.#isCurrent(receipt) && this.#sendWhole(receipt, chunks),
        refused: (receipt, limitBytes) => {
          if (this.#isCurrent(receipt)) void this.#replace(receipt, limitBytes, undefined);
        },
      },
    });
  }

  /** Bytes of the largest result that the present session takes, or any would. */
  get resultBytesMax(): number {
    return this.#link?.limits.chunkedResultBytes || this.#link?.limits.resultBytes || RESULT_BYTES_DEFAULT;
  }

  /** Whether every journaled receipt is acknowledged. */
  get idle(): boolean {
    for (const entry of this.deps.journal.view.unacknowledged()) if (entry.receipt !== null) return false;
    return true;
  }

  /** A session is up: everything that is not acknowledged is sent again, oldest first, at the pace of the connection. */
  async attach(link: SessionLink): Promise<void> {
    this.#link = link;
    this.#sent = new Map();
    this.#chunks.attach(link);
    const count = this.#waiting().length;
    if (count > 0) this.deps.log.info("receipts_resent", { count });
    await this.#pump(link);
  }

  #waiting(): string[] {
    return [...this.deps.journal.view.unacknowledged()].flatMap(({ receipt }) => (receipt === null ? [] : receipt.grantId));
  }

  /** Sends what this session was not sent, oldest first. */
  async #pump(link: SessionLink): Promise<void> {
    if (this.#pumping === link) {
      this.#more = true;
      return;
    }
    this.#pumping = link;
    do {
      this.#more = false;
      for (const grantId of this.#waiting()) {
        await link.drained();
        if (this.#link !== link) break;
        // Meanwhile it may have been acknowledged, or replaced by a final receipt.
        const entry = this.deps.journal.view.get(grantId);
        if (entry?.receipt == null || entry.acknowledged) continue;
        if (this.#sent.get(grantId)?.digests.includes(entry.receipt.digest) !== true) this.#sendNow(entry.receipt);
      }
    } while (this.#more && this.#link === link);
    if (this.#pumping === link) this.#pumping = null;
  }

  detach(): void {
    this.#link = null;
    this.#chunks.detach();
  }

  /** The broker's word on the chunks of a result. */
  chunksAnswered(answer: ChunkAnswer): void {
    this.#chunks.answered(answer);
  }

  /** Sends a durable receipt if a session is up; else the next session does. In its turn, where too much waits to be sent already. */
  send(receipt: Receipt): void {
    const link = this.#link;
    if (link?.congested === true) void this.#pump(link);
    else this.#sendNow(receipt);
  }

  #sendNow(receipt: Receipt): void {
    const link = this.#link;
    if (link === null) return;
    const { chunkedResultBytes, resultBytes } = link.limits;
    const bytes = chunkedResultBytes > 0 ? payloadBytes(receipt.outcome, resultBytes || RESULT_BYTES_DEFAULT) : 0;
    if (bytes === 0) return this.#sendWhole(receipt, undefined);
    if (bytes > chunkedResultBytes) void this.#replace(receipt, chunkedResultBytes, undefined);
    else this.#chunks.send(receipt);
  }

  /** Sends the frame of a receipt. One that is too large, as a JSON text with many escapes may be, goes in chunks where the broker takes them. */
  #sendWhole(receipt: Receipt, chunks: ChunkReference | undefined): void {
    const answer = this.#link?.send(receiptFrame(receipt, chunks));
    if (answer === "too_large") {
      if (receipt.outcome.kind === "succeeded" && (this.#link?.limits.chunkedResultBytes ?? 0) > 0) this.#chunks.send(receipt);
      else void this.#replace(receipt, this.#link?.limits.frameBytes || FRAME_BYTES_DEFAULT, "a frame, which holds it encoded");
    }
    if (answer !== "sent") return;
    const sent = this.#sent.get(receipt.grantId);
    if (sent === undefined) this.#sent.set(receipt.grantId, { digests: [receipt.digest], at: instant(this.deps.clock) });
    else {
      sent.digests.push(receipt.digest);
      sent.at = instant(this.deps.clock);
    }
  }

  /** Sends again what this session left unanswered for `afterMs`. */
  resendOverdue(afterMs: number): void {
    this.#chunks.restartOverdue(afterMs);
    for (const [grantId, sent] of this.#sent) {
      if (elapsedMs(this.deps.clock, sent.at) < afterMs) continue;
      const entry = this.deps.journal.view.get(grantId);
      if (entry?.receipt == null || entry.acknowledged) this.#sent.delete(grantId);
      else this.send(entry.receipt);
    }
  }

  /** The broker acknowledged the oldest unanswered receipt of this grant. */
  acknowledge(grantId: string, disposition: ReceiptDisposition): void {
    const { journal, log, clock } = this.deps;
    const sent = this.#sent.get(grantId);
    const digest = sent?.digests.shift();
    if (sent === undefined || digest === undefined) return log.warn("acknowledgement_unexpected", { grant_id: grantId });
    if (sent.digests.length === 0) this.#sent.delete(grantId);
    const entry = journal.view.get(grantId);
    if (disposition === "evidence" || disposition === "expired") log.warn("receipt_not_settling", { grant_id: grantId, disposition });
    if (entry?.receipt?.digest !== digest) return;
    journal.note({ kind: "acknowledged", grantId, at: clock.now() });
    this.deps.onAcknowledged();
  }

  /** Meanwhile it may have been acknowledged, or replaced. */
  #isCurrent({ grantId, digest }: Receipt): boolean {
    const entry = this.deps.journal.view.get(grantId);
    return entry?.receipt?.digest === digest && !entry.acknowledged;
  }

  /** A receipt that the broker cannot take would never arrive: the call fails with a reason instead. */
  async #replace(receipt: Receipt, limit: number, ofWhat: string | undefined): Promise<void> {
    const { journal, clock, log } = this.deps;
    log.error("receipt_too_large", { call_id: receipt.callId, grant_id: receipt.grantId });
    const tool = journal.view.get(receipt.grantId)?.tool ?? "";
    const failure = tooLarge(tool, payloadBytes(receipt.outcome, 0), limit, ofWhat);
    const replacement = await receiptOf(this.deps.sha256, receipt, failure, {
      startedAtUnixMs: receipt.startedAtUnixMs,
      finishedAtUnixMs: receipt.finishedAtUnixMs,
    });
    if (await journal.appendUntilWritten({ kind: "finished", receipt: replacement, at: clock.now() })) this.send(replacement);
  }
}

/** Bytes of the result as UTF-8 where they are more than `above`; else, and of anything but a result or handle, 0. */
function payloadBytes(outcome: Outcome, above: number): number {
  const text = outcome.kind === "succeeded" ? outcome.resultJson : outcome.kind === "submitted" && above === 0 ? outcome.handleJson : "";
  // A unit has three bytes at most: nearly all results need no count.
  if (text.length * 3 <= above) return 0;
  const bytes = utf8Bytes(text);
  return bytes > above ? bytes : 0;
}
