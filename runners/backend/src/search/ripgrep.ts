/**
 * Searches with ripgrep.
 *
 * Invariants: ripgrep is given file names, never a tree, so both engines search the same files; it ends with the search (also
 * when the caller stops early); a line of its output longer than `RECORD_BYTES` is never held in memory.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { open } from "node:fs/promises";
import { devNull } from "node:os";
import { SNIFF_BYTES } from "../files/file-kind.js";
import { WorkspaceFault } from "../workspace-fault.js";
import { type FileMatches, GREP_COLUMNS, type GrepEngine, type GrepQuery, type MatchedLine } from "./grep-engine.js";

const RECORD_BYTES = 1_048_576;
const ERROR_CHARACTERS = 16_384;
const MATCH_PREFIX = Buffer.from('{"type":"match"');

/**
 * True when `command` answers as ripgrep does.
 * @param command a name looked up in PATH, or a path
 */
export function hasRipgrep(command: string): boolean {
  const answer = spawnSync(command, ["--version"], { encoding: "utf8", timeout: 5_000, stdio: ["ignore", "pipe", "ignore"] });
  return answer.status === 0 && answer.stdout.startsWith("ripgrep ");
}

/** The engine that runs `command`. */
export function ripgrepEngine(command: string): GrepEngine {
  return {
    name: "ripgrep",
    note: "",
    search: (files, query, lineLimit, signal) => search(command, files, query, lineLimit, signal),
  };
}

interface OpenFile {
  readonly file: string;
  readonly lines: (MatchedLine & { readonly at: number })[];
  longLines: number;
}

async function* search(
  command: string,
  files: readonly string[],
  query: GrepQuery,
  lineLimit: number,
  signal: AbortSignal,
): AsyncGenerator<FileMatches> {
  signal.throwIfAborted();
  const names = files.length === 0 ? [devNull] : files;
  const child = spawn(command, [...flagsOf(query), `--regexp=${query.pattern}`, "--", ...names], { stdio: ["ignore", "pipe", "pipe"] });
  const kill = () => child.kill("SIGKILL");
  signal.addEventListener("abort", kill, { once: true });
  let complaints = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    if (complaints.length < ERROR_CHARACTERS) complaints += text;
  });
  let failure: Error | undefined;
  const ended = once(child, "close").catch((error: Error) => {
    failure = error;
  });
  try {
    let hasSummary = false;
    let current: OpenFile | undefined;
    for await (const record of recordsOf(child.stdout)) {
      if (record === "too long") {
        if (current !== undefined) current.longLines += 1;
        continue;
      }
      if (record.type === "begin") {
        current = { file: textOf(record.data.path).text, lines: [], longLines: 0 };
      } else if (record.type === "match" && current !== undefined) {
        takeMatch(current, record.data);
        if (current.lines.length >= lineLimit) {
          // Nothing after this is wanted, so there is no end to wait for.
          const found = await accept(current, Number.POSITIVE_INFINITY);
          if (found !== undefined) {
            yield found;
            return;
          }
        }
      } else if (record.type === "end" && current !== undefined) {
        const found = await accept(current, record.data.binary_offset ?? Number.POSITIVE_INFINITY);
        current = undefined;
        if (found !== undefined) yield found;
      } else if (record.type === "summary") {
        hasSummary = true;
      }
    }
    await ended;
    signal.throwIfAborted();
    if (failure !== undefined) throw new WorkspaceFault("io_error", `ripgrep could not be run: ${failure.message}.`, { cause: failure });
    // Files that went away make ripgrep complain too, but only a bad pattern keeps it from summing up.
    if (!hasSummary) throw new WorkspaceFault("pattern_invalid", `The pattern is not valid for ripgrep: ${complaints.trim()}`);
  } finally {
    signal.removeEventListener("abort", kill);
    kill();
    await ended;
  }
}

function flagsOf(query: GrepQuery): string[] {
  return [
    "--no-config",
    "--json",
    "--no-mmap",
    "--threads=1",
    "--crlf",
    ...(query.ignoreCase ? ["--ignore-case"] : ["--case-sensitive"]),
    ...(query.literal ? ["--fixed-strings"] : []),
    ...(query.filesOnly ? ["--max-count=1"] : []),
  ];
}

function takeMatch(current: OpenFile, match: RecordData): void {
  const text = textOf(match.lines).text.replace(/\r?\n$/, "");
  if (text.length > GREP_COLUMNS) current.longLines += 1;
  else current.lines.push({ number: match.line_number ?? 0, text, at: match.absolute_offset ?? 0 });
}

async function accept(current: OpenFile, firstNul: number): Promise<FileMatches | undefined> {
  if (await hasEarlyNul(current.file)) {
    current.lines.length = 0;
    return undefined;
  }
  const lines = current.lines.filter((line) => line.at < firstNul).map(({ number, text }) => ({ number, text }));
  return lines.length === 0 && current.longLines === 0 ? undefined : { file: current.file, lines, longLines: current.longLines };
}

async function hasEarlyNul(file: string): Promise<boolean> {
  try {
    const handle = await open(file, "r");
    try {
      const head = Buffer.alloc(SNIFF_BYTES);
      const { bytesRead } = await handle.read(head, 0, SNIFF_BYTES, 0);
      return head.subarray(0, bytesRead).includes(0);
    } finally {
      await handle.close();
    }
  } catch {
    return true;
  }
}

/** Text as ripgrep writes it: as it is where it is UTF-8, else as base64 of its bytes. */
interface RecordText {
  readonly text?: string;
  readonly bytes?: string;
}

interface RecordData {
  readonly path?: RecordText;
  readonly lines?: RecordText;
  readonly line_number?: number;
  readonly absolute_offset?: number;
  readonly binary_offset?: number | null;
}

interface RipgrepRecord {
  readonly type: string;
  readonly data: RecordData;
}

function textOf(value: RecordText | undefined): { readonly text: string } {
  if (value?.text !== undefined) return { text: value.text };
  return { text: Buffer.from(value?.bytes ?? "", "base64").toString("utf8") };
}

async function* recordsOf(output: AsyncIterable<Buffer>): AsyncGenerator<RipgrepRecord | "too long"> {
  let held: Buffer[] = [];
  let heldBytes = 0;
  let isTooLong = false;
  const keep = (piece: Buffer): void => {
    if (isTooLong) return;
    held.push(piece);
    heldBytes += piece.length;
    if (heldBytes > RECORD_BYTES) {
      // Its beginning is enough to know what it was.
      held = [Buffer.concat(held).subarray(0, MATCH_PREFIX.length)];
      isTooLong = true;
    }
  };
  for await (const chunk of output) {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      keep(chunk.subarray(from, at));
      const line = Buffer.concat(held);
      if (!isTooLong) yield JSON.parse(line.toString("utf8")) as RipgrepRecord;
      else if (line.equals(MATCH_PREFIX)) yield "too long";
      held = [];
      heldBytes = 0;
      isTooLong = false;
      from = at + 1;
    }
    if (from < chunk.length) keep(chunk.subarray(from));
  }
}
