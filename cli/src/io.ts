/** What a command may touch of its process. Injected, so that tests can run commands without one. */

/** The process as commands see it. */
export interface CliIo {
  /** Writes to standard output. */
  out(text: string): void;
  /** Writes to standard error. */
  err(text: string): void;
  /** All of standard input as UTF-8. */
  readStdin(): Promise<string>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute path of the current folder. */
  readonly cwd: string;
  /** Calls `listener` for each SIGTERM and SIGINT until the returned function is called. */
  onStopSignal(listener: () => void): () => void;
}

/** Prints one JSON value on a line of standard output. */
export function printJson(io: CliIo, value: unknown): void {
  io.out(`${JSON.stringify(value)}\n`);
}

/** Prints a JSON value for people, on several lines. */
export function printPretty(io: CliIo, value: unknown): void {
  io.out(`${JSON.stringify(value, null, 2)}\n`);
}

/** Prints rows under a heading, columns aligned; says so when there are none. */
export function printTable(io: CliIo, heading: readonly string[], rows: readonly (readonly string[])[]): void {
  if (rows.length === 0) {
    io.out("none\n");
    return;
  }
  const lines = [heading, ...rows].map((row) => row.map(oneLine));
  const widths = heading.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  for (const line of lines) {
    io.out(`${line.map((cell, column) => (column === line.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join("  ")}\n`);
  }
}

/** A text from elsewhere, safe for a terminal: control characters become spaces. */
export function oneLine(text: string): string {
  return text.replace(/\p{Cc}+/gu, " ");
}

/** A text of several lines, safe for a terminal: control characters other than line feed and tab become spaces. */
export function manyLines(text: string): string {
  return text.replace(/\r\n/g, "\n").replace(/\p{Cc}/gu, (character) => (character === "\n" || character === "\t" ? character : " "));
}
