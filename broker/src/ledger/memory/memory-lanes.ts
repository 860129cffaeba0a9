/** Lanes in memory. What is stored belongs to the ledger's store, so that two ledgers on one store share it. */
import type { LanePlace, LaneStore } from "../../domain/ports/lanes.js";
import { checkLaneNames } from "../lane-rules.js";

/** Members of each lane by call id, in their order, and the last place that was given. */
export interface MemoryLanes {
  readonly members: Map<string, Map<string, LanePlace>>;
  lastPlace: LanePlace;
}

/** No lanes yet. */
export function createMemoryLanes(): MemoryLanes {
  return { members: new Map(), lastPlace: 0 };
}

/** `turn` is waited for before an operation takes effect, and again before it is answered. It rejects when the ledger is closed. */
export function memoryLaneStore(lanes: MemoryLanes, turn: (what: string) => Promise<void>): LaneStore {
  return {
    async join(lane, callId) {
      checkLaneNames(lane, callId);
      await turn("lanes.join");
      const members = lanes.members.get(lane) ?? new Map<string, LanePlace>();
      lanes.members.set(lane, members);
      let place = members.get(callId);
      if (place === undefined) {
        lanes.lastPlace += 1;
        place = lanes.lastPlace;
        members.set(callId, place);
      }
      await turn("lanes.join");
      return place;
    },
    async first(lane) {
      checkLaneNames(lane);
      await turn("lanes.first");
      const head = lanes.members.get(lane)?.entries().next().value;
      await turn("lanes.first");
      return head === undefined ? undefined : { callId: head[0], place: head[1] };
    },
    async leave(lane, { callId, place }) {
      checkLaneNames(lane, callId);
      await turn("lanes.leave");
      const members = lanes.members.get(lane);
      if (members?.get(callId) === place) {
        members.delete(callId);
        if (members.size === 0) lanes.members.delete(lane);
      }
      await turn("lanes.leave");
    },
  };
}
