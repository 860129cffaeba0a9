import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { SDK_VERSION } from "./sdk-version.js";

const dist = dirname(fileURLToPath(import.meta.url));
const proto = join(dist, "..", "..", "proto", "dist");
const IMPORT = /^(?:import|export)\s(?:[^"';]*?\sfrom\s)?["']([^"']+)["']/gm;

/** Every file of this repository that `entry` loads, and every package that those files name. */
function reach(entry: string): { files: Map<string, string>; packages: Set<string> } {
  const files = new Map<string, string>();
  const packages = new Set<string>();
  const visit = (file: string): void => {
    if (files.has(file)) return;
    const source = readFileSync(file, "utf8");
    files.set(file, source);
    for (const [, target = ""] of source.matchAll(IMPORT)) {
      if (target.startsWith(".")) visit(join(dirname(file), target));
      else if (target === "@toolrunner/proto") visit(join(proto, "index.js"));
      else packages.add(target);
    }
  };
  visit(entry);
  return { files, packages };
}

/** What runs: comments and texts left out. */
function code(source: string): string {
  return source
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .replace(/(?<!:)\/\/.*$/gm, "")
    .replace(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/g, '""');
}

describe.each([
  ["the root entry", "index.js"],
  ["the entry for browsers", "browser.js"],
])("%s (R1)", (_entry, file) => {
  const { files, packages } = reach(join(dist, file));

  it("loads no module of Node and no package but the protobuf runtime and idb", () => {
    expect(files.size).toBeGreaterThan(20);
    expect([...packages].filter((name) => !name.startsWith("@bufbuild/protobuf") && name !== "idb")).toEqual([]);
  });

  it.each(["Buffer", "process", "require", "eval", "global", "__dirname"])("does not use %s, nor make code from text", (name) => {
    const users = [...files].filter(([, source]) => new RegExp(`(?<![.\\w$])${name}\\b(?!\\s*:)`).test(code(source))).map(([file]) => file);
    expect(users).toEqual([]);
    const makers = [...files].filter(([, source]) => /new Function\b/.test(code(source))).map(([file]) => file);
    expect(makers).toEqual([]);
  });

  it("finds such a use where there is one", () => {
    expect(/(?<![.\w$])process\b(?!\s*:)/.test(code('const a = "x"; process.exit()'))).toBe(true);
    expect(reach(join(dist, "node.js")).packages.has("ws")).toBe(true);
  });

  it("reports the version of the package", () => {
    const manifest = JSON.parse(readFileSync(join(dist, "..", "package.json"), "utf8")) as { version: string };
    expect(SDK_VERSION).toBe(manifest.version);
  });
});
