/** X10, B4, seen from the ledger and from agents: calls with one ordering key are granted one at a time, in the order of their acknowledgements. */
import { isSettledState } from "../../domain/call/call-state.js";
import { decodeEntry } from "../../domain/call/entry-codec.js";
import { replay } from "../../domain/call/replay.js";
import type { SimAgents } from "./sim-agents.test.kit.js";
import type { SimSite } from "./sim-site.test.kit.js";

interface InLane {
  readonly callId: string;
  readonly key: string;
  /** Version of the first grant; undefined: it was never granted. */
  readonly grantedAt: number | undefined;
  /** Version of the entry that settled it. */
  readonly settledAt: number;
}

/** Fails the site where a call was granted before an earlier one of its lane was settled. */
export function checkLanes(site: SimSite, agents: SimAgents): void {
  const calls = [...site.store.entriesOfCall.keys()].flatMap((callId) => inLane(site, callId));
  for (const b of calls) {
    for (const a of calls) {
      if (a === b || a.key !== b.key || b.grantedAt === undefined) {
        continue;
      }
      if (a.grantedAt !== undefined && a.grantedAt < b.grantedAt && a.settledAt > b.grantedAt) {
        site.failed(`X10: ${b.callId} was granted at ${b.grantedAt}, while ${a.callId} of the same lane ran until ${a.settledAt}`);
      }
      const [first, second] = [agents.orders.get(a.callId), agents.orders.get(b.callId)];
      const isEarlier = first !== undefined && second !== undefined && first.acknowledgedAt < second.sentAt;
      if (isEarlier && a.settledAt > b.grantedAt) {
        site.failed(
          `X10: ${b.callId} was sent at ${second.sentAt} and granted at ${b.grantedAt}, before ${a.callId}, acknowledged at ${first.acknowledgedAt}, was settled`,
        );
      }
    }
  }
}

function inLane(site: SimSite, callId: string): InLane[] {
  const entries = (site.store.entriesOfCall.get(callId) ?? []).map(decodeEntry);
  const { state } = replay(entries, () => undefined);
  const key = state.kind === "requested" ? undefined : state.record.request.orderingKey;
  if (key === undefined) {
    return [];
  }
  const grantedAt = entries.find((entry) => "grant" in entry && entry.grant !== null)?.version;
  const settling = entries.findIndex((_, index) => isSettledState(replay(entries.slice(0, index + 1), () => undefined).state));
  return [{ callId, key, grantedAt, settledAt: entries[settling]?.version ?? Number.POSITIVE_INFINITY }];
}
