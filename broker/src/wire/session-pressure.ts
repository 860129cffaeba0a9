/**
 * Holds back from a runner that reads slowly, so that what waits for it stays small.
 *
 * Invariants: over {@link CONGESTED_BYTES} unread bytes a session is granted nothing new, and its frames are not read, so that it
 * causes no more answers; both go on when it has read; what was on its way to it by then is not sent over {@link FULL_BYTES} and
 * given back; acknowledgements and revokes are always sent. So a session never holds more than these, one frame and those.
 */
import type { Session } from "./session.js";

/** Unread bytes over which a runner is slow. */
export const CONGESTED_BYTES = 1_048_576;
/** Unread bytes over which a grant that was made for it is given back unsent. */
export const FULL_BYTES = 4 * CONGESTED_BYTES;

/** Whether a grant must not be sent to the session any more. */
export function isFull(session: Session): boolean {
  return session.channel.bufferedBytes > FULL_BYTES;
}

/** Whether the session's frames have to wait. */
export function isCongested(session: Session): boolean {
  return session.channel.bufferedBytes > CONGESTED_BYTES;
}

/** Something was sent: from now on nothing is granted to a session that is congested by it, until `relieved` is called. */
export function noteSent(session: Session, relieved: (session: Session) => void): void {
  if (session.congested || !isCongested(session)) {
    return;
  }
  session.congested = true;
  void session.channel.drained().then(() => {
    session.congested = false;
    if (!session.closed) {
      relieved(session);
    }
  });
}
