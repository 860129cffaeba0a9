/**
 * What every ledger checks before it touches its store, so that the same mistake gets the same answer everywhere.
 *
 * A call id is also a NATS subject token and part of a blob name: an id with a wildcard, a dot or a slash in it can name no call.
 * Such an id is a programming error in `append` (a `TypeError`), and in `read` it simply has no entries, since it may come from outside.
 */
import { ENTRY_BYTES_MAX, LedgerError, type NewEntry, NOTE_UNITS_MAX, type Version } from "../domain/ports/ledger.js";

const CALL_ID = /^[A-Za-z0-9_-]{1,128}$/;
const ENTRY_ID = /^[A-Za-z0-9_-]{1,64}$/;
/** One line that a header gives back as it is. */
const NOTE = /^\S(?:[^\r\n]*\S)?$/;
/** UTF-16 code units that are certainly within the limit as UTF-8, so that short entries are not measured at all. */
const SURELY_SMALL = Math.floor(ENTRY_BYTES_MAX / 3);

/** Whether `callId` can name a call: 1 to 128 characters of `[A-Za-z0-9_-]`. */
export function isCallId(callId: string): boolean {
  return CALL_ID.test(callId);
}

/** Whether `name` is `callId/entryId` with both parts well formed. */
export function isBlobName(name: string): boolean {
  const slash = name.indexOf("/");
  return slash > 0 && CALL_ID.test(name.slice(0, slash)) && ENTRY_ID.test(name.slice(slash + 1));
}

/**
 * Checks the arguments of an `append`.
 * Throws {@link LedgerError} `entry_too_large`, and `TypeError` for what no caller may pass.
 */
export function checkAppend(callId: string, expected: Version, entry: NewEntry): void {
  if (!CALL_ID.test(callId)) throw new TypeError(`"${callId.slice(0, 200)}" is not a call id: 1 to 128 characters of [A-Za-z0-9_-]`);
  if (!ENTRY_ID.test(entry.entryId)) {
    throw new TypeError(`"${entry.entryId.slice(0, 200)}" is not an entry id: 1 to 64 characters of [A-Za-z0-9_-] (call ${callId})`);
  }
  if (!Number.isSafeInteger(expected) || expected < 0) throw new TypeError(`${expected} is not a version to expect (call ${callId})`);
  const { note } = entry;
  if (note !== undefined && !(note.length <= NOTE_UNITS_MAX && NOTE.test(note))) {
    throw new TypeError(`"${note.slice(0, 200)}" is not a note: a line of 1 to ${NOTE_UNITS_MAX} characters (call ${callId})`);
  }
  if (entry.data.length <= SURELY_SMALL) return;
  const bytes = Buffer.byteLength(entry.data, "utf8");
  if (bytes > ENTRY_BYTES_MAX) {
    throw new LedgerError(
      "entry_too_large",
      `entry ${entry.entryId} of call ${callId} has ${bytes} bytes, the limit is ${ENTRY_BYTES_MAX}: store large values as blobs`,
    );
  }
}

/** Throws `TypeError` when `name` is not `callId/entryId`. */
export function checkBlobName(name: string): void {
  if (!isBlobName(name)) throw new TypeError(`"${name.slice(0, 200)}" is not a blob name: callId/entryId`);
}

/** The error of everything that is asked of a ledger after `close`. */
export function closedError(what: string): LedgerError {
  return new LedgerError("closed", `${what}: the ledger is closed`);
}
