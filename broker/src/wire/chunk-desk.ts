/**
 * Takes results that come in chunks, and gives each whole to the receipt that names it.
 *
 * Invariants:
 * - What is held is bounded: for each session, and for all of them, counted by what the first chunk announces, until the receipt is dealt with.
 * - Only an unbroken row of chunks, from the first to the last, whose bytes and digest are what the receipt says, is ever given out. Anything
 *   else is answered by a verdict that says what to do, and drops that row: other rows, and the session, go on.
 * - A row that stands still, or whose session ends, is dropped. Nothing of it is stored before its receipt.
 */
import { createHash, type Hash } from "node:crypto";
import type { BrokerFrame, ResultChunk, ResultChunks } from "@toolrunner/proto";
import { ChunkVerdict } from "@toolrunner/proto";
import { JsonScan, type JsonScanResult } from "../domain/json-scan.js";
import { CHUNK_BYTES_MAX, CHUNKS_BYTES_MAX, SESSION_CHUNKS_BYTES_MAX } from "../domain/limits.js";
import type { Clock } from "../domain/ports/clock.js";
import { isId, logged } from "./runner-asks.js";
import type { Session } from "./session.js";

/** A row to which nothing was added for this long is dropped when another one wants its room. */
const STILL_MS = 15_000;
/** A runner that finds no room asks again after this time. */
const BUSY_MS = 1_000;

interface Row {
  readonly session: Session;
  readonly grantId: string;
  readonly digest: string;
  readonly totalBytes: number;
  readonly pieces: string[];
  readonly hash: Hash;
  readonly scan: JsonScan;
  bytes: number;
  /** Monotonic. */
  addedAtMs: number;
}

/** A result that was whole. `release` gives its room back; to be called once it is stored, or not wanted. */
export interface WholeResult {
  readonly text: string;
  readonly kind: JsonScanResult;
  release(): void;
}

export interface ChunkDeskContext {
  readonly clock: Pick<Clock, "monotonic">;
  /** Largest result. */
  readonly resultBytesMax: number;
}

export class ChunkDesk {
  /** By session and grant, the one that moved last at the end. */
  private readonly rows = new Map<string, Row>();
  private readonly bytesOf = new WeakMap<Session, number>();
  private bytes = 0;
  private readonly names = new WeakMap<Session, number>();
  private lastName = 0;

  constructor(private readonly context: ChunkDeskContext) {}

  /** Bytes that are held, or that room is kept for. */
  get heldBytes(): number {
    return this.bytes;
  }

  /** Takes a chunk in; the answer to it, or what is wrong with its form. `isKnown`: the receipt is here already, and needs no chunks. */
  take(session: Session, chunk: ResultChunk, isKnown: boolean): BrokerFrame | string {
    const { callId, grantId, digest, index, totalBytes, data } = chunk;
    if (!isId(callId) || !isId(grantId)) {
      return "call_id and grant_id are needed, as the grant named them";
    }
    if (!/^[0-9a-f]{64}$/.test(digest)) {
      return "digest: expected 64 hexadecimal digits, the receipt's";
    }
    const size = Buffer.byteLength(data);
    if (size === 0 || size > CHUNK_BYTES_MAX) {
      return `data: expected 1 to ${CHUNK_BYTES_MAX} bytes, got ${size}`;
    }
    const answer = answerTo(chunk);
    if (isKnown) {
      return answer(ChunkVerdict.RECEIVED, { received: ALL });
    }
    if (totalBytes > this.context.resultBytesMax) {
      this.drop(session, grantId);
      const message = `the result has ${totalBytes} bytes, over the limit of ${this.context.resultBytesMax}`;
      return answer(ChunkVerdict.REFUSED, { limitBytes: this.context.resultBytesMax, message });
    }
    if (index === 0 && !this.begin(session, chunk)) {
      return answer(ChunkVerdict.BUSY, { retryAfterMs: BUSY_MS, message: "the broker has no room for another large result now" });
    }
    const row = this.rows.get(this.keyOf(session, grantId));
    const why = row === undefined ? "no first chunk came before it" : faultOf(row, chunk, size);
    if (row === undefined || why !== undefined) {
      this.drop(session, grantId);
      return answer(ChunkVerdict.START_OVER, { message: `chunk ${index}: ${why}` });
    }
    row.pieces.push(data);
    row.hash.update(data);
    row.scan.push(data);
    row.bytes += size;
    this.touch(row);
    return answer(ChunkVerdict.RECEIVED, { received: row.pieces.length });
  }

  /** The result that a receipt names, taken out; else the verdict that the runner gets. */
  whole(
    session: Session,
    receipt: { readonly callId: string; readonly grantId: string; readonly digest: string },
    named: ResultChunks,
  ): WholeResult | BrokerFrame {
    const row = this.rows.get(this.keyOf(session, receipt.grantId));
    const why = row === undefined ? "no chunks of it are here" : mismatch(row, receipt.digest, named);
    if (row === undefined || why !== undefined) {
      this.drop(session, receipt.grantId);
      return answerTo(receipt)(ChunkVerdict.START_OVER, { message: `receipt: ${why}` });
    }
    this.rows.delete(this.keyOf(session, receipt.grantId));
    let isHeld = true;
    return {
      text: row.pieces.join(""),
      kind: row.scan.end(),
      release: () => {
        if (isHeld) {
          isHeld = false;
          this.give(session, row.totalBytes);
        }
      },
    };
  }

  /** The session is over. */
  ended(session: Session): void {
    for (const row of [...this.rows.values()]) {
      if (row.session === session) {
        this.drop(session, row.grantId);
      }
    }
  }

  private begin(session: Session, { grantId, digest, totalBytes }: ResultChunk): boolean {
    this.drop(session, grantId);
    if (!this.makeRoom(session, totalBytes)) {
      return false;
    }
    this.bytes += totalBytes;
    this.bytesOf.set(session, (this.bytesOf.get(session) ?? 0) + totalBytes);
    const row: Row = {
      session,
      grantId,
      digest,
      totalBytes,
      pieces: [],
      hash: createHash("sha256"),
      scan: new JsonScan(),
      bytes: 0,
      addedAtMs: this.context.clock.monotonic(),
    };
    this.rows.set(this.keyOf(session, grantId), row);
    return true;
  }

  /** Drops what stands still, the longest first, as far as that is needed. */
  private makeRoom(session: Session, bytes: number): boolean {
    const fits = (): boolean =>
      this.bytes + bytes <= CHUNKS_BYTES_MAX && (this.bytesOf.get(session) ?? 0) + bytes <= SESSION_CHUNKS_BYTES_MAX;
    const before = this.context.clock.monotonic() - STILL_MS;
    for (const row of [...this.rows.values()]) {
      if (fits() || row.addedAtMs > before) {
        break;
      }
      this.drop(row.session, row.grantId);
    }
    return fits();
  }

  private touch(row: Row): void {
    row.addedAtMs = this.context.clock.monotonic();
    const key = this.keyOf(row.session, row.grantId);
    this.rows.delete(key);
    this.rows.set(key, row);
  }

  private drop(session: Session, grantId: string): void {
    const key = this.keyOf(session, grantId);
    const row = this.rows.get(key);
    if (row !== undefined) {
      this.rows.delete(key);
      this.give(session, row.totalBytes);
    }
  }

  private give(session: Session, bytes: number): void {
    this.bytes -= bytes;
    this.bytesOf.set(session, (this.bytesOf.get(session) ?? 0) - bytes);
  }

  private keyOf(session: Session, grantId: string): string {
    const known = this.names.get(session) ?? this.lastName + 1;
    if (known > this.lastName) {
      this.lastName = known;
      this.names.set(session, known);
    }
    return `${known}/${grantId}`;
  }
}

/** More chunks than any result has. */
const ALL = 0xffff_ffff;

function faultOf(row: Row, { index, digest, totalBytes }: ResultChunk, size: number): string | undefined {
  if (digest !== row.digest) {
    return "it is of another receipt than those before";
  }
  if (index !== row.pieces.length) {
    return `chunk ${row.pieces.length} was to come`;
  }
  if (totalBytes !== row.totalBytes) {
    return `the result had ${row.totalBytes} bytes, and now has ${totalBytes}`;
  }
  return row.bytes + size > row.totalBytes ? `there are more than the ${row.totalBytes} bytes that were announced` : undefined;
}

function mismatch(row: Row, digest: string, named: ResultChunks): string | undefined {
  if (digest !== row.digest) {
    return "the chunks are of another receipt";
  }
  if (row.pieces.length !== named.count || row.bytes !== named.bytes || row.bytes !== row.totalBytes) {
    return `it names ${named.count} chunks with ${named.bytes} bytes, and ${row.pieces.length} with ${row.bytes} are here`;
  }
  return row.hash.copy().digest("hex") === named.sha256 ? undefined : "the chunks do not have the digest that it names";
}

function answerTo(about: { readonly callId: string; readonly grantId: string; readonly digest: string }) {
  return (
    verdict: ChunkVerdict,
    more: { received?: number; retryAfterMs?: number; limitBytes?: number; message?: string },
  ): BrokerFrame => ({
    frame: {
      $case: "chunkAnswer",
      value: {
        callId: logged(about.callId),
        grantId: logged(about.grantId),
        digest: about.digest,
        verdict,
        received: more.received ?? 0,
        retryAfterMs: more.retryAfterMs ?? 0,
        limitBytes: more.limitBytes ?? 0,
        message: more.message ?? "",
      },
    },
  });
}
