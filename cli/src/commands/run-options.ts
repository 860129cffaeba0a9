/** What `toolrunner run` takes. */
import type { JsonOption } from "./command.js";
import type { LogLevel } from "./logs.js";

/** Folder of the journals that nobody named, relative to the current folder. */
export const JOURNAL_FOLDER = ".toolrunner/journal";

/** Options of `run`. */
export interface RunOptions extends JsonOption {
  readonly url?: string;
  readonly binding?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly subject?: string;
  readonly runnerId?: string;
  readonly journal?: string;
  readonly readyFile?: string;
  readonly concurrency: number;
  readonly logLevel: LogLevel;
  readonly drainSeconds: number;
}
