/**
 * Which calls retention takes, and what goes with them (X12, L6). Pure.
 *
 * Invariants:
 * - What is not known to be settled, and for long enough, stays: an open call, however old, and one that this broker cannot read.
 * - A call whose first entry is not its acceptance is one whose removal began. It is expired: it shows no state, nobody drives it, and what
 *   is left of it goes.
 * - Entries go in the order in which they were stored, so that what is left is never an accepted call without its end.
 */
import type { StoredEntry, Version } from "../ports/ledger.js";
import { isSettledState } from "./call-state.js";
import type { PlacedEntry } from "./entries.js";
import { blobNameIn, decodeEntry, EntryFormatError } from "./entry-codec.js";
import { replay } from "./replay.js";

/** What has to go of a call: its values first, then its entries in this order. */
export interface Leaving {
  readonly blobs: readonly string[];
  readonly versions: readonly Version[];
}

export type Keeping =
  | ({ readonly kind: "leaves"; readonly settledAtMs: number | null } & Leaving)
  /** The call is open, or was settled too short a time ago. */
  | { readonly kind: "stays"; readonly acceptedAtMs: number }
  /** An entry is of a newer broker, or damaged. */
  | { readonly kind: "unreadable" }
  /** Nothing is stored of it. */
  | { readonly kind: "absent" };

/** What to do with the call of these entries, all that are stored of it. `settledBeforeMs`: when calls were settled that have to go, in the ledger's time. */
export function judgeCall(stored: readonly StoredEntry[], settledBeforeMs: number): Keeping {
  const [first] = stored;
  if (first === undefined) {
    return { kind: "absent" };
  }
  if (isExpired(stored)) {
    return { kind: "leaves", settledAtMs: null, ...leaving(stored) };
  }
  let entries: PlacedEntry[];
  try {
    entries = stored.map(decodeEntry);
  } catch (error) {
    if (error instanceof EntryFormatError) {
      return { kind: "unreadable" };
    }
    throw error;
  }
  const { state } = replay(entries, () => undefined);
  if (isSettledState(state) && state.settlement.atMs < settledBeforeMs) {
    return { kind: "leaves", settledAtMs: state.settlement.atMs, ...leaving(stored) };
  }
  return { kind: "stays", acceptedAtMs: entries[0]?.at ?? 0 };
}

/** Has the removal of the call begun? Of a call without entries: no. */
export function isExpired(stored: readonly Pick<StoredEntry, "previous">[]): boolean {
  return (stored[0]?.previous ?? 0) > 0;
}

/** The application of an expired call, where what is left of it says so. */
export function ownerOf(stored: readonly StoredEntry[]): string | undefined {
  for (const each of stored) {
    try {
      const { application } = decodeEntry(each);
      if (application !== undefined) {
        return application;
      }
    } catch (error) {
      if (!(error instanceof EntryFormatError)) {
        throw error;
      }
    }
  }
  return undefined;
}

/** Does an entry of the call name this value? One that cannot be read may. */
export function namesBlob(stored: readonly StoredEntry[], name: string): boolean {
  return stored.some((each) => {
    const named = readBlobName(each);
    return named === name || named === UNREADABLE;
  });
}

const UNREADABLE = Symbol("unreadable");

function readBlobName(stored: StoredEntry): string | undefined | typeof UNREADABLE {
  try {
    return blobNameIn(stored);
  } catch (error) {
    if (error instanceof EntryFormatError) {
      return UNREADABLE;
    }
    throw error;
  }
}

function leaving(stored: readonly StoredEntry[]): Leaving {
  const named = stored.map(readBlobName).filter((name) => typeof name === "string");
  return { blobs: [...new Set(named)], versions: stored.map(({ version }) => version) };
}
