/** What searches the text of files for `grep`: ripgrep where it is installed, else a built-in search. */

/** Characters over which a matching line is left out. */
export const GREP_COLUMNS = 500;

/** What to look for. */
export interface GrepQuery {
  readonly pattern: string;
  readonly ignoreCase: boolean;
  /** The pattern is plain text, not a regular expression. */
  readonly literal: boolean;
  /** One match in a file is enough. */
  readonly filesOnly: boolean;
}

/** A line that matched, without its line break. */
export interface MatchedLine {
  readonly number: number;
  readonly text: string;
}

/** What matched in one file; there is at least one line or one left out. */
export interface FileMatches {
  /** As it was given to the engine. */
  readonly file: string;
  readonly lines: readonly MatchedLine[];
  /** Matching lines left out for having over `GREP_COLUMNS` characters. */
  readonly longLines: number;
}

/** A way to search. Both read a file up to its first NUL byte, and take none that has a NUL in its first 8,192 bytes. */
export interface GrepEngine {
  readonly name: "ripgrep" | "built-in";
  /** What the model should know about results of this engine; empty for nothing. */
  readonly note: string;
  /**
   * Searches files in the order given; with no files it only checks the pattern.
   * @param files absolute paths of regular files
   * @param lineLimit matching lines of a file after which the rest of it may be left out
   * @throws {WorkspaceFault} `pattern_invalid`
   */
  search(files: readonly string[], query: GrepQuery, lineLimit: number, signal: AbortSignal): AsyncIterable<FileMatches>;
}
