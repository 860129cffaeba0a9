/** What the parts that work on grants may do with the session that is up. */
import type { Instant } from "./clock.js";
import type { SessionLimits } from "./messages.js";
import type { OutboundFrame } from "./wire.js";

export interface SessionLink {
  readonly epoch: number;
  readonly limits: SessionLimits;
  readonly leaseMs: number;
  /** False from when the channel closed. */
  readonly open: boolean;
  /** False: the broker knows no updates of submitted calls. */
  readonly takesCallUpdates: boolean;
  /** So much waits to be sent that what may be dropped should be. */
  readonly congested: boolean;
  /** Resolves when there is room to send again, or the session is over. */
  drained(): Promise<void>;
  /** Sends in order. "closed": dropped, the session is over. "too_large": nothing was sent, the frame cannot be. */
  send(frame: OutboundFrame): "sent" | "closed" | "too_large";
  /** When the answer of this number was sent; null when it was not. */
  answerSentAt(number: number): Instant | null;
}
