/** Finds the shell that runs commands. */
import { accessSync, constants } from "node:fs";
import path from "node:path";
import { WorkspaceFault } from "../workspace-fault.js";

/** A shell of this machine. */
export interface Shell {
  readonly name: "bash" | "sh";
  /** Absolute path. */
  readonly program: string;
  /** Flags that keep start-up files away. */
  readonly flags: readonly string[];
}

const USUAL_FOLDERS = ["/bin", "/usr/bin", "/usr/local/bin"];

/**
 * bash, else sh.
 * @param searchPath folders to look in, as in PATH; the usual ones come after
 * @throws {WorkspaceFault} `shell_missing`
 */
export function findShell(searchPath: string | undefined): Shell {
  const folders = [...(searchPath ?? "").split(path.delimiter).filter((folder) => path.isAbsolute(folder)), ...USUAL_FOLDERS];
  const bash = findProgram("bash", folders);
  if (bash !== undefined) return { name: "bash", program: bash, flags: ["--noprofile", "--norc"] };
  const sh = findProgram("sh", folders);
  if (sh !== undefined) return { name: "sh", program: sh, flags: [] };
  throw new WorkspaceFault("shell_missing", "The runner's machine has neither bash nor sh; commands cannot be run there.");
}

function findProgram(name: string, folders: readonly string[]): string | undefined {
  return folders
    .map((folder) => path.join(folder, name))
    .find((candidate) => {
      try {
        accessSync(candidate, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}
