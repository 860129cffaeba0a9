/**
 * The file half of `read` (W2): numbered lines of a text file.
 *
 * Invariants: only regular files are opened for reading, so no pipe or device can hang a call; a result fits the byte budget
 * and says where to go on; nothing is left out without a note.
 */
import { constants } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import path from "node:path";
import { fitLines } from "../json-budget.js";
import { faultFromSystemError, WorkspaceFault } from "../workspace-fault.js";
import type { Place } from "../workspace-root.js";
import { fileKindOf, SNIFF_BYTES } from "./file-kind.js";
import { readLines } from "./line-reader.js";

/** Lines of a call that names no limit. */
export const DEFAULT_LINES = 2000;
/** Most lines of a call. */
export const MAX_LINES = 10_000;
/** Characters of a line that are shown. */
export const LINE_CHARACTERS = 500;
/** Characters of a call. */
export const READ_CHARACTERS = 60_000;
/** Bytes of a file over which a range is needed. */
export const RANGE_NEEDED_BYTES = 262_144;

const CHUNK_BYTES = 65_536;

/** The lines that a call wants. */
export interface WantedLines {
  /** Number of the first line, from 1. */
  readonly first: number;
  /** Most lines. */
  readonly limit: number;
  /** False when the caller named no range at all. */
  readonly isRange: boolean;
}

/** Answer of `read` for a file or a folder. */
export interface ReadResult {
  readonly kind: "file" | "folder";
  /** File: lines as number, tab, text. Folder: one entry a line, folders end in `/`. */
  readonly text: string;
  /** Number of the first line or entry shown; 0 when there is none. */
  readonly first: number;
  /** Number of the last one shown; 0 when there is none. */
  readonly last: number;
  /** Lines or entries in all; null when the end was not reached. */
  readonly total: number | null;
  /** `offset` to go on with; null at the end. */
  readonly next_offset: number | null;
  /** What was cut, left out or replaced, and how to get it. */
  readonly notes: readonly string[];
}

/**
 * Reads lines of the regular file at `place`.
 * @throws {WorkspaceFault} `not_a_file`, `binary_file`, `file_kind_unsupported`, `range_needed`, `range_invalid`, `permission_denied`
 */
export async function readFile(place: Place, wanted: WantedLines, budgetBytes: number, signal: AbortSignal): Promise<ReadResult> {
  const handle = await openRegular(place);
  try {
    const { size } = await handle.stat();
    await refuseOtherKinds(handle, place);
    if (size > RANGE_NEEDED_BYTES && !wanted.isRange) {
      throw new WorkspaceFault(
        "range_needed",
        `${place.shown} has ${size} bytes; over ${RANGE_NEEDED_BYTES} a range is needed. Give offset and limit, or find the place with grep.`,
      );
    }
    const range = await readLines(chunksOf(handle, signal), {
      first: wanted.first,
      limit: wanted.limit,
      kept: LINE_CHARACTERS,
      total: READ_CHARACTERS,
    });
    if (range.lines.length === 0 && wanted.first > 1) {
      throw new WorkspaceFault("range_invalid", `${place.shown} has ${range.totalLines ?? 0} lines; line ${wanted.first} is past its end.`);
    }
    const numbered = range.lines.map(({ text }, index) => `${wanted.first + index}\t${text}`);
    return fitLines(numbered, budgetBytes, (text, count) => {
      const shown = range.lines.slice(0, count);
      const more = range.totalLines === null || wanted.first + count - 1 < range.totalLines;
      return {
        kind: "file" as const,
        text,
        first: count === 0 ? 0 : wanted.first,
        last: count === 0 ? 0 : wanted.first + count - 1,
        total: range.totalLines,
        next_offset: more && count > 0 ? wanted.first + count : null,
        notes: [
          ...(range.totalLines === 0 ? ["The file is empty."] : []),
          ...cutNote(shown.filter((line) => line.length > line.text.length)),
          ...(range.undecodable ? ["Bytes that are not UTF-8 are shown as U+FFFD."] : []),
          ...(range.carriageReturns ? ["Lines end in CRLF; the CR is not shown."] : []),
        ],
      };
    }).result;
  } catch (error) {
    if (signal.aborted) throw error;
    throw faultFromSystemError(error, place.shown);
  } finally {
    await handle.close();
  }
}

function cutNote(cut: readonly { readonly length: number }[]): string[] {
  if (cut.length === 0) return [];
  const longest = cut.reduce((length, line) => Math.max(length, line.length), 0);
  return [
    `${cut.length} ${cut.length === 1 ? "line is" : "lines are"} cut after ${LINE_CHARACTERS} characters (the longest has ${longest}); see the rest with bash, for instance cut -c.`,
  ];
}

/** Opens without waiting, so that a pipe put in the file's place after the check cannot hang the call. */
async function openRegular(place: Place): Promise<FileHandle> {
  let handle: FileHandle | undefined;
  try {
    if (!(await stat(place.real)).isFile()) throw notAFile(place);
    handle = await open(place.real, constants.O_RDONLY | constants.O_NONBLOCK);
    if (!(await handle.stat()).isFile()) throw notAFile(place);
    return handle;
  } catch (error) {
    await handle?.close();
    throw faultFromSystemError(error, place.shown);
  }
}

function notAFile(place: Place): WorkspaceFault {
  return new WorkspaceFault("not_a_file", `${place.shown} is a pipe, socket or device; only regular files and folders are read.`);
}

async function refuseOtherKinds(handle: FileHandle, place: Place): Promise<void> {
  const head = Buffer.alloc(SNIFF_BYTES);
  const { bytesRead } = await handle.read(head, 0, SNIFF_BYTES, 0);
  const kind = fileKindOf(path.basename(place.real), head.subarray(0, bytesRead));
  if (kind === "text") return;
  if (kind === "binary") {
    throw new WorkspaceFault(
      "binary_file",
      `${place.shown} is binary (it has a NUL byte early on); read shows text only. Look at it with bash, for instance file or xxd.`,
    );
  }
  throw new WorkspaceFault(
    "file_kind_unsupported",
    `${place.shown} is a ${kind.named}; this release of read shows UTF-8 text only. Convert or inspect it with bash.`,
  );
}

async function* chunksOf(handle: FileHandle, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const buffer = Buffer.alloc(CHUNK_BYTES);
  for (let position = 0; ; ) {
    signal.throwIfAborted();
    const { bytesRead } = await handle.read(buffer, 0, CHUNK_BYTES, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}
