/**
 * `dev.json`: what `toolrunner dev` leaves in its data folder, so that a first call needs nothing copied.
 *
 * Invariants: it holds secrets and is readable by its owner only (mode 0600, also when an older file was open to others);
 * it is replaced whole, so that a reader never sees half of it; keys outlive the broker, so that a restart does not lock its clients out.
 */
import { chmod, mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { messageOf, startError } from "../errors.js";

/** Name of the data folder when none is given, relative to the current folder. */
export const DATA_FOLDER = ".toolrunner";

/** The content of `dev.json`. */
export interface DevFile {
  readonly http: string;
  readonly ws: string;
  readonly grpc: string | null;
  readonly agent_key: string;
  readonly runner_token: string;
  /** Process id of the broker that wrote it. */
  readonly pid: number;
}

/** Path of the file in a data folder. */
export function devFilePath(dataFolder: string): string {
  return join(dataFolder, "dev.json");
}

/** Reads it; undefined when there is none or it is not one. */
export async function readDevFile(dataFolder: string): Promise<DevFile | undefined> {
  let text: string;
  try {
    text = await readFile(devFilePath(dataFolder), "utf8");
  } catch {
    return undefined;
  }
  try {
    const value: unknown = JSON.parse(text);
    return isDevFile(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Writes it; makes the folder when there is none. Throws a start-up fault when it cannot. */
export async function writeDevFile(dataFolder: string, content: DevFile): Promise<void> {
  const path = devFilePath(dataFolder);
  const draft = `${path}.${process.pid}`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await rm(draft, { force: true });
    const file = await open(draft, "wx", 0o600);
    try {
      await file.writeFile(`${JSON.stringify(content, null, 2)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await chmod(draft, 0o600);
    await rename(draft, path);
  } catch (cause) {
    throw startError("data_unwritable", `${path} cannot be written (${messageOf(cause)}): choose another folder with --data`, cause);
  }
}

function isDevFile(value: unknown): value is DevFile {
  if (typeof value !== "object" || value === null) return false;
  const file = value as { readonly [field: string]: unknown };
  return (
    ["http", "ws", "agent_key", "runner_token"].every((field) => typeof file[field] === "string" && file[field] !== "") &&
    (file["grpc"] === null || typeof file["grpc"] === "string")
  );
}
