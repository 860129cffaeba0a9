/**
 * News of the running attempt that agents are told live and that is not stored when it comes: the handler's start and
 * its progress. Owns their numbers until the next entry of the call brings them into the log.
 */
import type { NewsOrder } from "./commands.js";
import { NewsFilter } from "./news-order.js";

export class LiveNews {
  private grantId: string | undefined;
  private startedAtMs: number | null = null;
  private startedSeq: number | null = null;
  private lastSeq = 0;
  private count = 0;
  private readonly order = new NewsFilter();

  hasStarted(grantId: string): boolean {
    return this.grantId === grantId && this.startedSeq !== null;
  }

  /** The number that the start was told with. */
  get startedNumber(): number | null {
    return this.startedSeq;
  }

  progressCount(grantId: string): number {
    return this.grantId === grantId ? this.count : 0;
  }

  /** Notes progress; false: it, or later progress, was noted before. */
  isNext(grantId: string, order: NewsOrder): boolean {
    this.begin(grantId);
    return this.order.isNext(grantId, order);
  }

  started(grantId: string, after: number, atMs: number): number {
    this.begin(grantId);
    this.startedAtMs = atMs;
    this.startedSeq = this.next(after);
    return this.startedSeq;
  }

  progressed(grantId: string, after: number): number {
    this.begin(grantId);
    this.count += 1;
    return this.next(after);
  }

  /** What the next entry has to carry; undefined when there was no news. */
  unstored(): { readonly startedAtMs: number | null; readonly startedSeq: number | null; readonly lastSeq: number } | undefined {
    return this.lastSeq === 0 ? undefined : { startedAtMs: this.startedAtMs, startedSeq: this.startedSeq, lastSeq: this.lastSeq };
  }

  /** An entry was stored, and the numbers of the log go up to `eventSeq` now. */
  stored(eventSeq: number): void {
    if (this.lastSeq <= eventSeq) {
      this.lastSeq = 0;
    }
  }

  private begin(grantId: string): void {
    if (this.grantId !== grantId) {
      this.grantId = grantId;
      this.startedAtMs = null;
      this.startedSeq = null;
      this.count = 0;
      this.lastSeq = 0;
    }
  }

  private next(after: number): number {
    this.lastSeq = Math.max(after, this.lastSeq) + 1;
    return this.lastSeq;
  }
}
