/**
 * The stored form of a file journal, version 1. Text lines: the CRC-32 of the rest as 8 hexadecimal digits, a space, JSON.
 * The first line is the header; every other line is one batch, an array of records, that was synced before the next was begun.
 * So an unreadable line is a torn write when nothing readable follows it, and damage otherwise.
 */
import { crc32 } from "node:zlib";
import type { JournalEntry, JournalRecord } from "../core/journal.js";
import type { Outcome, Receipt } from "../core/messages.js";

const FORMAT = 1;

/** A record, or a whole entry as compaction writes it. */
export type StoredRecord = JournalRecord | { readonly kind: "entry"; readonly entry: JournalEntry };

/** What a file holds. */
export type DecodedFile =
  /** `goodBytes`: where the readable part ends; what follows is a torn write. */
  | { readonly kind: "read"; readonly journalId: string; readonly records: readonly StoredRecord[]; readonly goodBytes: number }
  | { readonly kind: "empty" }
  | { readonly kind: "damaged"; readonly message: string };

/** The header line. */
export function encodeHeader(journalId: string): string {
  return line({ journal: journalId, format: FORMAT });
}

/** One batch as a line. */
export function encodeBatch(records: readonly StoredRecord[]): string {
  return line(records);
}

function line(content: object): string {
  const text = JSON.stringify(content);
  return `${checksum(text)} ${text}\n`;
}

const checksum = (data: string | Uint8Array) => crc32(data).toString(16).padStart(8, "0");

/** Reads a whole file. */
export function decodeFile(bytes: Uint8Array): DecodedFile {
  if (bytes.length === 0) return { kind: "empty" };
  const lines = splitLines(bytes);
  const header = readLine(lines[0]);
  if (
    header === undefined ||
    typeof header !== "object" ||
    header === null ||
    !("journal" in header) ||
    typeof header.journal !== "string"
  ) {
    return { kind: "damaged", message: "its first line is not the header of a runner's journal" };
  }
  if (!("format" in header) || header.format !== FORMAT) {
    return {
      kind: "damaged",
      message: `it has format ${"format" in header ? String(header.format) : "?"}, this SDK reads format ${FORMAT}: update the SDK`,
    };
  }
  const records: StoredRecord[] = [];
  let goodBytes = lines[0]?.end ?? 0;
  for (const [index, current] of lines.entries()) {
    if (index === 0) continue;
    const content = readLine(current);
    if (!Array.isArray(content)) {
      const readableAfter = lines.slice(index + 1).some((later) => readLine(later) !== undefined);
      if (readableAfter) return { kind: "damaged", message: `line ${index + 1} cannot be read, and readable ones follow` };
      break;
    }
    for (const stored of content) {
      const record = readRecord(stored);
      if (record === null) return { kind: "damaged", message: `line ${index + 1} has a record of an unknown form` };
      records.push(record);
    }
    goodBytes = current.end;
  }
  return { kind: "read", journalId: header.journal, records, goodBytes };
}

interface Line {
  readonly bytes: Uint8Array;
  /** Offset after its line break; the file's end for a line without one. */
  readonly end: number;
  readonly complete: boolean;
}

function splitLines(bytes: Uint8Array): Line[] {
  const lines: Line[] = [];
  for (let start = 0; start < bytes.length; ) {
    const at = bytes.indexOf(10, start);
    const complete = at !== -1;
    const stop = complete ? at : bytes.length;
    lines.push({ bytes: bytes.subarray(start, stop), end: complete ? at + 1 : stop, complete });
    start = stop + 1;
  }
  return lines;
}

/** The content of a line; undefined when it is torn or damaged. */
function readLine(current: Line | undefined): unknown {
  if (current === undefined || !current.complete || current.bytes.length < 10) return undefined;
  const payload = current.bytes.subarray(9);
  if (Buffer.from(current.bytes.subarray(0, 9)).toString("latin1") !== `${checksum(payload)} `) return undefined;
  try {
    return JSON.parse(Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString("utf8"));
  } catch {
    return undefined;
  }
}

type Fields = Readonly<Record<string, unknown>>;
const isFields = (value: unknown): value is Fields => typeof value === "object" && value !== null && !Array.isArray(value);

function readRecord(stored: unknown): StoredRecord | null {
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
