/**
 * The lanes port: calls with the same ordering key stand in one line, in the order in which they joined it (X10, B4).
 *
 * A lane holds only calls that are open, or were a moment ago: who settles a call takes it out, so a lane does not grow with its
 * history. `describeLanes` in `ledger/testing` is the suite that each implementation passes unchanged.
 */

/** Rises with every joining, over all lanes, and is never used again. */
export type LanePlace = number;

export interface LaneMember {
  readonly callId: string;
  readonly place: LanePlace;
}

export interface LaneStore {
  /**
   * Puts the call at the end of the lane; a call that stands in it keeps its place. Durable when it resolves. Who joins after that
   * stands behind it. Stays pending while the store is away. Lane and call id: 1 to 128 characters of `[A-Za-z0-9_-]`, else `TypeError`.
   */
  join(lane: string, callId: string): Promise<LanePlace>;
  /**
   * The call at the head of the lane; undefined: the lane is empty. What a store that lags behind answers is an earlier truth: once
   * a call that joined is at the head it stays there until it leaves, so an answer that names a call is true of it until then.
   */
  first(lane: string): Promise<LaneMember | undefined>;
  /** Takes this very member out; nothing when it is gone, or joined again at another place. */
  leave(lane: string, member: LaneMember): Promise<void>;
}
