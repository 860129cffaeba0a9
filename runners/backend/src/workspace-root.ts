/**
 * Owns the question of where a path lies.
 *
 * Invariants: relative paths start at the root (W10); links are resolved before the check, so a link inside that points
 * outside is outside; the root is made at first use; what is handed out is a real path, with no link left in it.
 * This keeps a well-meaning model where it belongs. It is no wall: `bash` is not confined, and a process that swaps a
 * folder for a link between check and use gets past it.
 */
import { mkdir, realpath, stat } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { showPath } from "./json-budget.js";
import { faultFromSystemError, WorkspaceFault } from "./workspace-fault.js";

/** A place that was found and lies inside the workspace. */
export interface Place {
  /** Real absolute path. */
  readonly real: string;
  /** How the model sees it: relative to the root with `/`, `.` for the root itself; absolute for stored output. */
  readonly shown: string;
}

/** A workspace's root folder, and what else may be read. */
export class WorkspaceRoot {
  readonly #configured: string;
  readonly #alsoReadable: () => string | undefined;
  #real: Promise<string> | undefined;

  /**
   * @param folder the root; relative to the current folder of the process, `~` is the home folder
   * @param alsoReadable gives a folder outside the root whose files may be read too: the one with stored output
   */
  constructor(folder: string, alsoReadable: () => string | undefined = () => undefined) {
    const expanded = folder === "~" || folder.startsWith("~/") ? path.join(homedir(), folder.slice(1)) : folder;
    this.#configured = path.resolve(expanded);
    this.#alsoReadable = alsoReadable;
  }

  /**
   * The root's real path; makes the folder when it is not there.
   * @throws {WorkspaceFault} `workspace_unusable` when it cannot be made or is no folder; the next use tries again
   */
  real(): Promise<string> {
    this.#real ??= this.#open().catch((error: unknown) => {
      this.#real = undefined;
      throw error;
    });
    return this.#real;
  }

  async #open(): Promise<string> {
    try {
      await mkdir(this.#configured, { recursive: true });
      const real = await realpath(this.#configured);
      if (!(await stat(real)).isDirectory()) throw new Error("it is not a folder");
      return real;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new WorkspaceFault("workspace_unusable", `The workspace root ${this.#configured} cannot be used: ${reason}.`, { cause: error });
    }
  }

  /**
   * Finds what is at `requested` and checks that it lies inside.
   * @throws {WorkspaceFault} `not_found`, `outside_workspace`, `permission_denied`
   */
  async find(requested: string): Promise<Place> {
    const root = await this.real();
    const absolute = path.resolve(root, requested);
    let real: string;
    try {
      real = await realpath(absolute);
    } catch (error) {
      // Outside, the answer must not depend on what exists there.
      const known = await this.#nearestReal(absolute);
      const isGoneLog = known === (await this.#realReadable()) && path.dirname(absolute) === known;
      if (!isInside(root, known) && !isGoneLog) throw outside(requested);
      throw faultFromSystemError(error, showPath(requested));
    }
    if (!(await this.#isReadable(root, real))) throw outside(requested);
    return { real, shown: isInside(root, real) ? showRelative(root, real) : showPath(real) };
  }

  /** The real path of the deepest parent that exists. */
  async #nearestReal(absolute: string): Promise<string> {
    for (let folder = path.dirname(absolute); ; folder = path.dirname(folder)) {
      try {
        return await realpath(folder);
      } catch {
        if (folder === path.dirname(folder)) return folder;
      }
    }
  }

  async #isReadable(root: string, real: string): Promise<boolean> {
    if (isInside(root, real)) return true;
    // Only what lies right in it, by its name: the folder itself is not listed, for it holds output of every conversation.
    return path.dirname(real) === (await this.#realReadable());
  }

  async #realReadable(): Promise<string | undefined> {
    const folder = this.#alsoReadable();
    return folder === undefined ? undefined : realpath(folder).catch(() => undefined);
  }
}

function outside(requested: string): WorkspaceFault {
  return new WorkspaceFault(
    "outside_workspace",
    `${showPath(requested)} lies outside the workspace. read, glob and grep stay inside its root; give a path relative to it.`,
  );
}

/** True when `candidate` is `folder` or lies below it; both are absolute and free of `..`. */
export function isInside(folder: string, candidate: string): boolean {
  if (candidate === folder) return true;
  return candidate.startsWith(folder.endsWith(path.sep) ? folder : folder + path.sep);
}

/** `real` relative to `root` with forward slashes; `.` for the root. */
export function showRelative(root: string, real: string): string {
  const relative = path.relative(root, real).split(path.sep).join("/");
  return relative === "" ? "." : showPath(relative);
}
