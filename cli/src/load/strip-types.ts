/**
 * What the module loader does for tool modules, apart from how Node calls it.
 *
 * Owns: stripping the types of TypeScript files, finding `./x.ts` behind `./x.js`, and the CLI's own `@toolrunner/*` packages for
 * modules in folders that have none. Invariant: what Node resolves by itself is never changed.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { transformSync } from "esbuild";

/** A module's text in the form Node takes from a loader. */
export interface LoadedSource {
  readonly format: "module" | "commonjs";
  readonly source: string;
}

/** The JavaScript of a TypeScript file; undefined for anything else. Throws one error that names file, line and fault. */
export function loadTypeScript(url: string): LoadedSource | undefined {
  if (!url.startsWith("file:")) return undefined;
  const path = fileURLToPath(url.replace(/[?#].*$/, ""));
  const extension = /\.(ts|mts|cts|tsx)$/.exec(path)?.[1];
  if (extension === undefined || path.includes("/node_modules/")) return undefined;
  const common = extension === "cts";
  const { code } = transformSync(readFileSync(path, "utf8"), {
    loader: extension === "tsx" ? "tsx" : "ts",
    format: common ? "cjs" : "esm",
    target: "node20",
    sourcemap: "inline",
    sourcefile: path,
    logLevel: "silent",
  });
  return { format: common ? "commonjs" : "module", source: code };
}

/** The file that a relative import means when there is none of exactly that name: `./x.js` and `./x` may be `./x.ts`. */
export function typeScriptSibling(specifier: string, parentUrl: string | undefined): string | undefined {
  if (parentUrl === undefined || !/^\.{0,2}\//.test(specifier) || !parentUrl.startsWith("file:")) return undefined;
  const path = fileURLToPath(new URL(specifier, parentUrl));
  const candidates = [
    ...(/\.[cm]?js$/.test(path) ? [path.replace(/js$/, "ts"), path.replace(/\.js$/, ".tsx")] : []),
    ...["ts", "mts", "cts", "tsx", "js", "mjs"].map((extension) => `${path}.${extension}`),
    `${path}/index.ts`,
  ];
  const found = candidates.find((candidate) => existsSync(candidate) && statSync(candidate).isFile());
  return found === undefined ? undefined : pathToFileURL(found).href;
}

/** Whether the CLI's own copy may stand in for a package that the module's folder does not have. */
export function isOwnPackage(specifier: string): boolean {
  return specifier.startsWith("@toolrunner/");
}

/** Whether Node said that there is no such module. */
export function isNotFound(cause: unknown): boolean {
  return (
    cause instanceof Error &&
    "code" in cause &&
    (cause.code === "ERR_MODULE_NOT_FOUND" || cause.code === "ERR_UNSUPPORTED_DIR_IMPORT" || cause.code === "MODULE_NOT_FOUND")
  );
}
