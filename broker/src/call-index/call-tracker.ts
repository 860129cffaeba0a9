/**
 * From ledger entries to the rows of the index, by the call machine itself: the index has no rules of its own about states.
 *
 * Invariants:
 * - An entry is walked only on top of the entry that its writer expected; others are forks and change nothing.
 * - An entry that cannot be read changes nothing and stops nothing.
 * - Memory is bounded: open calls that were forgotten are replayed from the ledger when they move again.
 */
import { type CallState, isSettledState } from "../domain/call/call-state.js";
import { decodeEntry } from "../domain/call/entry-codec.js";
import { transition } from "../domain/call/transition.js";
import { SETTLED_STATES } from "../domain/call-view.js";
import type { Ledger, StoredEntry, Version } from "../domain/ports/ledger.js";
import type { CallRow } from "./call-rows.js";

export type SkipReason =
  /** The entry's form is not known to this broker, or it is damaged. */
  | "unreadable"
  /** The machine has no edge for it. */
  | "rejected"
  /** Another entry holds its place. */
  | "fork"
  /** The call's acceptance is gone or unreadable. */
  | "acceptance_unknown";

export type Tracked =
  | { readonly kind: "row"; readonly row: CallRow }
  /** The entry changes nothing that is listed. */
  | { readonly kind: "same" }
  | { readonly kind: "skipped"; readonly reason: SkipReason; readonly message: string };

interface FollowedCall {
  state: CallState;
  /** Version of the call's last entry, readable or not. */
  version: Version;
  /** Version of its acceptance. */
  opened: Version;
}

export interface CallTrackerOptions {
  readonly ledger: Pick<Ledger, "read">;
  /** State of the call's row in the index, undefined when it has none. */
  readonly stateOf: (callId: string) => string | undefined;
  /** Open calls that are kept in memory. */
  readonly callsMax: number;
}

export class CallTracker {
  readonly #options: CallTrackerOptions;
  /** In the order in which they last moved. */
  readonly #calls = new Map<string, FollowedCall>();

  constructor(options: CallTrackerOptions) {
    this.#options = options;
  }

  /** What `stored` does to the index. Entries come in ledger order. Rejects only when the ledger cannot be read. */
  async take(stored: StoredEntry): Promise<Tracked> {
    const { callId } = stored;
    let call = this.#calls.get(callId);
    if (call === undefined) {
      const state = this.#options.stateOf(callId);
      if (state !== undefined && (SETTLED_STATES as readonly string[]).includes(state)) {
        return { kind: "same" };
      }
      call = await this.#recall(stored, state !== undefined);
    }
    const tracked = step(call, stored);
    if (call.state.kind === "requested") {
      return tracked.kind === "skipped" && tracked.reason !== "rejected" ? tracked : acceptanceUnknown(callId);
    }
    this.#calls.delete(callId);
    this.#calls.set(callId, call);
    return tracked;
  }

  /** What was taken is written: settled calls, and the longest unmoved ones over the limit, are forgotten. */
  written(callIds: Iterable<string>): void {
    for (const callId of callIds) {
      const call = this.#calls.get(callId);
      if (call !== undefined && isSettledState(call.state)) {
        this.#calls.delete(callId);
      }
    }
    for (const callId of this.#calls.keys()) {
      if (this.#calls.size <= this.#options.callsMax) {
        break;
      }
      this.#calls.delete(callId);
    }
  }

  /** Forgets all calls: the index goes on from what is written. */
  reset(): void {
    this.#calls.clear();
  }

  /** The call as it was before `stored`. */
  async #recall(stored: StoredEntry, indexed: boolean): Promise<FollowedCall> {
    const call: FollowedCall = { state: { kind: "requested" }, version: 0, opened: 0 };
    if (stored.previous === 0 && !indexed) {
      return call;
    }
    for await (const earlier of this.#options.ledger.read(stored.callId)) {
      if (earlier.version >= stored.version) {
        break;
      }
      step(call, earlier);
    }
    if (call.version === 0) {
      // Retention took what was before: nothing is known but the place.
      call.version = stored.previous;
    }
    return call;
  }
}

function acceptanceUnknown(callId: string): Tracked {
  return { kind: "skipped", reason: "acceptance_unknown", message: `the acceptance of call ${callId} is gone or unreadable` };
}

function step(call: FollowedCall, stored: StoredEntry): Tracked {
  if (stored.previous !== call.version) {
    return {
      kind: "skipped",
      reason: "fork",
      message: `entry ${stored.entryId} expected version ${stored.previous}, the call is at ${call.version}`,
    };
  }
  call.version = stored.version;
  let outcome: ReturnType<typeof transition>;
  try {
    outcome = transition(call.state, decodeEntry(stored));
  } catch (error) {
    return { kind: "skipped", reason: "unreadable", message: error instanceof Error ? error.message : String(error) };
  }
  if (outcome.kind === "rejected") {
    return { kind: "skipped", reason: "rejected", message: outcome.reason };
  }
  const before = call.state.kind;
  if (before === "requested") {
    call.opened = stored.version;
  }
  call.state = light(outcome.state);
  return before === outcome.state.kind ? { kind: "same" } : { kind: "row", row: rowOf(outcome.state, call.opened) };
}

type KnownState = Exclude<CallState, { readonly kind: "requested" }>;

/** The state without what only its payloads make heavy; the machine never looks at them. */
function light(state: KnownState): KnownState {
  const record = state.record.argumentsJson === "" ? state.record : { ...state.record, argumentsJson: "" };
  return state.kind === "submitted" ? { ...state, record, handle: { kind: "inline", json: "null", bytes: 4 } } : { ...state, record };
}

function rowOf(state: KnownState, opened: Version): CallRow {
  const { callId, application, tool, toolset, binding, agent, subject, session } = state.record.request;
  return { opened, callId, application, state: state.kind, tool, toolset, binding, agent, subject, session };
}
