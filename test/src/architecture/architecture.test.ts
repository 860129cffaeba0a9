/** The repository as it is, against its own rules. */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { checkArchitecture } from "./check-architecture.js";
import { LAYER_LINT_RULES, leftoversIn } from "./check-text.js";
import { BROWSER_ENTRIES, LAYERS } from "./layer-table.js";
import { fileAt, readContents, readTree } from "./source-tree.js";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");

describe("this repository", () => {
  const tree = readTree(ROOT);

  it("breaks no architecture rule", () => {
    expect(checkArchitecture(tree).map(({ rule, file, line, message }) => `${file}:${line} ${rule}: ${message}`)).toEqual([]);
  });

  it("is really what was looked at", () => {
    expect(tree.packages).toHaveLength(10);
    expect(tree.files.length).toBeGreaterThan(100);
    for (const entry of BROWSER_ENTRIES) expect(fileAt(tree, entry)?.imports.length, entry).toBeGreaterThan(0);
    for (const { folder } of LAYERS) {
      if (PLANNED.has(folder)) continue;
      expect(
        tree.files.some(({ path }) => path.startsWith(folder)),
        folder,
      ).toBe(true);
    }
  });

  it("holds no notes to oneself and no path of one machine in its texts", () => {
    const texts = readContents(
      ROOT,
      (path) => /\.(md|json|jsonc|ya?ml|proto|sh)$|^\.ci\//.test(path) && !path.endsWith("package-lock.json"),
    );
    expect(Object.keys(texts).length).toBeGreaterThan(15);
    expect(Object.entries(texts).flatMap(([path, text]) => leftoversIn(path, text))).toEqual([]);
  });
});

/** Folders of the table that hold nothing yet. */
const PLANNED = new Set(["broker/src/diagnostics/"]);

interface LintRules {
  readonly [group: string]: { readonly [rule: string]: string | { readonly level: string; readonly options?: unknown } } | boolean;
}
interface LintConfiguration {
  readonly linter: { readonly enabled: boolean; readonly rules: LintRules };
  readonly overrides: readonly {
    readonly includes: readonly string[];
    readonly linter?: { readonly enabled?: boolean; readonly rules?: LintRules };
  }[];
}

describe("biome.json", () => {
  const configuration: LintConfiguration = JSON.parse(readFileSync(join(ROOT, "biome.json"), "utf8"));
  const levels = (rules: LintRules | undefined): ReadonlyMap<string, string> =>
    new Map(
      Object.values(rules ?? {})
        .flatMap((group) => (typeof group === "boolean" ? [] : Object.entries(group)))
        .map(([rule, setting]) => [rule, typeof setting === "string" ? setting : setting.level]),
    );

  it("turns no layer rule off and down nowhere", () => {
    expect(configuration.linter.enabled).toBe(true);
    for (const { includes, linter } of configuration.overrides) {
      expect(linter?.enabled, includes.join()).not.toBe(false);
      for (const rule of LAYER_LINT_RULES)
        expect(levels(linter?.rules).get(rule) ?? "error", `${rule} in ${includes.join()}`).toBe("error");
    }
    for (const rule of ["noImportCycles", "noUndeclaredDependencies"])
      expect(levels(configuration.linter.rules).get(rule), rule).toBe("error");
  });

  it.each(LAYERS.filter(({ folder }) => folder.startsWith("broker/src/")).map(({ folder }) => folder))(
    "restricts the imports of %s as the layer table does",
    (folder) => {
      const rules = configuration.overrides.filter(({ includes }) => includes.some((pattern) => pattern.startsWith(folder)));
      expect(rules.some(({ linter }) => levels(linter?.rules).get("noRestrictedImports") === "error")).toBe(true);
    },
  );
});
