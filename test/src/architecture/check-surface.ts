/** The rules about what may be seen where: generated types, and entries that run in a browser. */
import { at, isBuiltin, type Violation } from "./check-layers.js";
import { BROWSER_ENTRIES, BROWSER_SAFE, MAY_NAME_GENERATED } from "./layer-table.js";
import { edgesFrom, fileAt, isRelative, type SourceFile, type SourceTree, splitSpecifier } from "./source-tree.js";

const GENERATED = /^proto\/src\/gen\//;
const DECLARATION =
  /(?:^|\n)export\s+(?:declare\s+)?(?:const\s+enum|abstract\s+class|async\s+function|const|let|enum|interface|type|function|class)\s+([\w$]+)/g;

/** Names declared in generated files. */
export function generatedNames(tree: SourceTree): ReadonlySet<string> {
  const names = new Set<string>();
  for (const file of tree.files) {
    if (GENERATED.test(file.path)) for (const [, name] of file.masked.matchAll(DECLARATION)) names.add(name ?? "");
  }
  return names;
}

/** Each use of a generated type outside the codecs and transports. */
export function checkGenerated(tree: SourceTree): readonly Violation[] {
  const generated = generatedNames(tree);
  return tree.files
    .filter(({ path }) => !MAY_NAME_GENERATED.some((allowed) => allowed.test(path)))
    .flatMap((file) =>
      file.imports.flatMap(({ specifier, names, line }) => {
        const { name, subpath } = splitSpecifier(specifier);
        if (name !== "@toolrunner/proto") return [];
        if (subpath !== ".")
          return [at(file, line, "generated", `must not import ${specifier}: only codecs and transports know the wire's types`)];
        return names
          .filter((each) => each === "*" || generated.has(each))
          .map((each) =>
            at(file, line, "generated", `must not import ${each} of ${specifier}: only codecs and transports know the wire's types`),
          );
      }),
    );
}

const NODE_GLOBAL = /(?<![\w$."'])(Buffer|process|__dirname|__filename|setImmediate|require)(?=\s*[.([])/;

/** Whatever keeps a browser entry, with all that it imports, out of a browser. */
export function checkBrowserEntries(tree: SourceTree): readonly Violation[] {
  const violations = new Map<string, Violation>();
  for (const entry of BROWSER_ENTRIES) {
    for (const [file, way] of reachable(tree, entry)) {
      const by = way.length > 1 ? ` (${way.join(" → ")})` : "";
      const add = (line: number, what: string): void => {
        const violation = at(file, line, "browser", `${what} in a browser entry${by}`);
        violations.set(`${violation.file}:${line}`, violation);
      };
      for (const { specifier, line } of file.imports) {
        if (isRelative(specifier)) continue;
        if (isBuiltin(specifier)) add(line, `${specifier} of Node`);
        else if (!BROWSER_SAFE.has(splitSpecifier(specifier).name) && !isWorkspace(tree, specifier)) add(line, specifier);
      }
      const found = NODE_GLOBAL.exec(file.masked);
      // Used where it is there, something else used where it is not.
      const guarded = new RegExp(`typeof ${found?.[1]}\\b`).test(file.masked);
      if (found !== null && !guarded) add(file.masked.slice(0, found.index).split("\n").length, `${found[1]} of Node`);
    }
  }
  return [...violations.values()];
}

function isWorkspace(tree: SourceTree, specifier: string): boolean {
  return tree.packages.some(({ name }) => name === splitSpecifier(specifier).name);
}

function reachable(tree: SourceTree, entry: string): ReadonlyMap<SourceFile, readonly string[]> {
  const found = new Map<SourceFile, readonly string[]>();
  const visit = (file: SourceFile | undefined, way: readonly string[]): void => {
    if (file === undefined || found.has(file)) return;
    found.set(file, [...way, file.path]);
    for (const { to } of edgesFrom(tree, file)) visit(to, [...way, file.path]);
  };
  visit(fileAt(tree, entry), []);
  return found;
}
