/** The sources of the repository, or a planted tree, in the form that the rules are checked on. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type ScannedSource, scanSource } from "./scan-source.js";

/** A file. `path` is relative to the root, with forward slashes. */
export interface SourceFile extends ScannedSource {
  readonly path: string;
  readonly text: string;
}

/** What a package's manifest says, as far as rules need it. */
export interface PackageFacts {
  readonly name: string;
  /** Relative to the root. */
  readonly folder: string;
  /** Subpath (`.`, `./node`) to the path of its source, relative to the root. */
  readonly exports: ReadonlyMap<string, string>;
  readonly dependencies: ReadonlySet<string>;
  /** Of the package and of the root: for tests only. */
  readonly devDependencies: ReadonlySet<string>;
}

/** Everything that the rules look at. */
export interface SourceTree {
  readonly files: readonly SourceFile[];
  readonly packages: readonly PackageFacts[];
}

/** A place where one file names another of the tree. */
export interface Edge {
  readonly from: SourceFile;
  readonly to: SourceFile;
  readonly line: number;
}

interface Manifest {
  readonly name: string;
  readonly workspaces?: readonly string[];
  readonly exports?: Readonly<Record<string, string | Readonly<Record<string, string>>>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

/** Builds a tree from file contents by path: manifests (`x/package.json`, and `package.json` with its workspaces) and sources. */
export function treeOf(contents: Readonly<Record<string, string>>): SourceTree {
  const manifest = (path: string): Manifest => JSON.parse(contents[path] ?? "{}");
  const root = manifest("package.json");
  const packages = (root.workspaces ?? []).map((folder) => factsOf(manifest(`${folder}/package.json`), folder, root));
  const files = Object.entries(contents)
    .filter(([path]) => SOURCE.test(path))
    .map(([path, text]) => ({ path, text, ...scanSource(text) }));
  return { files, packages };
}

const SOURCE = /\.(ts|tsx|mts|cts|js|mjs|cjs)$/;

function factsOf(manifest: Manifest, folder: string, root: Manifest): PackageFacts {
  const exports = Object.entries(manifest.exports ?? {}).map(([subpath, target]): [string, string] => {
    const built = typeof target === "string" ? target : (target["default"] ?? "");
    return [subpath, `${folder}/${built.replace(/^\.\/dist\//, "src/").replace(/\.js$/, ".ts")}`];
  });
  return {
    name: manifest.name,
    folder,
    exports: new Map(exports),
    dependencies: new Set(Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies })),
    devDependencies: new Set(Object.keys({ ...manifest.devDependencies, ...root.devDependencies })),
  };
}

/** Reads the repository: what git would track, without what is generated at build or install time. */
export function readTree(root: string): SourceTree {
  return treeOf(readContents(root, (path) => SOURCE.test(path) || path.endsWith("package.json")));
}

/** Contents by path of all files of a folder that `wanted` names, skipping what is built, installed or cached. */
export function readContents(root: string, wanted: (path: string) => boolean): Record<string, string> {
  const contents: Record<string, string> = {};
  const walk = (folder: string): void => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
      if (entry.isDirectory()) {
        if (!NOT_OURS.has(entry.name)) walk(path);
      } else if (entry.isFile() && wanted(path)) contents[path] = readFileSync(join(root, path), "utf8");
    }
  };
  walk("");
  return contents;
}

const NOT_OURS = new Set(["node_modules", "dist", ".git", ".cache", ".toolrunner", "coverage"]);

/** The package that a file belongs to. */
export function packageOf(tree: SourceTree, path: string): PackageFacts | undefined {
  return tree.packages.find(({ folder }) => path.startsWith(`${folder}/`));
}

/** A bare specifier, taken apart: `@a/b/c` is package `@a/b`, subpath `./c`. */
export function splitSpecifier(specifier: string): { readonly name: string; readonly subpath: string } {
  const parts = specifier.split("/");
  const count = specifier.startsWith("@") ? 2 : 1;
  const rest = parts.slice(count).join("/");
  return { name: parts.slice(0, count).join("/"), subpath: rest === "" ? "." : `./${rest}` };
}

/** The path that a relative specifier means, with the extension of its source where there is one. */
export function relativeTarget(tree: SourceTree, from: string, specifier: string): string {
  const parts = from.split("/").slice(0, -1);
  // What follows a question mark says how a bundler is to take the file.
  for (const part of specifier.replace(/\?.*$/, "").split("/")) {
    if (part === "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  const path = parts.join("/");
  const candidates = [
    path.replace(/\.js$/, ".ts"),
    path.replace(/\.js$/, ".tsx"),
    path.replace(/\.mjs$/, ".mts"),
    path.replace(/\.cjs$/, ".cts"),
  ];
  return candidates.find((candidate) => fileAt(tree, candidate) !== undefined) ?? path;
}

const indexes = new WeakMap<SourceTree, ReadonlyMap<string, SourceFile>>();

/** The file at a path. */
export function fileAt(tree: SourceTree, path: string): SourceFile | undefined {
  let index = indexes.get(tree);
  if (index === undefined) {
    index = new Map(tree.files.map((file) => [file.path, file]));
    indexes.set(tree, index);
  }
  return index.get(path);
}

/** Whether a specifier names a file beside, and not a package. */
export function isRelative(specifier: string): boolean {
  return specifier.startsWith("./") || specifier.startsWith("../") || specifier === "." || specifier === "..";
}

/** All edges out of a file: relative ones, and into the sources of other packages by their exports. */
export function edgesFrom(tree: SourceTree, from: SourceFile): readonly Edge[] {
  const edges: Edge[] = [];
  for (const { specifier, line } of from.imports) {
    const to = fileAt(tree, isRelative(specifier) ? relativeTarget(tree, from.path, specifier) : exportTarget(tree, specifier));
    if (to !== undefined) edges.push({ from, to, line });
  }
  return edges;
}

function exportTarget(tree: SourceTree, specifier: string): string {
  const { name, subpath } = splitSpecifier(specifier);
  return tree.packages.find((each) => each.name === name)?.exports.get(subpath) ?? "";
}
