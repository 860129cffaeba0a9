/**
 * The stored form of entries: JSON with a version of its own, never a wire message.
 * Texts that are JSON already (arguments, results) are put in as they are, at the end, with their length before them:
 * nothing is encoded twice, and `decodeEntry` gives them back to the letter, whatever their numbers, keys or depth.
 */

import type { StoredEntry } from "../ports/ledger.js";
import type { StoredText } from "./call-state.js";
import type { CallEntry, PlacedEntry } from "./entries.js";

const FORMAT = 1;
/** Of calls that stand in a lane: a broker that knows of none would grant them out of order, and so must not read them. */
const FORMAT_IN_LANE = 2;

/** The entry cannot be read: it is damaged, or of a newer broker. The message says which entry and what to do. */
export class EntryFormatError extends Error {
  override readonly name = "EntryFormatError";
}

/** @param entry its texts (`argumentsJson`, inline values) must be JSON: they become part of the stored JSON unchecked. */
export function encodeEntry(entry: CallEntry): string {
  switch (entry.kind) {
    // A member that is undefined is not written; taking it out of the object would cost more than the writing.
    case "accepted":
      return withText(
        { f: entry.request.orderingKey === undefined ? FORMAT : FORMAT_IN_LANE, ...entry, argumentsJson: undefined },
        entry.argumentsJson,
      );
    case "receipt":
    case "evidence":
      return withValue({ f: FORMAT, ...entry, receipt: { ...entry.receipt, value: undefined } }, entry.receipt.value);
    case "reconciled":
      return withValue({ f: FORMAT, ...entry, value: undefined }, entry.value);
    default:
      return JSON.stringify({ f: FORMAT, ...entry });
  }
}

function withValue(head: object, value: StoredText | null): string {
  if (value === null) {
    return JSON.stringify(head);
  }
  return value.kind === "blob" ? JSON.stringify({ ...head, blob: { name: value.name, bytes: value.bytes } }) : withText(head, value.json);
}

function withText(head: object, json: string): string {
  return `${JSON.stringify(head).slice(0, -1)},"units":${json.length},"text":${json}}`;
}

/** Reads a stored entry. Throws {@link EntryFormatError}. */
export function decodeEntry(stored: StoredEntry): PlacedEntry {
  const { f: format, text: _text, units, blob, ...raw } = parse(stored);
  if (!isKnown(format)) {
    throw unknownFormat(stored, format);
  }
  // The text's own letters; its parsed form only proved that it is JSON.
  const text = units === undefined ? undefined : stored.data.slice(-1 - units, -1);
  const placed: PlacedEntry = { ...raw, entryId: stored.entryId, version: stored.version };
  switch (placed.kind) {
    case "accepted":
      return { ...placed, argumentsJson: text ?? "null" };
    case "receipt":
      return { ...placed, receipt: { ...placed.receipt, value: textOf(text, blob) } };
    case "evidence":
      return { ...placed, receipt: { ...placed.receipt, value: textOf(text, blob) } };
    case "reconciled":
      return { ...placed, value: textOf(text, blob) };
    default:
      return placed;
  }
}

/** The value beside the ledger that the entry names, whatever its kind. Throws {@link EntryFormatError}. */
export function blobNameIn(stored: StoredEntry): string | undefined {
  const { f: format, blob } = parse(stored);
  if (!isKnown(format)) {
    throw unknownFormat(stored, format);
  }
  return blob?.name;
}

function isKnown(format: unknown): boolean {
  return format === FORMAT || format === FORMAT_IN_LANE;
}

function unknownFormat(stored: StoredEntry, format: unknown): EntryFormatError {
  return new EntryFormatError(
    `entry ${stored.entryId} of call ${stored.callId} has format ${String(format)}; this broker reads formats ${FORMAT} and ${FORMAT_IN_LANE}. Update the broker.`,
  );
}

type StoredForm = PlacedEntry & {
  readonly f: unknown;
  readonly text?: unknown;
  readonly units?: number;
  readonly blob?: { readonly name: string; readonly bytes: number };
};

function parse(stored: StoredEntry): StoredForm {
  let value: unknown;
  try {
    value = JSON.parse(stored.data);
  } catch (cause) {
    throw new EntryFormatError(`entry ${stored.entryId} of call ${stored.callId} is not JSON: its ledger is damaged, restore it`, {
      cause,
    });
  }
  // What is no object has no format, and is refused for that. The format vouches for the rest.
  return (typeof value === "object" && value !== null ? value : {}) as StoredForm;
}

function textOf(text: string | undefined, blob: StoredForm["blob"]): StoredText | null {
  if (blob !== undefined) {
    return { kind: "blob", ...blob };
  }
  if (text === undefined) {
    return null;
  }
  return { kind: "inline", json: text, bytes: Buffer.byteLength(text) };
}
