/** From the log of a call to its state: what a broker does that reads a call it does not know. */
import type { CallState } from "./call-state.js";
import type { PlacedEntry } from "./entries.js";
import { type CallEvent, transition } from "./transition.js";

/** Replays a call's log. Entries that the machine rejects are given to `onRejected` and skipped. */
export function replay(
  entries: Iterable<PlacedEntry>,
  onRejected: (entry: PlacedEntry, reason: string) => void,
): { readonly state: CallState; readonly events: readonly CallEvent[] } {
  let state: CallState = { kind: "requested" };
  const events: CallEvent[] = [];
  for (const entry of entries) {
    const outcome = transition(state, entry);
    if (outcome.kind === "rejected") {
      onRejected(entry, outcome.reason);
      continue;
    }
    state = outcome.state;
    events.push(...outcome.events);
  }
  return { state, events };
}
