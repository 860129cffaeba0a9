/**
 * The stored form of entries: JSON with a version of its own, never a wire message.
 * Texts that are JSON already (arguments, results) are put in as they are, so nothing is encoded twice;
 * `decodeEntry` gives them back as texts.
 */

import type { StoredEntry } from "../ports/ledger.js";
import type { StoredText } from "./call-state.js";
import type { CallEntry, PlacedEntry } from "./entries.js";

const FORMAT = 1;

export class EntryFormatError extends Error {
  override readonly name = "EntryFormatError";
}

export function encodeEntry(entry: CallEntry): string {
  switch (entry.kind) {
    case "accepted": {
      const { argumentsJson, ...rest } = entry;
      return withText({ f: FORMAT, ...rest }, argumentsJson);
    }
    case "receipt": {
      const { value, ...receipt } = entry.receipt;
      return withValue({ f: FORMAT, ...entry, receipt }, value);
    }
    case "evidence": {
      const { value, ...receipt } = entry.receipt;
      return withValue({ f: FORMAT, ...entry, receipt }, value);
    }
    case "reconciled": {
      const { value, ...rest } = entry;
      return withValue({ f: FORMAT, ...rest }, value);
    }
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
  return `${JSON.stringify(head).slice(0, -1)},"text":${json}}`;
}

export function decodeEntry(stored: StoredEntry): PlacedEntry {
  const { f: format, text, blob, ...raw } = parse(stored);
  if (format !== FORMAT) {
    throw new EntryFormatError(
      `entry ${stored.entryId} of call ${stored.callId} has format ${String(format)}; this broker reads format ${FORMAT}. Update the broker.`,
    );
  }
  const placed: PlacedEntry = { ...raw, entryId: stored.entryId, version: stored.version };
  switch (placed.kind) {
    case "accepted":
      return { ...placed, argumentsJson: JSON.stringify(text) };
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

type StoredForm = PlacedEntry & {
  readonly f: unknown;
  readonly text?: unknown;
  readonly blob?: { readonly name: string; readonly bytes: number };
};

function parse(stored: StoredEntry): StoredForm {
  try {
    return JSON.parse(stored.data);
  } catch (cause) {
    throw new EntryFormatError(`entry ${stored.entryId} of call ${stored.callId} is not JSON`, { cause });
  }
}

function textOf(text: unknown, blob: StoredForm["blob"]): StoredText | null {
  if (blob !== undefined) {
    return { kind: "blob", ...blob };
  }
  if (text === undefined) {
    return null;
  }
  const json = JSON.stringify(text);
  return { kind: "inline", json, bytes: Buffer.byteLength(json) };
}
