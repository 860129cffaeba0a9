/**
 * Reads a range of lines from bytes that may be far larger than memory.
 *
 * Invariants: holds at most `kept` characters of any line, however long the line is; a line ends at LF, and a CR before it
 * is not part of it; bytes that are not UTF-8 become U+FFFD and are counted as seen.
 */
import { headOf } from "../json-budget.js";

/** One line, cut where it was too long. */
export interface ReadLine {
  readonly text: string;
  /** Its whole length in UTF-16 units, line break left out. */
  readonly length: number;
}

/** What a reading found. */
export interface LineRange {
  readonly lines: readonly ReadLine[];
  /** Lines of the whole file; null when reading stopped before its end. */
  readonly totalLines: number | null;
  /** True when a shown line has characters that are not valid UTF-8 (or U+FFFD itself). */
  readonly undecodable: boolean;
  /** True when shown lines ended in CRLF. */
  readonly carriageReturns: boolean;
}

/** Options of `readLines`. */
export interface LineRangeOptions {
  /** Number of the first line wanted, from 1. */
  readonly first: number;
  /** Most lines to keep. */
  readonly limit: number;
  /** Most characters to keep of each line. */
  readonly kept: number;
  /** Most characters to keep in all; reading stops at the line that goes past it. */
  readonly total: number;
}

/** Reads the wanted range, and stops as soon as it knows that there is more than it may keep. */
export async function readLines(chunks: AsyncIterable<Uint8Array>, options: LineRangeOptions): Promise<LineRange> {
  const decoder = new TextDecoder("utf-8");
  const lines: ReadLine[] = [];
  let number = 1;
  let held = "";
  let length = 0;
  let endsInReturn = false;
  let total = 0;
  let undecodable = false;
  let carriageReturns = false;
  let full = false;

  const take = (piece: string): void => {
    length += piece.length;
    if (piece.length > 0) endsInReturn = piece.endsWith("\r");
    // One character more than is shown, so that a cut that would split a pair can see it.
    if (held.length <= options.kept && number >= options.first) held += piece.slice(0, options.kept + 1 - held.length);
  };
  const finish = (): void => {
    if (number >= options.first && !full) {
      const whole = endsInReturn ? length - 1 : length;
      const text = headOf(held.slice(0, whole), options.kept);
      if (lines.length >= options.limit || (lines.length > 0 && total + text.length > options.total)) {
        full = true;
      } else {
        lines.push({ text, length: whole });
        total += text.length + 1;
        undecodable ||= text.includes("\ufffd");
        carriageReturns ||= endsInReturn;
      }
    }
    number += 1;
    held = "";
    length = 0;
    endsInReturn = false;
  };
  const feed = (text: string): void => {
    // There is more than may be kept; how much more is not worth the reading.
    if (text.length > 0 && lines.length >= options.limit) full = true;
    let from = 0;
    for (let at = text.indexOf("\n"); at >= 0 && !full; at = text.indexOf("\n", from)) {
      take(text.slice(from, at));
      finish();
      from = at + 1;
      if (lines.length >= options.limit && from < text.length) full = true;
    }
    if (!full && from < text.length) take(text.slice(from));
  };

  for await (const chunk of chunks) {
    feed(decoder.decode(chunk, { stream: true }));
    if (full) return { lines, totalLines: null, undecodable, carriageReturns };
  }
  feed(decoder.decode());
  if (length > 0) finish();
  return { lines, totalLines: full ? null : number - 1, undecodable, carriageReturns };
}
