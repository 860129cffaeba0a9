/** What the model is told about the tools: descriptions with their limits, and the schemas of results. */

/** Descriptions by tool name. */
export const DESCRIPTIONS = {
  read: [
    "Read a text file as numbered lines (number, tab, text), or list a folder (folders first).",
    "Paths are relative to the workspace root; reading outside of it is refused.",
    "Limits: 2,000 lines unless limit or view_range says otherwise, 10,000 lines and 60,000 characters a call, lines cut after 500 characters,",
    "and at most what fits into the result's byte budget; next_offset says where to go on.",
    "A file over 262,144 bytes needs a range. A folder lists 500 entries a call.",
    "UTF-8 text only: binary files, images, PDFs and notebooks are refused.",
    "log_file of a bash result can be read too.",
  ].join(" "),
  glob: [
    "Find files by name pattern, the newest first, at most 100; paths are relative to the workspace root.",
    "* and ? stay inside a name, ** spans folders, [a-z] and {a,b} work; a pattern without / matches at any depth.",
    "Searches from the workspace root or from path, not from the shell's directory. Files that .gitignore names are left out unless include_ignored; .git always is.",
  ].join(" "),
  grep: [
    "Search the text of files with a regular expression, line by line: output lines are path:line:text.",
    "At most 250 lines a call, and what fits into the result's byte budget; next_offset says where to go on. Matching lines over 500 characters are left out and counted.",
    "Searches from the workspace root or from path, not from the shell's directory. Binary files are skipped; files that .gitignore names too, unless include_ignored; .git always is.",
    "Uses ripgrep where it is installed, else a built-in search with JavaScript regular expressions, which says so. A search ends after 30 s.",
  ].join(" "),
  bash: [
    "Run a command in a lasting shell (bash, else sh): directory and exported variables carry over to the next command of the conversation, nothing else does.",
    "It starts in the workspace root. Commands of one conversation run one after the other. A non-zero exit code is a result, not an error.",
    "Limits: time-out 120,000 ms by default, 600,000 at most, then all processes of the command are ended and exit_code is 124;",
    "output over 30,000 characters, or over the result's byte budget, keeps head and tail, and log_file holds the whole (its first 64 MiB), to be read with read.",
    "No standard input, no pager, no colour. End a command with & to leave it in the background: the answer names process_id and log_file; it ends with the runner at the latest.",
    "workdir holds for one command. restart clears directory, exported variables and logs, and ends no process.",
  ].join(" "),
} as const;

const notes = { type: "array", items: { type: "string" }, description: "What was cut or left out, and how to get it." } as const;

/** Schema of `ReadResult`. */
export const readOutput = {
  type: "object",
  properties: {
    kind: { type: "string", enum: ["file", "folder"] },
    text: { type: "string", description: "File: lines as number, tab, text. Folder: one entry a line, folders end in /." },
    first: { type: "integer", description: "Number of the first line or entry shown; 0 when there is none." },
    last: { type: "integer", description: "Number of the last one shown; 0 when there is none." },
    total: { type: ["integer", "null"], description: "Lines or entries in all; null when the end was not reached." },
    next_offset: { type: ["integer", "null"], description: "offset to go on with; null at the end." },
    notes,
  },
  required: ["kind", "text", "first", "last", "total", "next_offset", "notes"],
  additionalProperties: false,
} as const;

/** Schema of `GlobResult`. */
export const globOutput = {
  type: "object",
  properties: {
    text: { type: "string", description: "One path a line, the newest first." },
    shown: { type: "integer", description: "Paths in text." },
    matched: { type: "integer", description: "Files that matched in all." },
    notes,
  },
  required: ["text", "shown", "matched", "notes"],
  additionalProperties: false,
} as const;

/** Schema of `GrepResult`. */
export const grepOutput = {
  type: "object",
  properties: {
    text: { type: "string", description: "path:line:text, or a path, on each line." },
    shown: { type: "integer", description: "Lines in text." },
    next_offset: { type: ["integer", "null"], description: "offset to go on with; null when there is no more." },
    engine: { type: "string", enum: ["ripgrep", "built-in"] },
    notes,
  },
  required: ["text", "shown", "next_offset", "engine", "notes"],
  additionalProperties: false,
} as const;

/** Schema of `BashResult`. */
export const bashOutput = {
  type: "object",
  properties: {
    output: { type: "string", description: "What was printed, errors included, in the order of printing." },
    exit_code: { type: "integer", description: "124 when time ran out; 128 and the signal's number when a signal ended the shell." },
    duration_ms: { type: "integer" },
    timed_out: { type: "boolean" },
    directory: { type: "string", description: "The shell's directory after the command." },
    log_file: { type: ["string", "null"], description: "File with the whole output, where it is cut or goes on in the background." },
    process_id: { type: ["integer", "null"], description: "Process id of a job left in the background." },
    notes,
  },
  required: ["output", "exit_code", "duration_ms", "timed_out", "directory", "log_file", "process_id", "notes"],
  additionalProperties: false,
} as const;
