/** What tests of the command line look for. */
import { stat } from "node:fs/promises";
import { createServer } from "node:net";
import { expect } from "vitest";
import type { Ended } from "./toolrunner-process.js";

/** The one error object that a command with `--json` leaves on standard error. */
export function errorOf({ stdout, stderr }: Ended): { readonly type: string; readonly code: string; readonly message: string } {
  expect(stdout).toBe("");
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  const body: { readonly type: string; readonly error: { readonly type: string; readonly code: string; readonly message: string } } =
    JSON.parse(stderr);
  expect(body.type).toBe("error");
  return body.error;
}

/** Resolves when the file is there: the signal that a handler has begun. */
export async function appears(path: string): Promise<void> {
  const until = performance.now() + 10_000;
  while (!(await stat(path).catch(() => undefined))) {
    if (performance.now() > until) throw new Error(`${path} did not appear`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A port that nobody listens on now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}
