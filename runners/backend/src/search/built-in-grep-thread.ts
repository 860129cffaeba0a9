/**
 * The thread of the built-in search: matches line by line, and may be ended at any moment.
 */
import { closeSync, openSync, readSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { SNIFF_BYTES } from "../files/file-kind.js";
import { type FileMatches, GREP_COLUMNS, type MatchedLine } from "./grep-engine.js";
import type { GrepJob, GrepNews } from "./grep-messages.js";
import { type LineMatcher, lineMatcher } from "./line-matcher.js";

const CHUNK_BYTES = 262_144;
/** Characters of a line that are held; what comes after is not searched. */
const LINE_CHARACTERS = 1_048_576;

if (parentPort !== null) {
  const port = parentPort;
  const tell = (news: GrepNews): void => port.postMessage(news);
  run(workerData as GrepJob, tell);
}

function run(job: GrepJob, tell: (news: GrepNews) => void): void {
  let matcher: LineMatcher;
  try {
    matcher = lineMatcher(job.query);
  } catch (error) {
    tell({ kind: "invalid", message: error instanceof Error ? error.message : String(error) });
    return;
  }
  for (const file of job.files) {
    const matches = searchFile(file, matcher, job.query.filesOnly ? 1 : job.lineLimit);
    if (matches !== undefined) tell({ kind: "matches", matches });
  }
  tell({ kind: "done" });
}

/** What matches in one file; undefined for nothing, and for a file that is binary or cannot be read. */
function searchFile(file: string, matches: LineMatcher, lineLimit: number): FileMatches | undefined {
  const lines: MatchedLine[] = [];
  let longLines = 0;
  let number = 0;
  const isEnough = (): boolean => lines.length >= lineLimit || (lineLimit === 1 && longLines > 0);
  try {
    eachLine(file, (line) => {
      number += 1;
      if (!matches(line)) return true;
      if (line.length > GREP_COLUMNS) longLines += 1;
      else lines.push({ number, text: line });
      return !isEnough();
    });
  } catch {
    return undefined;
  }
  return lines.length === 0 && longLines === 0 ? undefined : { file, lines, longLines };
}

/** Gives the lines up to the first NUL, until `take` returns false. No line when there is a NUL early on. */
function eachLine(file: string, take: (line: string) => boolean): void {
  const descriptor = openSync(file, "r");
  try {
    const buffer = Buffer.alloc(CHUNK_BYTES);
    const decoder = new TextDecoder("utf-8");
    let held = "";
    const hold = (piece: string): void => {
      if (held.length < LINE_CHARACTERS) held += piece.slice(0, LINE_CHARACTERS - held.length);
    };
    const finish = (): boolean => {
      const line = held.endsWith("\r") ? held.slice(0, -1) : held;
      held = "";
      return take(line);
    };
    let isFirst = true;
    let isLast = false;
    let needsEnd = false;
    while (!isLast) {
      const bytes = readSync(descriptor, buffer, 0, CHUNK_BYTES, null);
      const chunk = buffer.subarray(0, bytes);
      const nul = chunk.indexOf(0);
      if (isFirst && nul >= 0 && nul < SNIFF_BYTES) return;
      isFirst = false;
      isLast = bytes === 0 || nul >= 0;
      const text = decoder.decode(nul >= 0 ? chunk.subarray(0, nul) : chunk, { stream: !isLast });
      let from = 0;
      for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", from)) {
        hold(text.slice(from, at));
        needsEnd = false;
        if (!finish()) return;
        from = at + 1;
      }
      if (from < text.length) {
        hold(text.slice(from));
        needsEnd = true;
      }
    }
    if (needsEnd) finish();
  } finally {
    closeSync(descriptor);
  }
}
