/**
 * Collects what a command prints.
 *
 * Invariants: memory holds at most `EDGE_BYTES` of the beginning and of the end, however much is printed; once there is more
 * than can be shown, everything goes to a log (up to its bound); a source is not read faster than the log is written;
 * characters whose bytes arrive apart come out whole.
 */
import { headOf, jsonBytes, largestFit, tailOf } from "../json-budget.js";
import type { LogStore, LogWriter } from "./log-store.js";

/** Characters of output that a result shows; beyond, head and tail. */
export const OUTPUT_CHARACTERS = 30_000;

/** Bytes of the beginning, and of the end, that are held: enough for the characters above at four bytes each. */
const EDGE_BYTES = 65_536;
/** Pieces of the end are joined up to this size. */
const SMALL_BYTES = 4_096;
/** Output with more bytes than this may have more characters than are shown. */
const LOG_FROM_BYTES = OUTPUT_CHARACTERS;

/** Output as a result shows it. */
export interface ShownOutput {
  readonly text: string;
  /** File with the whole output; null when all is shown, and when it could not be saved. */
  readonly logFile: string | null;
  readonly notes: readonly string[];
}

/** The output of one command. */
export class OutputCollector {
  readonly #openLog: () => Promise<LogWriter>;
  #head = Buffer.alloc(0);
  /** The last chunks: together at least `EDGE_BYTES` once so much came, and without any one of them less. */
  #tail: Buffer[] = [];
  #tailBytes = 0;
  #totalBytes = 0;
  #log: LogWriter | undefined;
  #logFailure: string | undefined;
  #work: Promise<void> = Promise.resolve();

  /** @param conversation whose log it is */
  constructor(logs: LogStore, conversation: string) {
    this.#openLog = () => logs.open(conversation);
  }

  /** True when what comes now is dropped, for the log is full. */
  get isFull(): boolean {
    return this.#log?.isCut === true;
  }

  /** Bytes printed so far. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  /** Takes what was printed, and keeps it: nobody writes into `chunk` afterwards. Resolves when it is dealt with: read on only then. */
  add(chunk: Buffer): Promise<void> {
    const taken = this.#work.then(() => this.#take(chunk));
    this.#work = taken;
    return taken;
  }

  async #take(chunk: Buffer): Promise<void> {
    const before = this.#totalBytes;
    this.#totalBytes += chunk.length;
    const room = EDGE_BYTES - this.#head.length;
    if (room > 0) this.#head = Buffer.concat([this.#head, chunk.subarray(0, room)]);
    const rest = chunk.subarray(Math.max(room, 0));
    if (rest.length > 0) this.#takeTail(rest);
    if (this.#totalBytes <= LOG_FROM_BYTES && this.#log === undefined) return;
    if (this.#log === undefined) await this.#startLog(Buffer.concat([this.#head.subarray(0, before), chunk]));
    else await this.#write(chunk);
  }

  #takeTail(chunk: Buffer): void {
    const last = this.#tail.at(-1);
    // Many small pieces would cost more in bookkeeping than in bytes.
    if (last !== undefined && last.length + chunk.length <= SMALL_BYTES) this.#tail[this.#tail.length - 1] = Buffer.concat([last, chunk]);
    else this.#tail.push(chunk);
    this.#tailBytes += chunk.length;
    for (let first = this.#tail[0]; first !== undefined && this.#tailBytes - first.length >= EDGE_BYTES; first = this.#tail[0]) {
      this.#tail.shift();
      this.#tailBytes -= first.length;
    }
  }

  /** The end of the output after the head, `EDGE_BYTES` at most. */
  #tailEdge(): Buffer {
    return Buffer.concat(this.#tail).subarray(-EDGE_BYTES);
  }

  /** Makes sure that there is a log, for output that is cut, and for a command that prints on after its result. */
  keepLog(): Promise<void> {
    const kept = this.#work.then(async () => {
      // Without a log, all output is still in memory.
      if (this.#log === undefined) await this.#startLog(this.#head);
    });
    this.#work = kept;
    return kept;
  }

  /** The end of the output so far, for news about a running command. */
  latest(characters: number): string {
    const bytes = this.#tail.length === 0 ? this.#head : this.#tailEdge();
    return tailOf(printable(withoutOpenEnd(withoutOpenStart(bytes.subarray(-characters * 4)))), characters);
  }

  /** The file with the whole output; null when there is none or it could not be saved. */
  get logFile(): string | null {
    return this.#logFailure === undefined ? (this.#log?.file ?? null) : null;
  }

  /** Only called while all output so far is in memory. */
  async #startLog(soFar: Buffer): Promise<void> {
    if (this.#logFailure !== undefined) return;
    try {
      this.#log = await this.#openLog();
    } catch (error) {
      this.#logFailure = error instanceof Error ? error.message : String(error);
      return;
    }
    await this.#write(soFar);
  }

  async #write(bytes: Buffer): Promise<void> {
    if (this.#logFailure !== undefined) return;
    try {
      await this.#log?.write(bytes);
    } catch (error) {
      this.#logFailure = error instanceof Error ? error.message : String(error);
    }
  }

  /** Ends the log. Output that comes after is dropped. */
  async close(): Promise<void> {
    await this.#work;
    await this.#log?.close().catch(() => undefined);
  }

  /**
   * The output so far, cut to `OUTPUT_CHARACTERS` and to what fits the budget.
   * @param build makes the whole result, whose compact JSON must not be over `budgetBytes`
   */
  async show<Result>(budgetBytes: number, build: (output: ShownOutput) => Result): Promise<Result> {
    await this.#work;
    const totalBytes = this.#totalBytes;
    const isWhole = totalBytes <= EDGE_BYTES * 2;
    const ending = this.#tailEdge();
    const head = isWhole ? printable(Buffer.concat([this.#head, ending])) : printable(withoutOpenEnd(this.#head));
    const tail = isWhole ? head : printable(withoutOpenStart(ending));
    if (isWhole && head.length <= OUTPUT_CHARACTERS) {
      const uncut = build({ text: head, logFile: null, notes: [] });
      if (jsonBytes(uncut) <= budgetBytes) return uncut;
    }
    await this.keepLog();
    const leftOut = (first: string, last: string) =>
      isWhole
        ? `${head.length - first.length - last.length} characters`
        : `${totalBytes - Buffer.byteLength(first) - Buffer.byteLength(last)} bytes`;
    const cut = (characters: number) => {
      const first = headOf(head, Math.ceil(characters / 2));
      const last = tailOf(tail, Math.floor(characters / 2));
      return build(this.#cut(first, last, leftOut(first, last)));
    };
    const most = isWhole ? Math.min(OUTPUT_CHARACTERS, head.length - 1) : OUTPUT_CHARACTERS;
    return cut(largestFit(most, budgetBytes, cut));
  }

  #cut(first: string, last: string, left: string): ShownOutput {
    const logFile = this.logFile;
    return {
      text: `${first}\n[… ${left} left out here …]\n${last}`,
      logFile,
      notes: [
        logFile === null
          ? `The middle of the output is lost: it could not be saved (${this.#logFailure ?? "no log"}).`
          : this.#log?.isCut === true
            ? "The output is cut in the middle; log_file is full and holds its beginning only. Use read with offset and limit."
            : "The output is cut in the middle; log_file holds all of it. Use read with offset and limit.",
      ],
    };
  }
}

/** Text of bytes: what is not UTF-8, and control characters that no reader wants, become U+FFFD. */
function printable(bytes: Uint8Array): string {
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f]/g, "\ufffd");
}

/** Leaves out a character at the end whose bytes are not all there. */
function withoutOpenEnd(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return bytes;
    if (byte >= 0xc0) {
      const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return size > back ? bytes.subarray(0, bytes.length - back) : bytes;
    }
  }
  return bytes;
}

/** Leaves out bytes at the start that continue a character that is not there. */
function withoutOpenStart(bytes: Buffer): Buffer {
  let start = 0;
  while (start < Math.min(3, bytes.length) && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  return bytes.subarray(start);
}
