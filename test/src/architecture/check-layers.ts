/** The rules about who imports whom: layers, packages, cycles. */
import { builtinModules } from "node:module";
import { LAYERS, type Layer } from "./layer-table.js";
import {
  edgesFrom,
  fileAt,
  isRelative,
  packageOf,
  relativeTarget,
  type SourceFile,
  type SourceTree,
  splitSpecifier,
} from "./source-tree.js";

/** Something that a rule forbids. */
export interface Violation {
  readonly rule: string;
  readonly file: string;
  readonly line: number;
  readonly message: string;
}

const BUILTIN = new Set(builtinModules.filter((name) => !name.startsWith("_")));

/** Whether a specifier is one of Node's own modules, with or without `node:`. */
export function isBuiltin(specifier: string): boolean {
  return specifier.startsWith("node:") || BUILTIN.has(specifier);
}

/** Whether the file is a test, or serves tests only. */
export function isTest(path: string): boolean {
  return /\.test(?:\.kit)?\.(ts|tsx|js|mjs)$/.test(path) || /\/testing\//.test(path);
}

/** The row of the table that counts for a file. */
export function layerOf(path: string): Layer | undefined {
  return LAYERS.filter(({ folder }) => path.startsWith(folder)).sort((a, b) => b.folder.length - a.folder.length)[0];
}

/** Each import that its layer does not allow, each deep import into another package, each package that no manifest names. */
export function checkLayers(tree: SourceTree): readonly Violation[] {
  return tree.files.flatMap((file) => {
    const row = layerOf(file.path);
    if (row === undefined) return isConfig(file.path) ? [] : [at(file, 1, "layer", "is in no folder of the layer table")];
    return file.imports.flatMap(({ specifier, line }) => {
      const message = isRelative(specifier) ? relativeFault(tree, file, row, specifier) : bareFault(tree, file, row, specifier);
      return message === undefined ? [] : [at(file, line, "layer", message)];
    });
  });
}

const isConfig = (path: string): boolean => !path.includes("/");

function relativeFault(tree: SourceTree, file: SourceFile, row: Layer, specifier: string): string | undefined {
  const target = relativeTarget(tree, file.path, specifier);
  const own = packageOf(tree, file.path);
  const allowed = row.local.some((each) => target.startsWith(each));
  if (own !== undefined && !target.startsWith(`${own.folder}/`) && !allowed) {
    return `reaches into another package by ${specifier}: import what that package exports`;
  }
  if (allowed) return undefined;
  // A part's test may run it on another part's real implementation; the domain's are as pure as the domain.
  const mayLeave = isTest(file.path) && own !== undefined && (!row.folder.includes("/domain/") || isTest(target));
  return mayLeave ? undefined : `must not import ${target}`;
}

function bareFault(tree: SourceTree, file: SourceFile, row: Layer, specifier: string): string | undefined {
  const { name, subpath } = splitSpecifier(specifier);
  const target = tree.packages.find((each) => each.name === name);
  if (target !== undefined) {
    if (!target.exports.has(subpath)) return `${specifier} is not among the exports of ${name}`;
    const forTests = subpath === "./testing" && isTest(file.path);
    if (!row.workspace.includes("*") && !row.workspace.includes(specifier) && !forTests) return `must not import ${specifier}`;
    return undeclared(tree, file, name);
  }
  if (
    row.external !== true &&
    !row.external.some((allowed) => (allowed === "node:" ? isBuiltin(specifier) : allowed === name)) &&
    !isTest(file.path)
  ) {
    return `must not import ${specifier}`;
  }
  return isBuiltin(specifier) ? undefined : undeclared(tree, file, name);
}

function undeclared(tree: SourceTree, file: SourceFile, name: string): string | undefined {
  const own = packageOf(tree, file.path);
  if (own === undefined || own.name === name || own.dependencies.has(name)) return undefined;
  if (own.devDependencies.has(name) && (isTest(file.path) || isPrivate(file.path) || typesOnly(name))) return undefined;
  return `${name} is not among the dependencies of ${own.name}`;
}

const isPrivate = (path: string): boolean => path.startsWith("test/") || path.startsWith("bench/");
const typesOnly = (name: string): boolean => name.startsWith("@types/");

/** Every cycle of imports, types included, once. Files of different packages can form one too. */
export function checkCycles(tree: SourceTree): readonly Violation[] {
  const violations: Violation[] = [];
  const done = new Set<string>();
  const open: string[] = [];
  const visit = (file: SourceFile): void => {
    if (done.has(file.path)) return;
    open.push(file.path);
    for (const { to, line } of edgesFrom(tree, file)) {
      const start = open.indexOf(to.path);
      if (start === -1) visit(to);
      else if (to.path !== file.path) violations.push(at(file, line, "cycle", [...open.slice(start), to.path].join(" → ")));
      else violations.push(at(file, line, "cycle", "imports itself"));
    }
    open.pop();
    done.add(file.path);
  };
  for (const file of tree.files) visit(file);
  return violations;
}

/** Relative imports that lead nowhere: a check that resolves nothing would find nothing. */
export function checkResolved(tree: SourceTree): readonly Violation[] {
  return tree.files.flatMap((file) =>
    file.imports
      .filter(({ specifier, kind }) => kind !== "url" && isRelative(specifier) && !/\.(json|proto)$|\/dist\//.test(specifier))
      .filter(({ specifier }) => fileAt(tree, relativeTarget(tree, file.path, specifier)) === undefined)
      .map(({ specifier, line }) => at(file, line, "resolved", `${specifier} leads to no file of the tree`)),
  );
}

/** Makes a violation. */
export function at(file: SourceFile, line: number, rule: string, message: string): Violation {
  return { rule, file: file.path, line, message };
}
