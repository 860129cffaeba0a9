/**
 * Tells news of a grant that comes next from what comes late, or twice. A driver asks it before it tells progress, and each
 * stream of events before it shows some: a driver that took the call over does not know what its predecessor told, and a
 * message that was on its way meanwhile is new to it (X6).
 */
import type { NewsOrder } from "./commands.js";

export class NewsFilter {
  private grantId: string | undefined;
  private newest: NewsOrder | undefined;

  /** Notes news of `grantId`; false: it, or later news of the same grant, was noted before. News of another grant begins anew. */
  isNext(grantId: string, order: NewsOrder): boolean {
    const { newest } = this;
    const isLate =
      this.grantId === grantId &&
      newest !== undefined &&
      (order.sessionEpoch < newest.sessionEpoch || (order.sessionEpoch === newest.sessionEpoch && order.number <= newest.number));
    if (!isLate) {
      this.grantId = grantId;
      this.newest = order;
    }
    return !isLate;
  }
}
