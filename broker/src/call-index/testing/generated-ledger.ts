/** A ledger that is computed, not stored: the same entries in every process, as many as are wanted. */
import { encodeEntry } from "../../domain/call/entry-codec.js";
import type { Ledger, StoredEntry, Version } from "../../domain/ports/ledger.js";
import { acceptedEntry, receiptEntry, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../../testing/sample-call.js";

/** Every tenth call goes on running; the others have succeeded. */
export const RUNNING_SHARE = 10;

/** `calls` calls of two entries each, granted at once as on the fast path. A tail ends at the last entry until it is aborted. */
export function generatedLedger(calls: number): Pick<Ledger, "tail" | "read"> {
  return {
    async *read(callId, from = 0) {
      const call = Number(callId.slice("call_".length));
      for (const version of [2 * call + 1, 2 * call + 2]) {
        if (version >= from && call < calls) {
          yield entryAt(version);
        }
      }
    },
    async *tail(from, signal) {
      for (let version = Math.max(1, from); version <= 2 * calls; version += 1) {
        if (signal.aborted) {
          return;
        }
        yield entryAt(version);
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

function entryAt(version: Version): StoredEntry {
  const call = Math.floor((version - 1) / 2);
  const callId = `call_${call}`;
  const place = { callId, version, entryId: `entry_${version}` };
  if (version % 2 === 1) {
    const request = sampleRequest({
      callId,
      createdAtMs: SAMPLE_START_MS + call,
      tool: `tool_${call % 20}`,
      subject: `user_${call % 1_000}`,
      session: `chat_${call % 5_000}`,
    });
    return { ...place, previous: 0, data: encodeEntry(acceptedEntry(request, { grant: { attempt: 1, holder: sampleHolder() } })) };
  }
  const entry =
    call % RUNNING_SHARE === 0
      ? ({ kind: "cancel_requested", at: SAMPLE_START_MS, reason: "" } as const)
      : receiptEntry(receiptFacts(`entry_${version - 1}`));
  return { ...place, previous: version - 1, data: encodeEntry(entry) };
}
