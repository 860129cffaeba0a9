/**
 * Owns the logs of commands.
 *
 * Invariants: one log holds at most `LOG_BYTES`, all together at most `LOGS_BYTES` (the oldest that nobody writes go first);
 * a log belongs to one conversation, and its name cannot be guessed.
 */
import { randomBytes } from "node:crypto";
import { type FileHandle, mkdir, open, rm } from "node:fs/promises";
import path from "node:path";

/** Most bytes of one log; what comes after is not kept. */
export const LOG_BYTES = 67_108_864;
/** Most bytes of all logs of a workspace. */
export const LOGS_BYTES = 536_870_912;

interface Kept {
  readonly file: string;
  readonly conversation: string;
  bytes: number;
  isOpen: boolean;
}

/** A log that is being written. */
export interface LogWriter {
  readonly file: string;
  /** True when something did not fit into `LOG_BYTES`. */
  readonly isCut: boolean;
  /** Appends; what does not fit is dropped. Throws what the file system throws. */
  write(bytes: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

/** The logs of one workspace. */
export class LogStore {
  readonly #folder: string;
  readonly #logBytes: number;
  readonly #logsBytes: number;
  #kept: Kept[] = [];

  /** @param limits bounds in bytes; `LOG_BYTES` and `LOGS_BYTES` by default */
  constructor(folder: string, limits: { readonly logBytes?: number; readonly logsBytes?: number } = {}) {
    this.#folder = folder;
    this.#logBytes = limits.logBytes ?? LOG_BYTES;
    this.#logsBytes = limits.logsBytes ?? LOGS_BYTES;
  }

  /** Starts a log. Throws what the file system throws. */
  async open(conversation: string): Promise<LogWriter> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const file = path.join(this.#folder, `command-${randomBytes(8).toString("hex")}.log`);
    const handle = await open(file, "wx", 0o600);
    const kept: Kept = { file, conversation, bytes: 0, isOpen: true };
    this.#kept.push(kept);
    return this.#writer(handle, kept);
  }

  #writer(handle: FileHandle, kept: Kept): LogWriter {
    const limit = this.#logBytes;
    const makeRoom = () => this.#makeRoom();
    let isCut = false;
    return {
      file: kept.file,
      get isCut() {
        return isCut;
      },
      async write(bytes) {
        const room = limit - kept.bytes;
        if (bytes.length > room) isCut = true;
        if (room <= 0 || bytes.length === 0) return;
        const fitting = bytes.subarray(0, room);
        for (let written = 0; written < fitting.length; ) {
          const step = await handle.write(fitting, written);
          written += step.bytesWritten;
          kept.bytes += step.bytesWritten;
        }
        await makeRoom();
      },
      async close() {
        if (!kept.isOpen) return;
        kept.isOpen = false;
        await handle.close();
      },
    };
  }

  async #makeRoom(): Promise<void> {
    let total = this.#kept.reduce((sum, log) => sum + log.bytes, 0);
    for (const log of [...this.#kept]) {
      if (total <= this.#logsBytes) return;
      if (log.isOpen) continue;
      total -= log.bytes;
      await this.#remove(log);
    }
  }

  /** Removes the logs of a conversation. One that is still written goes on without a name. */
  async clear(conversation: string): Promise<void> {
    for (const log of this.#kept.filter((kept) => kept.conversation === conversation)) await this.#remove(log);
  }

  async #remove(log: Kept): Promise<void> {
    this.#kept = this.#kept.filter((kept) => kept !== log);
    await rm(log.file, { force: true });
  }
}
