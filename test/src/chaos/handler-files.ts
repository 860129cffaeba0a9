/**
 * Files of one line of JSON each, written so that a line that was written outlives its process: appended, then synced.
 * A line that a kill cut off was never written.
 */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";

export interface LineFile {
  /** Durable when it returns. */
  write(line: object): void;
  close(): void;
}

/** Opens the file for appending; makes it when it is not there. */
export function openLineFile(path: string): LineFile {
  // After a kill the last line may be cut off: what comes next must not become part of it.
  const torn = existsSync(path) && !endsInBreak(readFileSync(path, "utf8"));
  const file = openSync(path, "a");
  if (torn) writeSync(file, "\n");
  return {
    write(line) {
      writeSync(file, `${JSON.stringify(line)}\n`);
      fsyncSync(file);
    },
    close: () => closeSync(file),
  };
}

/** The whole lines of the file; none when it is not there. Throws when a line other than a cut-off one is not JSON. */
export function readLines<T>(path: string): readonly T[] {
  if (!existsSync(path)) return [];
  return readFileSync(path, "utf8")
    .split("\n")
    .flatMap((line) => {
      try {
        return line === "" ? [] : [JSON.parse(line) as T];
      } catch (cause) {
        // Cut off by a kill: it is the beginning of a line, so it has no end.
        if (!line.endsWith("}")) return [];
        throw new Error(`${path} holds a line that is not JSON`, { cause });
      }
    });
}

const endsInBreak = (text: string): boolean => text === "" || text.endsWith("\n");
