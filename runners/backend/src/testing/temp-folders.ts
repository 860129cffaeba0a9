/** Real temporary folders for tests. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach } from "vitest";

/** A fresh folder, removed after the test; its path has no links in it. */
export type MakeFolder = () => string;

/** Call once at the top of a test file. */
export function useFolders(): MakeFolder {
  const made: string[] = [];
  afterEach(() => {
    for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
  });
  return () => {
    const folder = mkdtempSync(path.join(tmpdir(), "toolrunner-test-"));
    made.push(folder);
    return folder;
  };
}

/** Writes files by relative path, with their folders. */
export function writeTree(folder: string, files: Readonly<Record<string, string | Uint8Array>>): void {
  for (const [name, content] of Object.entries(files)) {
    const file = path.join(folder, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
}

/** Resolves when `condition` holds; throws with `what` after `deadlineMs`. */
export async function until(condition: () => boolean, what: string, deadlineMs = 10_000): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`${what} did not happen within ${deadlineMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A signal that never aborts. */
export function noAbort(): AbortSignal {
  return new AbortController().signal;
}

/** Runs `work` as a user whom permissions stop: root, whom they do not, becomes nobody meanwhile. */
export async function asNobody(work: () => Promise<void>): Promise<void> {
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid?.(65_534);
  try {
    await work();
  } finally {
    if (isRoot) process.seteuid?.(0);
  }
}
