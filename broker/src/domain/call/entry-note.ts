/**
 * What a follower of the ledger needs to know of an entry without reading it: the state that the entry leads to and, of an
 * acceptance, the names by which the call is found. It is written by the broker that walked the edge.
 *
 * Invariants: a note is one line; a text that this broker does not understand is no note, and its entry has to be read.
 */
import { CALL_STATES, type CallStateName } from "../call-view.js";
import { NOTE_UNITS_MAX } from "../ports/ledger.js";
import type { Edge } from "./edges.js";
import type { CallEntry } from "./entries.js";

/** What a call is found by, besides its state. */
export interface CallNames {
  readonly application: string;
  readonly tool: string;
  readonly toolset: string;
  readonly binding: string;
  readonly agent: string | null;
  readonly subject: string | null;
  readonly session: string | null;
}

export interface EntryNote {
  /** The call's state after the entry. */
  readonly state: CallStateName;
  /** The entry changes nothing that is listed. */
  readonly stays: boolean;
  /** Of an acceptance. */
  readonly names: CallNames | undefined;
}

/** Before the state that an entry leaves as it is. */
const STAYS = "=";
const MOVED = new Map<string, EntryNote>(
  CALL_STATES.flatMap((state) => [
    [state, { state, stays: false, names: undefined }],
    [STAYS + state, { state, stays: true, names: undefined }],
  ]),
);

/** The note of an entry that takes `edge`; undefined when its names are too long for one. */
export function noteOf(edge: Edge, entry: CallEntry): string | undefined {
  if (entry.kind !== "accepted") {
    return edge.from === edge.to ? STAYS + edge.to : edge.to;
  }
  const { application, tool, toolset, binding, agent, subject, session } = entry.request;
  const note = JSON.stringify([edge.to, application, tool, toolset, binding, agent, subject, session]);
  return note.length <= NOTE_UNITS_MAX ? note : undefined;
}

/** What the call of `request` is found by. */
export function namesOf({ application, tool, toolset, binding, agent, subject, session }: CallNames): CallNames {
  return { application, tool, toolset, binding, agent, subject, session };
}

/** Undefined: there is none, or it is of another form than this broker's, and the entry has to be read. */
export function readNote(text: string | undefined): EntryNote | undefined {
  if (text === undefined) {
    return undefined;
  }
  return MOVED.get(text) ?? (text.startsWith("[") ? readNames(text) : undefined);
}

function readNames(text: string): EntryNote | undefined {
  let parts: unknown;
  try {
    parts = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(parts) || parts.length !== 8) {
    return undefined;
  }
  const [state, application, tool, toolset, binding, agent, subject, session]: readonly unknown[] = parts;
  const known = typeof state === "string" ? MOVED.get(state) : undefined;
  if (known === undefined || known.stays) {
    return undefined;
  }
  if (!isName(application) || !isName(tool) || !isName(toolset) || !isName(binding)) {
    return undefined;
  }
  if (!isNameOrNull(agent) || !isNameOrNull(subject) || !isNameOrNull(session)) {
    return undefined;
  }
  return { state: known.state, stays: false, names: { application, tool, toolset, binding, agent, subject, session } };
}

function isName(value: unknown): value is string {
  return typeof value === "string";
}

function isNameOrNull(value: unknown): value is string | null {
  return value === null || typeof value === "string";
}
