/**
 * The toolset `workspace` as tools of the runner SDK.
 *
 * Owns the joints: what the model is told about each tool, and how a workspace's parts find one another. The only module here
 * that knows the SDK.
 */
import { defineTool, type Tool, ToolError } from "@toolrunner/runner-sdk";
import { Arguments } from "./arguments.js";
import { read } from "./files/read.js";
import { MAX_LINES } from "./files/read-file.js";
import { builtInEngine } from "./search/built-in-grep.js";
import { glob } from "./search/glob.js";
import { GREP_MAX_OFFSET, grep } from "./search/grep.js";
import type { GrepEngine } from "./search/grep-engine.js";
import { hasRipgrep, ripgrepEngine } from "./search/ripgrep.js";
import { DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS, ShellPool } from "./shell/shell-pool.js";
import { clearAbandoned, StateFolder } from "./shell/state-folder.js";
import { bashOutput, DESCRIPTIONS, globOutput, grepOutput, readOutput } from "./tool-texts.js";
import { faultFromSystemError, systemErrorCode, WorkspaceFault } from "./workspace-fault.js";
import { WorkspaceRoot } from "./workspace-root.js";

/** Largest and default `maxResultContextBytes`. */
export const RESULT_CONTEXT_BYTES = 32_768;
/** Smallest `maxResultContextBytes`. */
export const MIN_RESULT_CONTEXT_BYTES = 1_024;

/** Options of `workspaceTools` and `createWorkspace`. */
export interface WorkspaceOptions {
  /** Root folder; made at first use. Relative to the current folder of the process; `~` is the home folder. */
  readonly root: string;
  /** Bytes of a result, as compact JSON, that each tool pages to: 1,024–32,768; 32,768 by default. */
  readonly maxResultContextBytes?: number;
  /** The ripgrep to use, a name looked up in PATH or a path; "rg" by default, null for the built-in search. */
  readonly ripgrep?: string | null;
  /** Variables that commands start with; those of the process by default. Names that start with `TOOLRUNNER_` are left out. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

/** A workspace and its tools. */
export interface Workspace {
  /** `read`, `glob`, `grep` and `bash`. */
  readonly tools: readonly Tool[];
  /** Kills what its commands left running, and removes their logs; `bash` is refused from then on. Done by itself when the process exits. */
  close(): void;
}

/**
 * The tools `read`, `glob`, `grep` and `bash` on a folder.
 * @throws {RangeError} for a `maxResultContextBytes` out of bounds
 */
export function workspaceTools(options: WorkspaceOptions): Tool[] {
  return [...createWorkspace(options).tools];
}

/**
 * The same tools with a `close` for programs that live longer than their workspace. Ends what runners of this user left running
 * when they were killed.
 * @throws {RangeError} for a `maxResultContextBytes` out of bounds
 */
export function createWorkspace(options: WorkspaceOptions): Workspace {
  const budgetBytes = options.maxResultContextBytes ?? RESULT_CONTEXT_BYTES;
  if (!Number.isInteger(budgetBytes) || budgetBytes < MIN_RESULT_CONTEXT_BYTES || budgetBytes > RESULT_CONTEXT_BYTES) {
    throw new RangeError(
      `maxResultContextBytes is ${budgetBytes}; it must be an integer from ${MIN_RESULT_CONTEXT_BYTES} to ${RESULT_CONTEXT_BYTES}.`,
    );
  }
  clearAbandoned();
  let folder: StateFolder | undefined;
  let isClosed = false;
  let engine: GrepEngine | undefined;
  const stateFolder = (): StateFolder => {
    if (isClosed) throw new WorkspaceFault("workspace_unusable", "The workspace is closed; make another one.");
    folder ??= openStateFolder();
    return folder;
  };
  const root = new WorkspaceRoot(options.root, () => (folder === undefined ? undefined : `${folder.path}/logs`));
  const shells = new ShellPool(root, stateFolder, () => options.environment ?? process.env);
  const common = { version: "1", maxResultContextBytes: budgetBytes, cancellable: true } as const;
  const reading = { ...common, behaviour: "read_only", idempotent: true } as const;
  const path = { type: "string", maxLength: 4096 } as const;

  const tools: Tool[] = [
    defineTool({
      ...reading,
      name: "read",
      description: DESCRIPTIONS.read,
      timeoutSeconds: 120,
      input: {
        type: "object",
        properties: {
          path: { ...path, description: "File or folder, relative to the workspace root." },
          offset: { type: "integer", minimum: 1, description: "First line (of a folder: entry), from 1." },
          limit: { type: "integer", minimum: 1, maximum: MAX_LINES, description: "Most lines; 2000 by default." },
          view_range: {
            type: "array",
            items: { type: "integer" },
            minItems: 2,
            maxItems: 2,
            description: "First and last line instead of offset and limit; a last line of 0 or less means to the end.",
          },
        },
        required: ["path"],
        additionalProperties: false,
      },
      output: readOutput,
      run: (args, ctx) => answering("path", args, (values) => read(root, values, budgetBytes, ctx.signal)),
    }),
    defineTool({
      ...reading,
      name: "glob",
      description: DESCRIPTIONS.glob,
      timeoutSeconds: 120,
      input: {
        type: "object",
        properties: {
          pattern: { type: "string", minLength: 1, maxLength: 1024, description: "Such as **/*.ts or src/{a,b}/*.json." },
          path: { ...path, description: "Folder to search, relative to the workspace root; the root by default." },
          include_ignored: { type: "boolean", description: "Take files that .gitignore leaves out; false by default." },
        },
        required: ["pattern"],
        additionalProperties: false,
      },
      output: globOutput,
      run: (args, ctx) => answering("path", args, (values) => glob(root, values, budgetBytes, ctx.signal)),
    }),
    defineTool({
      ...reading,
      name: "grep",
      description: DESCRIPTIONS.grep,
      timeoutSeconds: 120,
      input: {
        type: "object",
        properties: {
          pattern: { type: "string", minLength: 1, maxLength: 4096, description: "Regular expression, matched line by line." },
          path: { ...path, description: "File or folder to search, relative to the workspace root; the root by default." },
          glob: { type: "string", maxLength: 1024, description: "Only files whose path matches, such as *.ts." },
          ignore_case: { type: "boolean", description: "Upper and lower case are the same; false by default." },
          literal: { type: "boolean", description: "The pattern is plain text; false by default." },
          output: { type: "string", enum: ["lines", "files"], description: "Matching lines (default), or only the names of their files." },
          offset: {
            type: "integer",
            minimum: 0,
            maximum: GREP_MAX_OFFSET,
            description: "Output lines to skip; next_offset of the page before.",
          },
          include_ignored: { type: "boolean", description: "Search files that .gitignore leaves out; false by default." },
        },
        required: ["pattern"],
        additionalProperties: false,
      },
      output: grepOutput,
      run: (args, ctx) => {
        engine ??= chooseEngine(options.ripgrep);
        const grepOptions = { engine, budgetBytes, signal: ctx.signal };
        return answering("path", args, (values) => grep(root, values, grepOptions));
      },
    }),
    defineTool({
      ...common,
      name: "bash",
      description: DESCRIPTIONS.bash,
      behaviour: "write",
      idempotent: false,
      timeoutSeconds: 900,
      input: {
        type: "object",
        properties: {
          command: { type: "string", minLength: 1, description: "What to run; 120,000 bytes at most. May be left out with restart." },
          timeout_ms: {
            type: "integer",
            minimum: 1,
            maximum: MAX_TIMEOUT_MS,
            description: "Time-out in milliseconds; 120000 by default, 600000 at most.",
          },
          workdir: {
            ...path,
            description: "Directory for this command only, relative to the workspace root; the shell's directory by default.",
          },
          restart: { type: "boolean", description: "First clear the shell's directory, exported variables and logs; ends no process." },
        },
        additionalProperties: false,
      },
      output: bashOutput,
      run: (args, ctx) =>
        answering("workdir", args, (values) =>
          shells.run({
            conversation: conversationOf(ctx.grant.session, ctx.subject),
            grantId: ctx.grant.grantId,
            command: values.string("command"),
            timeoutMs: values.integer("timeout_ms", 1, MAX_TIMEOUT_MS) ?? DEFAULT_TIMEOUT_MS,
            workdir: values.path("workdir"),
            restart: values.boolean("restart"),
            budgetBytes,
            signal: ctx.signal,
            onProgress: (text) => ctx.progress({ text }),
          }),
        ),
    }),
  ];
  return {
    tools,
    close: () => {
      isClosed = true;
      folder?.close();
    },
  };
}

/** Whose shell a call uses: the agent session's, else the subject's, else one for all. */
function conversationOf(session: string, subject: string): string {
  if (session !== "") return `session ${session}`;
  return subject !== "" ? `subject ${subject}` : "default";
}

function chooseEngine(ripgrep: string | null | undefined): GrepEngine {
  const command = ripgrep === undefined ? "rg" : ripgrep;
  return command !== null && hasRipgrep(command) ? ripgrepEngine(command) : builtInEngine();
}

function openStateFolder(): StateFolder {
  try {
    return new StateFolder();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new WorkspaceFault("workspace_unusable", `The runner's folder for temporary files cannot be used: ${reason}.`, { cause: error });
  }
}

/** Runs a tool on its arguments; faults leave as errors of the SDK. What the file system threw unasked is named after the path argument. */
async function answering<Result>(pathName: string, given: unknown, work: (values: Arguments) => Promise<Result>): Promise<Result> {
  try {
    return await work(new Arguments(given));
  } catch (error) {
    if (!(error instanceof WorkspaceFault) && systemErrorCode(error) === undefined) throw error;
    const fault = faultFromSystemError(error, shownArgument(given, pathName));
    throw new ToolError(fault.code, fault.message, { cause: fault });
  }
}

function shownArgument(given: unknown, name: string): string {
  const value: unknown = typeof given === "object" && given !== null ? Object.entries(given).find(([key]) => key === name)?.[1] : undefined;
  return typeof value === "string" && value !== "" ? value : "the workspace";
}
