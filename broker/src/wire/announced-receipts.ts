/**
 * Lets a runner that comes back bring what it finished before it is given anything new.
 *
 * A call whose lease ran out waits for its next attempt, and its result may come with the runner's next session. Granted at the hello,
 * it would run again, and the result would be a late one that settles nothing (I5). Invariants: a session whose hello announced
 * finished grants is granted nothing until their receipts are answered, or {@link ANNOUNCED_MS} have passed; one that announced
 * none waits for nothing.
 */
import { GrantPhase, type HeldGrant } from "@toolrunner/proto";
import type { Session } from "./session.js";

/** So long a runner may take to send the receipts that it announced, before it gets calls all the same. */
const ANNOUNCED_MS = 2_000;

export class AnnouncedReceipts {
  private readonly awaited = new WeakMap<Session, Set<string>>();

  /** `brought`: the session may be granted calls. */
  constructor(private readonly brought: (session: Session) => void) {}

  hello(session: Session, held: readonly HeldGrant[]): void {
    const finished = held.filter(({ phase }) => phase === GrantPhase.FINISHED);
    if (finished.length === 0) {
      return;
    }
    this.awaited.set(session, new Set(finished.map(({ grantId }) => grantId)));
    session.bringing = true;
    void session.work.pause(ANNOUNCED_MS).then(() => this.over(session));
  }

  /** The receipt of this grant was answered, or will not be. */
  answered(session: Session, grantId: string): void {
    if (!session.bringing) {
      return;
    }
    const awaited = this.awaited.get(session);
    awaited?.delete(grantId);
    if (awaited === undefined || awaited.size === 0) {
      this.over(session);
    }
  }

  private over(session: Session): void {
    this.awaited.delete(session);
    if (session.bringing) {
      session.bringing = false;
      if (!session.closed) {
        this.brought(session);
      }
    }
  }
}
