/**
 * From ledger entries to changes of the index: by the notes that their writers left, and by the call machine itself where an entry
 * has none. The index has no rules of its own about states.
 *
 * Invariants:
 * - An entry counts only on top of the entry that its writer expected; others are forks and change nothing.
 * - An entry that cannot be read changes nothing and stops nothing.
 * - Memory is bounded: of what was forgotten, open calls are found in the index again, and entries without a note are walked anew
 *   from the ledger. Only a second acceptance of a settled and forgotten call is not told from the first one of another call.
 */
import { type CallState, isSettledState } from "../domain/call/call-state.js";
import { decodeEntry } from "../domain/call/entry-codec.js";
import { type CallNames, type EntryNote, namesOf, readNote } from "../domain/call/entry-note.js";
import { transition } from "../domain/call/transition.js";
import { type CallStateName, SETTLED_STATES } from "../domain/call-view.js";
import type { Ledger, StoredEntry, TailedEntry, Version } from "../domain/ports/ledger.js";
import type { OpenRow, RowChange } from "./call-rows.js";

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
  | { readonly kind: "change"; readonly change: RowChange }
  /** The entry changes nothing that is kept. */
  | { readonly kind: "same" }
  | {
      readonly kind: "skipped";
      readonly reason: SkipReason;
      readonly message: string;
      /** The entry says nothing, and yet the next one follows it. */
      readonly change?: RowChange | undefined;
    };

const SAME: Tracked = { kind: "same" };
const SETTLED: ReadonlySet<CallStateName> = new Set(SETTLED_STATES);

interface FollowedCall {
  /** Undefined: the acceptance is not known. */
  state: CallStateName | undefined;
  /** Version of the call's last entry, readable or not. */
  version: Version;
  /** Version of its acceptance. */
  opened: Version;
  application: string;
  /** As the machine has it, where its last entry was walked and may be followed by another one without a note. */
  walked: CallState | undefined;
}

export interface CallTrackerOptions {
  readonly ledger: Pick<Ledger, "read">;
  /** An open call's row in the index as it is written, undefined when there is none. */
  readonly openRow: (callId: string) => OpenRow | undefined;
  /** Calls that are kept in memory. */
  readonly callsMax: number;
}

export class CallTracker {
  readonly #options: CallTrackerOptions;
  /** In the order in which they last moved. */
  readonly #calls = new Map<string, FollowedCall>();

  constructor(options: CallTrackerOptions) {
    this.#options = options;
  }

  /** What `stored` does to the index; a promise only when the ledger has to be read, which may fail. Entries come in ledger order. */
  take(stored: TailedEntry): Tracked | Promise<Tracked> {
    const note = readNote(stored.note);
    const known = this.#calls.get(stored.callId);
    if (known !== undefined && stored.previous === 0 && hasSettled(known)) {
      return this.#beginsAnew(stored).then((isNew) => {
        if (isNew) {
          this.#calls.delete(stored.callId);
        }
        return this.#step(stored, note);
      });
    }
    return this.#step(stored, note);
  }

  #step(stored: TailedEntry, note: EntryNote | undefined): Tracked | Promise<Tracked> {
    return note === undefined ? this.#walk(stored) : this.#follow(stored, note);
  }

  /** An entry on top of nothing, under the id of a call that had settled: a new call, after retention removed that one? Else it is a fork. */
  async #beginsAnew({ callId, version }: TailedEntry): Promise<boolean> {
    for await (const first of this.#options.ledger.read(callId)) {
      return first.version === version;
    }
    return true;
  }

  /** What was taken is written: the longest unmoved calls over the limit are forgotten. */
  written(): void {
    for (const callId of this.#calls.keys()) {
      if (this.#calls.size <= this.#options.callsMax) {
        break;
      }
      this.#calls.delete(callId);
    }
  }

  /** Retention removed these calls. */
  forget(calls: readonly { readonly callId: string; readonly opened: Version }[]): void {
    for (const { callId, opened } of calls) {
      if (this.#calls.get(callId)?.opened === opened) {
        this.#calls.delete(callId);
      }
    }
  }

  /** Forgets all calls: the index goes on from what is written. */
  reset(): void {
    this.#calls.clear();
  }

  #follow(stored: TailedEntry, note: EntryNote): Tracked {
    const { callId, version, previous } = stored;
    let call = this.#calls.get(callId);
    if (note.names !== undefined && call === undefined) {
      const open = this.#options.openRow(callId);
      if (open !== undefined) {
        return fork(stored, open.last);
      }
      call = { state: note.state, version, opened: version, application: note.names.application, walked: undefined };
      this.#calls.set(callId, call);
      return changeOf(callId, call, note.names);
    }
    if (call === undefined) {
      const open = this.#options.openRow(callId);
      if (open === undefined) {
        // Evidence comes to settled calls, which are not looked for.
        return note.stays && SETTLED.has(note.state) ? SAME : acceptanceUnknown(callId);
      }
      call = { ...open, version: open.last, walked: undefined };
    }
    if (previous !== call.version) {
      return fork(stored, call.version);
    }
    call.version = version;
    call.walked = undefined;
    this.#remember(callId, call);
    if (call.state === undefined || note.names !== undefined) {
      return acceptanceUnknown(callId);
    }
    if (SETTLED.has(call.state)) {
      return SAME;
    }
    call.state = note.state;
    return changeOf(callId, call, undefined);
  }

  async #walk(stored: TailedEntry): Promise<Tracked> {
    const { callId } = stored;
    let call = this.#calls.get(callId);
    if (call === undefined || (call.walked === undefined && call.version === stored.previous)) {
      call = await this.#recall(stored, call);
    }
    const entry = stored.data === undefined ? await this.#read(stored) : { ...stored, data: stored.data };
    const tracked = step(call, stored, entry);
    if (call.state === undefined) {
      return tracked.kind === "skipped" && tracked.reason !== "rejected" ? tracked : acceptanceUnknown(callId);
    }
    const isOpen = !SETTLED.has(call.state);
    if (!isOpen) {
      call.walked = undefined;
    }
    this.#remember(callId, call);
    return tracked.kind === "skipped" && tracked.reason !== "fork" && isOpen
      ? { ...tracked, change: changeOf(callId, call, undefined).change }
      : tracked;
  }

  #remember(callId: string, call: FollowedCall): void {
    this.#calls.delete(callId);
    this.#calls.set(callId, call);
  }

  /** The call as it was before `stored`, with the machine's state. */
  async #recall(stored: TailedEntry, known: FollowedCall | undefined): Promise<FollowedCall> {
    const call: FollowedCall = { state: undefined, version: 0, opened: 0, application: "", walked: { kind: "requested" } };
    if (stored.previous === 0 && known === undefined && this.#options.openRow(stored.callId) === undefined) {
      return call;
    }
    for await (const earlier of this.#options.ledger.read(stored.callId)) {
      if (earlier.version >= stored.version) {
        break;
      }
      step(call, earlier, earlier);
    }
    if (call.version === 0) {
      // Retention took what was before: nothing is known but the place.
      call.version = stored.previous;
    }
    return call;
  }

  async #read({ callId, version }: TailedEntry): Promise<StoredEntry | undefined> {
    for await (const stored of this.#options.ledger.read(callId, version)) {
      return stored.version === version ? stored : undefined;
    }
    return undefined;
  }
}

function hasSettled({ state }: FollowedCall): boolean {
  return state !== undefined && SETTLED.has(state);
}

function changeOf(callId: string, call: FollowedCall, names: CallNames | undefined): Extract<Tracked, { readonly kind: "change" }> {
  const { opened, application, version, state } = call;
  if (state === undefined) {
    throw new Error(`call ${callId} has no state yet`);
  }
  return { kind: "change", change: { callId, opened, application, last: version, state, names } };
}

function acceptanceUnknown(callId: string): Tracked {
  return { kind: "skipped", reason: "acceptance_unknown", message: `the acceptance of call ${callId} is gone or unreadable` };
}

function fork({ entryId, previous }: Pick<TailedEntry, "entryId" | "previous">, version: Version): Tracked {
  return { kind: "skipped", reason: "fork", message: `entry ${entryId} expected version ${previous}, the call is at ${version}` };
}

/** One step of the machine from `call` as it was walked. `stored` is what lies at `place`, undefined when it is gone. */
function step(call: FollowedCall, place: Omit<TailedEntry, "note" | "data">, stored: StoredEntry | undefined): Tracked {
  if (place.previous !== call.version) {
    return fork(place, call.version);
  }
  call.version = place.version;
  const before = call.walked;
  if (stored === undefined || before === undefined) {
    return { kind: "skipped", reason: "unreadable", message: `entry ${place.entryId} of call ${place.callId} is gone` };
  }
  let outcome: ReturnType<typeof transition>;
  try {
    outcome = transition(before, decodeEntry(stored));
  } catch (error) {
    return { kind: "skipped", reason: "unreadable", message: error instanceof Error ? error.message : String(error) };
  }
  if (outcome.kind === "rejected") {
    return { kind: "skipped", reason: "rejected", message: outcome.reason };
  }
  call.walked = light(outcome.state);
  call.state = outcome.state.kind;
  if (before.kind !== "requested") {
    return isSettledState(before) ? SAME : changeOf(place.callId, call, undefined);
  }
  const names = namesOf(outcome.state.record.request);
  call.opened = place.version;
  call.application = names.application;
  return changeOf(place.callId, call, names);
}

type KnownState = Exclude<CallState, { readonly kind: "requested" }>;

/** The state without what only its payloads make heavy; the machine never looks at them. */
function light(state: KnownState): KnownState {
  const record = state.record.argumentsJson === "" ? state.record : { ...state.record, argumentsJson: "" };
  return state.kind === "submitted" ? { ...state, record, handle: { kind: "inline", json: "null", bytes: 4 } } : { ...state, record };
}
