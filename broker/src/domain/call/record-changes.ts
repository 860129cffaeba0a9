/** What the record of a call begins with, and what single entries add to it. */
import type { CallRecord } from "./call-state.js";
import type { CallEntry } from "./entries.js";

/** What the record of a call that was just accepted does not have yet. */
export const NOTHING_YET = {
  newestGrant: null,
  grantIds: [],
  startedAtMs: null,
  consumedReceipt: null,
  evidence: [],
  updates: [],
} as const;

/** The record with one more update, told under the number `seq`. */
export function withUpdate(record: CallRecord, entry: Extract<CallEntry, { kind: "updated" }>, seq: number): CallRecord {
  return { ...record, updates: [...record.updates, { id: entry.updateId, digest: entry.digest, seq }] };
}
