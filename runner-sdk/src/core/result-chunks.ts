/**
 * Sends results that are too large for one frame in chunks, before the receipt that names them.
 *
 * Invariants:
 * - One result at a time, and at most {@link WINDOW} chunks that the broker has not answered: it needs room for one result of a session, and a
 *   slow one slows this down.
 * - A receipt is sent after the broker has said that it holds all chunks of it, on the same session.
 * - Whatever goes wrong, the whole result is sent again: from its first chunk, or on the next session. It stays in the journal until then (I7).
 */
import { type Clock, elapsedMs, type Instant, instant } from "./clock.js";
import type { Sha256 } from "./digest.js";
import { utf8Bytes } from "./json.js";
import type { EventLog } from "./log.js";
import type { ChunkAnswer, ChunkReference, Receipt } from "./messages.js";
import type { SessionLink } from "./session-link.js";
import { chunkFrame } from "./wire.js";

/** Bytes of one chunk as UTF-8. In the JSON encoding each may become two, and a frame has 1 MiB. */
export const CHUNK_BYTES_MAX = 393_216;
/** Chunks under way. */
const WINDOW = 4;
const AGAIN_MS = 250;
const AGAIN_MAX_MS = 5_000;

/** What the sender asks of who owns the receipts. */
export interface ChunkedDelivery {
  /** All chunks are with the broker: the receipt may go. */
  complete(receipt: Receipt, chunks: ChunkReference): void;
  /** The broker will never take it. */
  refused(receipt: Receipt, limitBytes: number): void;
}

interface Stream {
  readonly receipt: Receipt;
  readonly text: string;
  readonly pieces: readonly { readonly from: number; readonly to: number }[];
  readonly reference: ChunkReference;
  /** Chunks sent, and chunks that the broker has. */
  sent: number;
  received: number;
  heardAt: Instant;
  /** Rises when it starts over: what an earlier round still does counts for nothing. */
  round: number;
}

/** See the module's header. */
export class ResultChunks {
  #link: SessionLink | null = null;
  #waiting: Receipt[] = [];
  #stream: Stream | null = null;
  #beginning: Receipt | null = null;
  #startedOver = 0;

  constructor(
    private readonly deps: {
      readonly clock: Clock;
      readonly log: EventLog;
      readonly sha256: Sha256;
      readonly delivery: ChunkedDelivery;
    },
  ) {}

  attach(link: SessionLink): void {
    this.#link = link;
    this.#waiting = [];
    this.#stream = null;
    this.#beginning = null;
    this.#startedOver = 0;
  }

  detach(): void {
    this.#link = null;
    this.#waiting = [];
    this.#stream = null;
    this.#beginning = null;
  }

  /** Sends the receipt's result, after those that wait. One that is on its way already is not sent twice. */
  send(receipt: Receipt): void {
    const same = (other: Receipt | null | undefined) => other?.grantId === receipt.grantId && other.digest === receipt.digest;
    if (this.#link === null || same(this.#stream?.receipt) || same(this.#beginning) || this.#waiting.some(same)) return;
    this.#waiting.push(receipt);
    this.#next();
  }

  /** The broker's word on the chunks of one result. */
  answered(answer: ChunkAnswer): void {
    const stream = this.#stream;
    if (stream === null || stream.receipt.grantId !== answer.grantId || stream.receipt.digest !== answer.digest) return;
    stream.heardAt = instant(this.deps.clock);
    switch (answer.verdict) {
      case "received":
        stream.received = Math.min(stream.sent, Math.max(stream.received, answer.received));
        // It may hold them from before.
        if (answer.received >= stream.pieces.length) stream.received = stream.pieces.length;
        if (stream.received < stream.pieces.length) return void this.#sendMore(stream);
        this.#stream = null;
        this.#startedOver = 0;
        this.deps.delivery.complete(stream.receipt, stream.reference);
        return this.#next();
      case "refused":
        this.#stream = null;
        this.deps.delivery.refused(stream.receipt, answer.limitBytes);
        return this.#next();
      case "start_over":
      case "busy":
        this.#startedOver += 1;
        this.deps.log.warn("result_chunks_again", {
          call_id: stream.receipt.callId,
          grant_id: stream.receipt.grantId,
          reason: answer.verdict,
          times: this.#startedOver,
        });
        return this.#startOver(
          stream,
          Math.max(answer.retryAfterMs, Math.min(AGAIN_MAX_MS, AGAIN_MS * 2 ** Math.min(this.#startedOver - 1, 10))),
        );
      case "unknown":
        return;
    }
  }

  /** Starts over what the broker did not speak of for so long. */
  restartOverdue(afterMs: number): void {
    const stream = this.#stream;
    if (stream !== null && elapsedMs(this.deps.clock, stream.heardAt) >= afterMs) this.#startOver(stream, 0);
  }

  #next(): void {
    if (this.#stream !== null || this.#beginning !== null) return;
    const receipt = this.#waiting.shift();
    const link = this.#link;
    if (receipt === undefined || link === null) return;
    this.#beginning = receipt;
    void this.#begin(receipt, link);
  }

  async #begin(receipt: Receipt, link: SessionLink): Promise<void> {
    const text = receipt.outcome.kind === "succeeded" ? receipt.outcome.resultJson : "";
    const sha256 = await this.deps.sha256(text);
    if (this.#link !== link || this.#beginning !== receipt) return;
    const pieces = piecesOf(text, Math.min(CHUNK_BYTES_MAX, link.limits.chunkBytes || CHUNK_BYTES_MAX));
    const reference = { count: pieces.length, bytes: utf8Bytes(text), sha256 };
    this.#beginning = null;
    this.#stream = { receipt, text, pieces, reference, sent: 0, received: 0, heardAt: instant(this.deps.clock), round: 0 };
    await this.#sendMore(this.#stream);
  }

  async #sendMore(stream: Stream): Promise<void> {
    const link = this.#link;
    const { round } = stream;
    while (link !== null && this.#link === link && this.#stream === stream && stream.round === round) {
      if (stream.sent >= stream.pieces.length || stream.sent - stream.received >= WINDOW) return;
      const index = stream.sent;
      const piece = stream.pieces[index] as { readonly from: number; readonly to: number };
      stream.sent += 1;
      const { callId, grantId, fence, digest } = stream.receipt;
      link.send(
        chunkFrame(
          { callId, grantId, fence },
          { digest, index, totalBytes: stream.reference.bytes, data: stream.text.slice(piece.from, piece.to) },
        ),
      );
      // What goes out meanwhile, ping answers above all, does not wait behind more than a chunk or two.
      await link.drained();
    }
  }

  #startOver(stream: Stream, delayMs: number): void {
    stream.round += 1;
    stream.sent = 0;
    stream.received = 0;
    const { round } = stream;
    const again = () => {
      if (this.#stream === stream && stream.round === round) void this.#sendMore(stream);
    };
    stream.heardAt = instant(this.deps.clock);
    if (delayMs <= 0) again();
    else this.deps.clock.schedule(delayMs, again);
  }
}

function isFirstOfPair(text: string, at: number): boolean {
  const unit = text.charCodeAt(at);
  return unit >= 0xd800 && unit <= 0xdbff && at + 1 < text.length;
}

/** Cuts a text into pieces of at most `maxBytes`, 4 or more, as UTF-8, no character in two. */
export function piecesOf(text: string, maxBytes: number): readonly { readonly from: number; readonly to: number }[] {
  const pieces: { readonly from: number; readonly to: number }[] = [];
  for (let from = 0; from < text.length; ) {
    // A pair of surrogates is one character.
    const least = isFirstOfPair(text, from) ? 2 : 1;
    let units = Math.min(Math.max(least, maxBytes), text.length - from);
    for (;;) {
      if (units > least && isFirstOfPair(text, from + units - 1)) units -= 1;
      const bytes = utf8Bytes(text.slice(from, from + units));
      if (bytes <= maxBytes || units === least) break;
      units = Math.max(least, Math.min(units - 1, Math.floor((units * maxBytes) / bytes)));
    }
    pieces.push({ from, to: from + units });
    from += units;
  }
  return pieces;
}
