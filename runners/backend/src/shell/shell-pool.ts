/**
 * The tool `bash` (W6) without its wrapping: one lasting shell for each conversation.
 *
 * Invariants: commands of one conversation run one after the other, in the order of their calls, and those of different ones
 * side by side; directory and exported variables carry over, nothing else does; the runner's own credentials (every variable
 * whose name starts with TOOLRUNNER_) never reach a command.
 */
import { randomBytes } from "node:crypto";
import { mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { GRANT_MARK, processStat } from "@toolrunner/runner-sdk/node";
import { shortenedTo, showPath } from "../json-budget.js";
import { systemErrorCode, WorkspaceFault } from "../workspace-fault.js";
import type { WorkspaceRoot } from "../workspace-root.js";
import { type CommandEnd, runCommand } from "./command.js";
import { LogStore } from "./log-store.js";
import { OutputCollector } from "./output.js";
import { EXPORTS_BYTES, endsInBackground, parseShellState, type ShellState, shellScript } from "./script.js";
import { findShell, type Shell } from "./shell.js";
import type { StateFolder } from "./state-folder.js";
import { WORKSPACE_MARK } from "./state-folder.js";

/** Time-out of a command that names none. */
export const DEFAULT_TIMEOUT_MS = 120_000;
/** Longest time-out. */
export const MAX_TIMEOUT_MS = 600_000;
/** Longest command, in UTF-8 bytes: the operating system takes no longer argument. */
export const COMMAND_BYTES = 120_000;
/** Conversations whose shells are kept; the one unused for longest is forgotten first. */
export const SHELLS = 500;

/** Bytes that the directory takes in a result at most, so that the smallest budget holds. */
const DIRECTORY_BYTES = 256;
const PROGRESS_EVERY_MS = 2_000;
const PROGRESS_CHARACTERS = 500;

/** Answer of `bash`. */
export interface BashResult {
  /** What was printed, errors included, in the order of printing. */
  readonly output: string;
  /** Exit code; 124 when time ran out, 128 and the signal's number when a signal ended it. */
  readonly exit_code: number;
  readonly duration_ms: number;
  readonly timed_out: boolean;
  /** The shell's directory after the command; of a long one, its end. */
  readonly directory: string;
  /** File with the whole output, where it is cut or goes on in the background; else null. */
  readonly log_file: string | null;
  /** Process id of the job left in the background; else null. */
  readonly process_id: number | null;
  readonly notes: readonly string[];
}

/** One call of `bash`. */
export interface BashRequest {
  /** Whose shell it is. */
  readonly conversation: string;
  readonly grantId: string;
  readonly command: string | undefined;
  readonly timeoutMs: number;
  readonly workdir: string | undefined;
  readonly restart: boolean;
  /** Most bytes of the compact JSON of the result. */
  readonly budgetBytes: number;
  readonly signal: AbortSignal;
  /** Gets the end of the output now and then while the command runs. */
  readonly onProgress: (text: string) => void;
}

interface ShellSession {
  /** Undefined: the workspace root. */
  directory: string | undefined;
  exports: Buffer | undefined;
  /** Resolves when the calls so far are through. */
  turn: Promise<void>;
  waiting: number;
}

/** The shells of one workspace. */
export class ShellPool {
  readonly #root: WorkspaceRoot;
  readonly #folder: () => StateFolder;
  readonly #environment: () => Readonly<Record<string, string | undefined>>;
  readonly #sessions = new Map<string, ShellSession>();
  #logs: LogStore | undefined;
  #shell: Shell | undefined;

  /**
   * @param folder gives the workspace's state folder, made at first use
   * @param environment variables that a first command starts with
   */
  constructor(root: WorkspaceRoot, folder: () => StateFolder, environment: () => Readonly<Record<string, string | undefined>>) {
    this.#root = root;
    this.#folder = folder;
    this.#environment = environment;
  }

  /**
   * Runs a command in its conversation's shell, when its turn comes.
   * @throws {WorkspaceFault} `arguments_invalid`, `command_too_long`, `not_found` (workdir), `shell_missing`; the reason of `signal` when that aborts
   */
  async run(request: BashRequest): Promise<BashResult> {
    const { command } = request;
    if (command === undefined && !request.restart) throw new WorkspaceFault("arguments_invalid", "Give a command, or restart.");
    if (command?.includes("\0") === true) throw new WorkspaceFault("arguments_invalid", "A command holds no NUL characters.");
    const bytes = Buffer.byteLength(command ?? "");
    if (bytes > COMMAND_BYTES) {
      throw new WorkspaceFault(
        "command_too_long",
        `The command has ${bytes} bytes; ${COMMAND_BYTES} at most. Put it into a file in parts and run that.`,
      );
    }
    const session = this.#session(request.conversation);
    const before = session.turn;
    let leave: () => void = () => {};
    const gate = new Promise<void>((resolve) => {
      leave = resolve;
    });
    // Who gives up waiting must not let the next one past those before it.
    session.turn = Promise.all([before, gate]).then(() => undefined);
    session.waiting += 1;
    try {
      await untilAborted(before, request.signal);
      if (request.restart) await this.#restart(request.conversation, session);
      return command === undefined ? await this.#restarted() : await this.#runNow(command, request, session);
    } finally {
      session.waiting -= 1;
      leave();
    }
  }

  #session(conversation: string): ShellSession {
    const known = this.#sessions.get(conversation);
    const session = known ?? { directory: undefined, exports: undefined, turn: Promise.resolve(), waiting: 0 };
    // Last in the map is the one used last.
    this.#sessions.delete(conversation);
    this.#sessions.set(conversation, session);
    for (const [key, candidate] of this.#sessions) {
      if (this.#sessions.size <= SHELLS) break;
      if (candidate.waiting === 0 && candidate !== session) this.#sessions.delete(key);
    }
    return session;
  }

  #logStore(): LogStore {
    this.#logs ??= new LogStore(path.join(this.#folder().path, "logs"));
    return this.#logs;
  }

  async #restart(conversation: string, session: ShellSession): Promise<void> {
    session.directory = undefined;
    session.exports = undefined;
    await this.#logStore().clear(conversation);
  }

  async #restarted(): Promise<BashResult> {
    return {
      output: "",
      exit_code: 0,
      duration_ms: 0,
      timed_out: false,
      directory: shortenedTo(await this.#root.real(), DIRECTORY_BYTES),
      log_file: null,
      process_id: null,
      notes: ["The shell was restarted: directory, exported variables and logs are cleared. No process was ended."],
    };
  }

  async #runNow(command: string, request: BashRequest, session: ShellSession): Promise<BashResult> {
    const notes: string[] = [];
    const directory = await this.#startDirectory(request.workdir, session, notes);
    this.#shell ??= findShell(this.#environment().PATH);
    const shell = this.#shell;
    const folder = this.#folder();
    const scratch = path.join(folder.path, `shell-${randomBytes(8).toString("hex")}`);
    const endMark = randomBytes(16).toString("hex");
    const stateFile = path.join(scratch, "state");
    const marks = { [GRANT_MARK]: request.grantId, [WORKSPACE_MARK]: folder.mark.value };
    const output = new OutputCollector(this.#logStore(), request.conversation);
    const progress = this.#reportProgress(output, request.onProgress);
    const started = performance.now();
    try {
      await mkdir(scratch, { recursive: true, mode: 0o700 });
      const exportsFile = session.exports === undefined ? undefined : path.join(scratch, "exports");
      if (exportsFile !== undefined && session.exports !== undefined) await writeFile(exportsFile, session.exports, { mode: 0o600 });
      const script = shellScript({ exportsFile, stateFile, endMark, marks });
      const end = await runCommand(
        {
          program: shell.program,
          args: [...shell.flags, "-c", script, shell.name, command],
          directory,
          environment: { ...(session.exports === undefined ? this.#firstEnvironment() : {}), ...marks, PWD: directory },
          mark: { name: GRANT_MARK, value: request.grantId },
        },
        output,
        request.timeoutMs,
        request.signal,
      );
      const durationMs = Math.round(performance.now() - started);
      const state = await readState(stateFile, endMark);
      this.#remember(session, state, request.workdir !== undefined, notes);
      return await this.#result({ command, request, session, end, state, output, durationMs, notes });
    } catch (error) {
      await output.close();
      if (request.signal.aborted || error instanceof WorkspaceFault) throw error;
      throw new WorkspaceFault("io_error", `The command could not be started: ${error instanceof Error ? error.message : String(error)}.`, {
        cause: error,
      });
    } finally {
      clearInterval(progress);
      await rm(scratch, { recursive: true, force: true });
    }
  }

  /** The workspace root, the directory of the command before, or the one asked for. */
  async #startDirectory(workdir: string | undefined, session: ShellSession, notes: string[]): Promise<string> {
    const root = await this.#root.real();
    if (workdir !== undefined) {
      const wanted = path.resolve(root, workdir);
      if (await isFolder(wanted)) return wanted;
      throw new WorkspaceFault("not_found", `workdir ${showPath(workdir)} is not a folder; relative ones start at the workspace root.`);
    }
    if (session.directory === undefined) return root;
    if (await isFolder(session.directory)) return session.directory;
    notes.push(`The shell's directory ${shortenedTo(session.directory, DIRECTORY_BYTES)} is gone; the command ran in the workspace root.`);
    session.directory = undefined;
    return root;
  }

  #firstEnvironment(): Record<string, string> {
    const environment: Record<string, string> = {};
    for (const [name, value] of Object.entries(this.#environment())) {
      // BASH_ENV and ENV name files that a shell runs at its start, before it could be told anything.
      const isKeptBack = name.startsWith("TOOLRUNNER_") || name === "BASH_ENV" || name === "ENV" || name === "OLDPWD";
      if (value !== undefined && !isKeptBack) environment[name] = value;
    }
    return { ...environment, PAGER: "cat", GIT_PAGER: "cat", NO_COLOR: "1", TERM: "dumb", GIT_TERMINAL_PROMPT: "0" };
  }

  #remember(session: ShellSession, state: ShellState | undefined, hadWorkdir: boolean, notes: string[]): void {
    if (state === undefined) {
      notes.push("The shell ended before it could write down its state: directory and variables are those from before the command.");
      return;
    }
    if (!hadWorkdir && state.directory !== "") session.directory = state.directory;
    if (state.exports.length <= EXPORTS_BYTES) session.exports = state.exports;
    else
      notes.push(
        `The exported variables take ${state.exports.length} bytes, over ${EXPORTS_BYTES}; those from before the command are kept.`,
      );
  }

  async #result(done: {
    readonly command: string;
    readonly request: BashRequest;
    readonly session: ShellSession;
    readonly end: CommandEnd;
    readonly state: ShellState | undefined;
    readonly output: OutputCollector;
    readonly durationMs: number;
    readonly notes: readonly string[];
  }): Promise<BashResult> {
    const { command, request, session, end, state, output } = done;
    const root = await this.#root.real();
    const job = state?.lastJob ?? null;
    const isJobLeft = job !== null && (endsInBackground(command) || processStat(job) !== undefined);
    if (isJobLeft || end.printsOn) await output.keepLog();
    const result = await output.show(request.budgetBytes, (shown) => ({
      output: shown.text,
      exit_code: end.exitCode,
      duration_ms: done.durationMs,
      timed_out: end.timedOut,
      directory: shortenedTo(session.directory ?? root, DIRECTORY_BYTES),
      log_file: shown.logFile ?? (isJobLeft || end.printsOn ? output.logFile : null),
      process_id: isJobLeft ? job : null,
      notes: [
        ...done.notes,
        ...shown.notes,
        ...(end.timedOut ? [`The command took longer than ${request.timeoutMs} ms; all its processes were ended.`] : []),
        ...(end.isGone ? [] : ["Some of its processes did not end when killed."]),
        ...(isJobLeft
          ? ["A job goes on in the background until it ends, is killed, or the runner ends; log_file gets what it prints."]
          : []),
      ],
    }));
    if (end.printsOn) void end.outputEnded.then(() => output.close());
    else await output.close();
    return result;
  }

  #reportProgress(output: OutputCollector, onProgress: (text: string) => void): NodeJS.Timeout {
    let reported = 0;
    return setInterval(() => {
      if (output.totalBytes === reported) return;
      reported = output.totalBytes;
      onProgress(output.latest(PROGRESS_CHARACTERS));
    }, PROGRESS_EVERY_MS);
  }
}

async function readState(file: string, endMark: string): Promise<ShellState | undefined> {
  try {
    return parseShellState(await readFile(file), endMark);
  } catch (error) {
    if (systemErrorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

async function isFolder(folder: string): Promise<boolean> {
  return stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

/** Waits for `promise`; throws the reason of `signal` as soon as that aborts. */
async function untilAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  let onAbort: () => void = () => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
