/** The form of a journal's stored records: what is read back is checked before it is believed, whatever stored it. */
import type { JournalEntry, JournalRecord } from "./journal.js";
import type { JournalPicture } from "./journal-picture.js";
import type { Outcome, Receipt } from "./messages.js";

/** A record, or a whole entry as a rewriting leaves it. */
export type StoredRecord = JournalRecord | { readonly kind: "entry"; readonly entry: JournalEntry };

/** Takes a stored record into a picture. */
export function takeStored(picture: JournalPicture, record: StoredRecord): void {
  if (record.kind === "entry") picture.restore(record.entry);
  else picture.apply(record);
}

/** Names the grant that a record is about. */
export function grantOf(record: StoredRecord): string {
  switch (record.kind) {
    case "entry":
      return record.entry.grantId;
    case "finished":
      return record.receipt.grantId;
    default:
      return record.grantId;
  }
}

type Fields = Readonly<Record<string, unknown>>;
const isFields = (value: unknown): value is Fields => typeof value === "object" && value !== null && !Array.isArray(value);

/** The record, when every field of it has its type; null otherwise. */
export function readStoredRecord(stored: unknown): StoredRecord | null {
  if (!isFields(stored)) return null;
  switch (stored["kind"]) {
    case "granted":
      return has(stored, {
        callId: "string",
        grantId: "string",
        fence: "number",
        attempt: "number",
        tool: "string",
        version: "string",
        at: "number",
      });
    case "started":
    case "acknowledged":
      return has(stored, { grantId: "string", at: "number" });
    case "refused":
      return has(stored, { callId: "string", grantId: "string", fence: "number", neverStarted: "boolean", at: "number" });
    case "finished":
      return isReceipt(stored["receipt"]) ? has(stored, { at: "number" }) : null;
    case "entry":
      return isEntry(stored["entry"]) ? (stored as unknown as StoredRecord) : null;
    default:
      return null;
  }
}

/** The record when every field has its type. */
function has(stored: Fields, types: Readonly<Record<string, "string" | "number" | "boolean">>): StoredRecord | null {
  return hasTypes(stored, types) ? (stored as unknown as StoredRecord) : null;
}

function hasTypes(stored: Fields, types: Readonly<Record<string, "string" | "number" | "boolean">>): boolean {
  return Object.entries(types).every(([name, type]) => typeof stored[name] === type);
}

function isReceipt(value: unknown): value is Receipt {
  if (!isFields(value)) return false;
  const numbers = { fence: "number", attempt: "number", startedAtUnixMs: "number", finishedAtUnixMs: "number" } as const;
  return hasTypes(value, { callId: "string", grantId: "string", digest: "string", ...numbers }) && isOutcome(value["outcome"]);
}

function isOutcome(value: unknown): value is Outcome {
  if (!isFields(value)) return false;
  switch (value["kind"]) {
    case "succeeded":
      return hasTypes(value, { resultJson: "string" });
    case "submitted":
      return hasTypes(value, { handleJson: "string" });
    case "cancelled":
      return hasTypes(value, { message: "string" });
    case "failed":
      return (
        hasTypes(value, { code: "string", message: "string", retryable: "boolean", retryAfterMs: "number" }) &&
        Array.isArray(value["details"])
      );
    default:
      return false;
  }
}

function isEntry(value: unknown): value is JournalEntry {
  if (!isFields(value)) return false;
  const texts = { callId: "string", grantId: "string", tool: "string", version: "string", phase: "string" } as const;
  const numbers = { fence: "number", attempt: "number", startedAt: "number", at: "number" } as const;
  if (!hasTypes(value, { ...texts, ...numbers, refused: "boolean", acknowledged: "boolean" })) return false;
  if (!["granted", "started", "finished"].includes(String(value["phase"]))) return false;
  return value["phase"] === "finished" ? isReceipt(value["receipt"]) : value["receipt"] === null;
}
