/**
 * A journal in a file: append-only batches with fdatasync and group commit, compacted by rewriting.
 *
 * Invariants:
 * - F1 One batch at a time: written, synced, then the next. What `append` resolved for is on disk.
 * - F2 After a failed write or sync the file is not trusted any more: everything is written anew to another file that takes its place.
 * - F3 One process at a time holds the journal.
 */
import { writeSync } from "node:fs";
import { type FileHandle, mkdir, open, readFile, rename, rm, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { Clock } from "../core/clock.js";
import { JournalError, messageOf } from "../core/errors.js";
import { randomId } from "../core/ids.js";
import type { Journal, JournalRecord, OpenJournal } from "../core/journal.js";
import { JournalPicture } from "../core/journal-picture.js";
import type { Receipt } from "../core/messages.js";
import { takeStored } from "../core/stored-record.js";
import { decodeFile, encodeBatch, encodeHeader } from "./journal-codec.js";
import { type JournalLock, takeJournalLock } from "./journal-lock.js";
import { endMarked, JOURNAL_MARK } from "./processes.js";

/** The file is rewritten when it is this much longer than twice what the last rewriting left. */
const SLACK_BYTES = 4 * 1_048_576;
/** How long a note may wait for company. */
const NOTE_DELAY_MS = 200;
const WRITE_IN_PLACE_BYTES = 16_384;
/** Entries for each line of a rewritten file. */
const ENTRIES_PER_LINE = 64;
/** Payload from which on a line ends: one text cannot hold many large results. */
const PAYLOAD_PER_LINE = 16 * 1_048_576;

/** What touches the disk; tests put faults here. */
export interface JournalFiles {
  write(handle: FileHandle, bytes: Uint8Array): Promise<void>;
  sync(handle: FileHandle): Promise<void>;
}

const realFiles: JournalFiles = {
  async write(handle, bytes) {
    let start = 0;
    // A short write only fills a page of the cache: quicker in place than by way of a worker thread. The sync is what takes time.
    if (bytes.length <= WRITE_IN_PLACE_BYTES) while (start < bytes.length) start += writeSync(handle.fd, bytes, start);
    for (let done = start; done < bytes.length; ) done += (await handle.write(bytes, done)).bytesWritten;
  },
  sync: (handle) => handle.datasync(),
};

/**
 * A journal in the file at `path`; its folder is made. Results are in it: the file is readable by its owner only.
 * It protects against the end of the process and of the machine, as far as the disk keeps what it synced. One process holds it:
 * another one that opens it gets a `JournalError` `journal_in_use` with the holder's pid.
 */
export function fileJournal(path: string): Journal {
  return fileJournalOn(realFiles, path);
}

/** @internal {@link fileJournal} over other files. */
export function fileJournalOn(files: JournalFiles, path: string): Journal {
  const absolute = resolve(path);
  return {
    kind: "file",
    durable: true,
    async open({ clock }) {
      let lock: JournalLock | undefined;
      try {
        await mkdir(dirname(absolute), { recursive: true, mode: 0o700 });
        lock = await takeJournalLock(absolute);
        const journal = await FileJournal.open(files, absolute, lock, clock);
        // What a killed runner's calls left running goes first: nobody can say what came of them while they still act (K4).
        await endMarked({ name: JOURNAL_MARK, value: journal.journalId });
        return journal;
      } catch (error) {
        await lock?.release();
        if (error instanceof JournalError) throw error;
        throw new JournalError("journal_unwritable", `the journal ${absolute} cannot be opened: ${messageOf(error)}`, { cause: error });
      }
    },
  };
}

interface Waiting {
  readonly record: JournalRecord;
  /** Absent for a note. */
  readonly resolve?: () => void;
  readonly reject?: (error: JournalError) => void;
}

class FileJournal implements OpenJournal {
  #queue: Waiting[] = [];
  #flushing: Promise<void> | null = null;
  #noteTimer: NodeJS.Timeout | null = null;
  #closing: Promise<void> | null = null;
  #handle: FileHandle | null = null;
  #fileBytes = 0;
  #compactBytes = 0;
  /** Whether the file is what it should be (F2). */
  #sound = false;

  private constructor(
    private readonly files: JournalFiles,
    private readonly path: string,
    private readonly lock: JournalLock,
    readonly journalId: string,
    readonly view: JournalPicture,
  ) {}

  static async open(files: JournalFiles, path: string, lock: JournalLock, clock: Clock): Promise<FileJournal> {
    await rm(nextName(path), { force: true });
    const bytes = await readExisting(path);
    const decoded = decodeFile(bytes);
    if (decoded.kind === "damaged") {
      throw new JournalError(
        "journal_corrupt",
        `${path} cannot be used as a journal: ${decoded.message}. Keep the file for what it may tell, and start with another one; calls that it held need reconciliation`,
      );
    }
    const picture = new JournalPicture(clock);
    if (decoded.kind === "read") for (const record of decoded.records) takeStored(picture, record);
    const journalId = decoded.kind === "read" ? decoded.journalId : randomId("jrn");
    const journal = new FileJournal(files, path, lock, journalId, picture.reopened(clock));
    try {
      // Rewriting also drops a torn end and what is overdue, and shows that the place can be written.
      await journal.#rewrite([]);
    } catch (error) {
      throw new JournalError("journal_unwritable", `the journal ${path} cannot be written: ${messageOf(error)}`, { cause: error });
    }
    return journal;
  }

  append(record: JournalRecord): Promise<void> {
    if (this.#closing !== null) return Promise.reject(new JournalError("journal_closed", "the journal was closed"));
    return new Promise((resolve, reject) => {
      this.#queue.push({ record, resolve, reject });
      this.#flush();
    });
  }

  note(record: JournalRecord): void {
    if (this.#closing !== null) return;
    this.view.apply(record);
    this.#queue.push({ record });
    this.#noteTimer ??= setTimeout(() => {
      this.#noteTimer = null;
      this.#flush();
    }, NOTE_DELAY_MS).unref();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#noteTimer !== null) clearTimeout(this.#noteTimer);
    // What came while the last batch was answered waits still.
    while (this.#flushing !== null || this.#queue.length > 0) {
      this.#flush();
      await this.#flushing;
    }
    await this.#handle?.close().catch(() => undefined);
    this.#handle = null;
    await this.lock.release();
  }

  #flush(): void {
    if (this.#flushing !== null || this.#queue.length === 0) return;
    this.#flushing = this.#drain().finally(() => {
      this.#flushing = null;
      // What came in while the last batch was answered.
      if (this.#queue.some(({ resolve }) => resolve !== undefined)) this.#flush();
    });
  }

  async #drain(): Promise<void> {
    // One turn, so that what is appended together is written together.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const batch = this.#queue;
      this.#queue = [];
      try {
        await this.#write(batch.map(({ record }) => record));
      } catch (error) {
        this.#sound = false;
        const fault = new JournalError("journal_unwritable", `the journal ${this.path} cannot be written: ${messageOf(error)}`, {
          cause: error,
        });
        // Notes are in the picture, which the next attempt writes as a whole.
        for (const waiting of batch) waiting.reject?.(fault);
        return;
      }
      for (const { record, resolve } of batch) {
        if (resolve === undefined) continue;
        this.view.apply(record);
        resolve();
      }
    }
  }

  async #write(records: readonly JournalRecord[]): Promise<void> {
    if (this.lock.lost) throw new Error(TAKEN);
    if (!this.#sound || this.#handle === null || this.#fileBytes > 2 * this.#compactBytes + SLACK_BYTES) return this.#rewrite(records);
    for (const line of linesOf(records)) {
      const bytes = Buffer.from(encodeBatch(line));
      await this.files.write(this.#handle, bytes);
      // Each line before the next one, so that only the last can be torn.
      await this.files.sync(this.#handle);
      this.#fileBytes += bytes.length;
    }
  }

  /** Writes the picture and `records` to a new file that takes the place of the old one. */
  async #rewrite(records: readonly JournalRecord[]): Promise<void> {
    if (!(await this.lock.held())) throw new Error(TAKEN);
    const next = nextName(this.path);
    await rm(next, { force: true });
    const handle = await open(next, "ax", 0o600);
    let bytesWritten = 0;
    const put = async (text: string) => {
      const bytes = Buffer.from(text);
      await this.files.write(handle, bytes);
      bytesWritten += bytes.length;
    };
    try {
      await put(encodeHeader(this.journalId));
      this.view.prune();
      const entries = [...this.view.entries()];
      for (const line of inLines(entries, ENTRIES_PER_LINE, (entry) => payloadOf(entry.receipt))) {
        await put(encodeBatch(line.map((entry) => ({ kind: "entry", entry }))));
      }
      const compactBytes = bytesWritten;
      for (const line of linesOf(records)) await put(encodeBatch(line));
      await this.files.sync(handle);
      await rename(next, this.path);
      await syncFolder(dirname(this.path));
      await this.#handle?.close().catch(() => undefined);
      this.#handle = handle;
      this.#fileBytes = bytesWritten;
      this.#compactBytes = compactBytes;
      this.#sound = true;
    } catch (error) {
      await handle.close().catch(() => undefined);
      throw error;
    }
  }
}

const TAKEN = "another process took this journal, because this one gave no sign of life";

/** Records as they are written: nearly always in one line. */
const linesOf = (records: readonly JournalRecord[]) =>
  inLines(records, Number.POSITIVE_INFINITY, (record) => (record.kind === "finished" ? payloadOf(record.receipt) : 0));

/** Groups of at most `many`, each with one item over {@link PAYLOAD_PER_LINE} at most. */
function* inLines<T>(items: readonly T[], many: number, payload: (item: T) => number): Generator<readonly T[]> {
  let line: T[] = [];
  let held = 0;
  for (const item of items) {
    const more = payload(item);
    if (line.length === many || (line.length > 0 && held + more > PAYLOAD_PER_LINE)) {
      yield line;
      line = [];
      held = 0;
    }
    line.push(item);
    held += more;
  }
  if (line.length > 0) yield line;
}

function payloadOf(receipt: Receipt | null): number {
  const outcome = receipt?.outcome;
  return outcome?.kind === "succeeded" ? outcome.resultJson.length : outcome?.kind === "submitted" ? outcome.handleJson.length : 0;
}

const nextName = (path: string) => `${path}.next`;

async function readExisting(path: string): Promise<Uint8Array> {
  const found = await stat(path).catch(() => null);
  if (found === null) return new Uint8Array();
  if (!found.isFile()) {
    throw new JournalError("journal_unwritable", `${path} is not a file: a journal is a file, give another path, such as ${path}/journal`);
  }
  try {
    return await readFile(path);
  } catch (error) {
    throw new JournalError("journal_unwritable", `the journal ${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

async function syncFolder(folder: string): Promise<void> {
  // Where folders cannot be synced (Windows) the rename is as durable as the platform makes it.
  const handle = await open(folder, "r").catch(() => null);
  try {
    await handle?.sync().catch(() => undefined);
  } finally {
    await handle?.close();
  }
}
