/** Why a workspace tool refused or failed; the model reads `code` and `message`. */
export type WorkspaceFaultCode =
  | "arguments_invalid"
  | "binary_file"
  | "command_too_long"
  | "file_kind_unsupported"
  | "io_error"
  | "not_a_file"
  | "not_found"
  | "outside_workspace"
  | "pattern_invalid"
  | "permission_denied"
  | "range_invalid"
  | "range_needed"
  | "search_timed_out"
  | "shell_missing"
  | "workspace_unusable";

/** A refusal of a workspace tool. It becomes the SDK's `ToolError` in one place, `workspace-tools.ts`. */
export class WorkspaceFault extends Error {
  override readonly name = "WorkspaceFault";

  /**
   * @param code what kind of fault it is
   * @param message what was wrong, where, and what to do instead
   */
  constructor(
    readonly code: WorkspaceFaultCode,
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
  }
}

/** The `code` of a Node system error such as `ENOENT`; undefined for anything else. */
export function systemErrorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

/**
 * Turns a failed file operation into a fault that says what to do.
 * @param error what the operation threw; a `WorkspaceFault` is passed on as it is
 * @param shown the path as the model knows it
 */
export function faultFromSystemError(error: unknown, shown: string): WorkspaceFault {
  if (error instanceof WorkspaceFault) return error;
  const code = systemErrorCode(error);
  switch (code) {
    case "ENOENT":
    case "ENOTDIR":
      return new WorkspaceFault("not_found", `There is nothing at ${shown}. List its folder with read, or look for it with glob.`, {
        cause: error,
      });
    case "EACCES":
    case "EPERM":
      return new WorkspaceFault("permission_denied", `The runner's user may not read ${shown}.`, { cause: error });
    case "ELOOP":
      return new WorkspaceFault("not_found", `${shown} leads through a loop of symbolic links.`, { cause: error });
    case "ENAMETOOLONG":
      return new WorkspaceFault("arguments_invalid", `The path ${shown.slice(0, 80)}… is too long for the file system.`, { cause: error });
    default:
      return new WorkspaceFault("io_error", `${shown} could not be read: ${code ?? String(error)}.`, { cause: error });
  }
}
