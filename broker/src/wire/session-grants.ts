/** The grants that a session was sent or that its runner reported. Owns the count of those that take up a slot. */

/** Grants of one session that are known at once at most: far more than a runner can run, so that no report fills the memory. */
export const SESSION_GRANTS_MAX = 8_192;

/** A grant that was sent on a session or that its runner reported. */
export interface SessionGrant {
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
  /** Where the driver was last reached; undefined: find it by the ledger. */
  driver: string | undefined;
  /** The first ping whose answer must list the grant: it was sent after the grant, or after the runner's own first report of it. */
  readonly listedFromPing: number;
  /** The handler ended: the receipt came, its disposition did not yet. */
  readonly finished: boolean;
}

export class SessionGrants {
  private readonly byId = new Map<string, SessionGrant & { finished: boolean }>();
  private running = 0;

  /** `forgotten` is told of each grant that is known no more: it may have reached the runner all the same. */
  constructor(private readonly forgotten: (grantId: string) => void) {}

  get size(): number {
    return this.byId.size;
  }

  /** Those whose handler may still take up a slot. */
  get unfinished(): number {
    return this.running;
  }

  get full(): boolean {
    return this.byId.size >= SESSION_GRANTS_MAX;
  }

  get(grantId: string): SessionGrant | undefined {
    return this.byId.get(grantId);
  }

  /** Adds a grant whose handler may run, or may come to run. */
  add(grant: Omit<SessionGrant, "finished">): SessionGrant {
    this.finish(grant.grantId);
    const added = { ...grant, finished: false };
    this.byId.set(grant.grantId, added);
    this.running += 1;
    return added;
  }

  /** Its handler takes up no slot any more. */
  finish(grantId: string): void {
    const grant = this.byId.get(grantId);
    if (grant !== undefined && !grant.finished) {
      grant.finished = true;
      this.running -= 1;
    }
  }

  /** False: it was not there. */
  delete(grantId: string): boolean {
    this.finish(grantId);
    this.forgotten(grantId);
    return this.byId.delete(grantId);
  }

  /** Its receipt is stored: the log says what became of it, and it is never asked for again. */
  settle(grantId: string): void {
    this.finish(grantId);
    this.byId.delete(grantId);
  }

  ids(): IterableIterator<string> {
    return this.byId.keys();
  }

  [Symbol.iterator](): IterableIterator<SessionGrant> {
    return this.byId.values();
  }
}
