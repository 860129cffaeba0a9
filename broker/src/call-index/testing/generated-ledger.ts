/** A ledger that is computed, not stored: the same entries in every process, as many as are wanted. */
import type { Edge } from "../../domain/call/edges.js";
import type { CallEntry } from "../../domain/call/entries.js";
import { encodeEntry } from "../../domain/call/entry-codec.js";
import { noteOf } from "../../domain/call/entry-note.js";
import type { Ledger, StoredEntry, TailedEntry, Version } from "../../domain/ports/ledger.js";
import { acceptedEntry, receiptEntry, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../../testing/sample-call.js";

/** Every tenth call goes on running; the others have succeeded. */
export const RUNNING_SHARE = 10;

/** Pick of the ledger's port that the index uses. */
export type FollowedLedger = Pick<Ledger, "tail" | "read" | "latest">;

/**
 * `calls` calls of two entries each, granted at once as on the fast path. A tail ends at the last entry until it is aborted. Its
 * entries have notes; without `notes` they have their data instead.
 */
export function generatedLedger(calls: number, notes = true): FollowedLedger {
  return {
    async *read(callId, from = 0) {
      const call = Number(callId.slice("call_".length));
      for (const version of [2 * call + 1, 2 * call + 2]) {
        if (version >= from && call < calls) {
          yield entryAt(version);
        }
      }
    },
    latest: async () => 2 * calls,
    async *tail(from, signal) {
      for (let version = Math.max(1, from); version <= 2 * calls; version += 1) {
        if (signal.aborted) {
          return;
        }
        yield notes ? notedAt(version) : { ...entryAt(version), note: undefined };
      }
      await new Promise<void>((resolve) => {
        if (signal.aborted) {
          resolve();
        }
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
    },
  };
}

/** The edges of the two entries of a call; `when` is left out, since who asks knows that it holds. */
const ACCEPTED: Edge = { from: "requested", on: "accepted", to: "running" };
const SUCCEEDED: Edge = { from: "running", on: "receipt", to: "succeeded" };
const CANCEL_ASKED: Edge = { from: "running", on: "cancel_requested", to: "running" };

const callOf = (version: Version): number => Math.floor((version - 1) / 2);

function writtenAt(version: Version): { readonly edge: Edge; readonly entry: CallEntry } {
  const call = callOf(version);
  if (version % 2 === 1) {
    const request = sampleRequest({
      callId: `call_${call}`,
      createdAtMs: SAMPLE_START_MS + call,
      tool: `tool_${call % 20}`,
      subject: `user_${call % 1_000}`,
      session: `chat_${call % 5_000}`,
    });
    return { edge: ACCEPTED, entry: acceptedEntry(request, { grant: { attempt: 1, holder: sampleHolder() } }) };
  }
  return call % RUNNING_SHARE === 0
    ? { edge: CANCEL_ASKED, entry: { kind: "cancel_requested", at: SAMPLE_START_MS, reason: "" } }
    : { edge: SUCCEEDED, entry: receiptEntry(receiptFacts(`entry_${version - 1}`)) };
}

function placeOf(version: Version) {
  return { callId: `call_${callOf(version)}`, version, previous: version % 2 === 1 ? 0 : version - 1, entryId: `entry_${version}` };
}

function entryAt(version: Version): StoredEntry {
  return { ...placeOf(version), data: encodeEntry(writtenAt(version).entry) };
}

function notedAt(version: Version): TailedEntry {
  const { edge, entry } = writtenAt(version);
  return { ...placeOf(version), note: noteOf(edge, entry), data: undefined };
}
