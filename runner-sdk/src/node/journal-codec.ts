/**
 * The stored form of a file journal, version 1. Text lines: the CRC-32 of the rest as 8 hexadecimal digits, a space, JSON.
 * The first line is the header; every other line is one batch, an array of records, that was synced before the next was begun.
 * So an unreadable line is a torn write when nothing readable follows it, and damage otherwise.
 */
import { crc32 } from "node:zlib";
import { readStoredRecord, type StoredRecord } from "../core/stored-record.js";

const FORMAT = 1;

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
      const record = readStoredRecord(stored);
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
