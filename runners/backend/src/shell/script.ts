/**
 * The script that carries a conversation's shell from one command to the next.
 *
 * Each command gets a shell of its own: it takes over directory and exported variables, runs the command, and writes both
 * down at its end. So a command that kills or replaces its shell cannot harm the next one: what was written down before holds.
 *
 * Invariants: POSIX, so that bash and sh run it alike; one line, so that line numbers in messages are those of the command;
 * a state without its end mark does not count.
 */

/** Most bytes of exported variables that are carried over. */
export const EXPORTS_BYTES = 262_144;

/** What a shell wrote down at its end. */
export interface ShellState {
  readonly directory: string;
  /** Commands that export the variables again. */
  readonly exports: Buffer;
  /** Process id of its last background job; null when there was none. */
  readonly lastJob: number | null;
}

/** Options of `shellScript`. */
export interface ScriptOptions {
  /** File with the exports of the command before; undefined for the first. */
  readonly exportsFile: string | undefined;
  /** File to write the state to. */
  readonly stateFile: string;
  /** Ends the state; not to be guessed. */
  readonly endMark: string;
  /** Variables that mark processes; never carried over. */
  readonly marks: Readonly<Record<string, string>>;
}

/** The script; its first argument is the command. */
export function shellScript(options: ScriptOptions): string {
  const names = Object.keys(options.marks);
  const assignments = Object.entries(options.marks).map(([name, value]) => `${name}=${quote(value)}`);
  return [
    // Before anything else: one stream keeps the order of output and errors.
    "exec 2>&1",
    ...(options.exportsFile === undefined ? [] : [`. ${quote(options.exportsFile)} 2>/dev/null`]),
    `export ${assignments.join(" ")}`,
    `__toolrunner_save() { { set +e +u +x; } 2>/dev/null; { command pwd; command printf '\\0%s\\0' "$!"; unset ${names.join(" ")}; command export -p; command printf '\\0%s' ${quote(options.endMark)}; } 2>/dev/null >|${quote(options.stateFile)}; }`,
    "trap __toolrunner_save EXIT",
    "__toolrunner_command=$1",
    "set --",
    // The space keeps a command that starts with a dash from being taken for an option.
    'eval " $__toolrunner_command"',
    "__toolrunner_status=$?",
    // Also without the trap, which the command may have replaced by its own.
    "__toolrunner_save",
    "exit $__toolrunner_status",
  ].join("; ");
}

/** Reads what the script wrote; undefined when it did not get to its end. */
export function parseShellState(written: Buffer, endMark: string): ShellState | undefined {
  const end = Buffer.from(`\0${endMark}`);
  if (written.length < end.length || !written.subarray(-end.length).equals(end)) return undefined;
  const first = written.indexOf(0);
  const second = written.indexOf(0, first + 1);
  const last = written.length - end.length;
  if (second < 0 || second >= last) return undefined;
  const directory = written.subarray(0, first).toString("utf8").replace(/\n$/, "");
  const job = written.subarray(first + 1, second).toString("latin1");
  return {
    directory,
    exports: Buffer.from(written.subarray(second + 1, last)),
    lastJob: /^\d+$/.test(job) ? Number(job) : null,
  };
}

/** True when a command's last word sends it to the background. */
export function endsInBackground(command: string): boolean {
  return /(?:^|[^&\\>|])&\s*$/.test(command);
}

/** A word of shell that means `text`. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
