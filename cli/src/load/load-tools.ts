/** Loads the module of `toolrunner run`: JavaScript or TypeScript, its default export an array of tools. */
import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { messageOf, startError, usageError } from "../errors.js";
import { registerTypeScript } from "./register-hooks.js";

/**
 * Imports `file` (relative to `cwd`, or a package's module) and returns its default export. Throws a usage fault when there is no such file,
 * a start-up fault when it cannot be loaded or exports something else. Whether each element is a tool is `createRunner`'s to say.
 */
export async function loadTools(file: string, cwd: string): Promise<readonly unknown[]> {
  const url = locate(file, cwd);
  registerTypeScript();
  let exported: unknown;
  try {
    const loaded: { readonly default?: unknown } = await import(url);
    exported = loaded.default;
  } catch (cause) {
    throw startError("module_failed", `${file} cannot be loaded: ${describe(cause)}`, cause);
  }
  if (!Array.isArray(exported)) {
    const found = exported === undefined ? "has no default export" : `exports ${kindOf(exported)} as its default`;
    throw startError("module_invalid", `${file} ${found}: it must export an array of tools, as in \`export default [defineTool({…})]\``);
  }
  if (exported.length === 0) throw startError("module_invalid", `${file} exports an empty array: there is nothing to serve`);
  return exported;
}

/** A file; else a module of a package, of the current folder's or the command's own, such as `@toolrunner/runner-backend/workspace`. */
function locate(file: string, cwd: string): string {
  const path = resolve(cwd, file);
  if (existsSync(path) && statSync(path).isFile()) return pathToFileURL(path).href;
  if (PACKAGE_MODULE.test(file)) {
    try {
      return pathToFileURL(createRequire(join(cwd, "module.js")).resolve(file)).href;
    } catch {
      try {
        return import.meta.resolve(file);
      } catch {
        // Said below, like any file that is not there.
      }
    }
  }
  throw usageError(`there is no file ${path}`);
}

/** `@scope/package`, with a subpath or without. */
const PACKAGE_MODULE = /^@[a-z0-9][\w.-]*\/[a-z0-9][\w.-]*(?:\/[\w./-]+)?$/;

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** esbuild's errors list file, line and text; Node's name the module that is missing. */
function describe(cause: unknown): string {
  if (typeof cause === "object" && cause !== null && "errors" in cause && Array.isArray(cause.errors)) {
    const first: unknown = cause.errors[0];
    if (typeof first === "object" && first !== null && "text" in first) {
      const place =
        "location" in first && typeof first.location === "object" && first.location !== null
          ? (first.location as { line?: number; column?: number })
          : undefined;
      return place === undefined ? String(first.text) : `line ${place.line}, column ${(place.column ?? 0) + 1}: ${String(first.text)}`;
    }
  }
  const name = cause instanceof Error && cause.name !== "Error" ? `${cause.name}: ` : "";
  return `${name}${messageOf(cause)}`;
}
