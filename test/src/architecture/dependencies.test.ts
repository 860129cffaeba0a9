/** `docs/dependencies.md` against the manifests and what is installed. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { readContents } from "./source-tree.js";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");

interface Manifest {
  readonly name: string;
  readonly private?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly license?: string;
}
interface Named {
  readonly package: string;
  readonly folder: string;
  readonly version: string;
  readonly shipped: boolean;
}
interface Row {
  readonly package: string;
  readonly usedBy: string;
  readonly licence: string;
  readonly bytes: number;
}

const readJson = (path: string): Manifest => JSON.parse(readFileSync(join(ROOT, path), "utf8"));
const manifests = Object.keys(readContents(ROOT, (path) => path.endsWith("package.json")));

const named: readonly Named[] = manifests.flatMap((path) => {
  const manifest = readJson(path);
  const folder = dirname(path);
  const list = (field: Readonly<Record<string, string>> | undefined, shipped: boolean): readonly Named[] =>
    Object.entries(field ?? {})
      .filter(([name]) => !name.startsWith("@toolrunner/"))
      .map(([name, version]) => ({ package: name, folder, version, shipped }));
  return [
    ...list({ ...manifest.dependencies, ...manifest.peerDependencies }, manifest.private !== true),
    ...list(manifest.devDependencies, false),
  ];
});

/** `| `name` | used by | what for | licence | size | who |` */
function rowsOf(page: string): readonly Row[] {
  return page.split("\n").flatMap((line) => {
    const cells = line.split("|").map((cell) => cell.trim());
    const name = /^`(.+)`$/.exec(cells[1] ?? "")?.[1];
    const size = /^([\d.]+) (kB|MB)$/.exec(cells[5] ?? "");
    if (name === undefined) return [];
    expect(
      cells.slice(2, 7).every((cell) => cell !== ""),
      `every cell of the line of ${name}`,
    ).toBe(true);
    return [
      { package: name, usedBy: cells[2] ?? "", licence: cells[4] ?? "", bytes: Number(size?.[1]) * (size?.[2] === "MB" ? 1e6 : 1e3) },
    ];
  });
}

const rows = rowsOf(readFileSync(join(ROOT, "docs", "dependencies.md"), "utf8"));

function installed(name: string): string {
  const places = ["", ...new Set(named.filter((each) => each.package === name).map(({ folder }) => folder))].map((folder) =>
    join(ROOT, folder, "node_modules", name),
  );
  // A package's own copy counts before the one that something else brought along.
  const found = places.reverse().find((place) => existsSync(join(place, "package.json")));
  expect(found, `${name} is installed`).toBeDefined();
  return found ?? "";
}

/** Compiled, or copied from the package of the platform, where install scripts run. */
const MADE_AT_INSTALLATION = [join("node_modules", "better-sqlite3", "build"), join("node_modules", "esbuild", "bin")];

function bytesOf(path: string): number {
  return readdirSync(path, { withFileTypes: true })
    .filter((entry) => !MADE_AT_INSTALLATION.some((made) => join(path, entry.name).endsWith(made)))
    .reduce(
      (sum, entry) =>
        sum + (entry.isDirectory() ? bytesOf(join(path, entry.name)) : entry.isFile() ? statSync(join(path, entry.name)).size : 0),
      0,
    );
}

describe("docs/dependencies.md", () => {
  it("has exactly one line for each dependency of any manifest", () => {
    expect(manifests.length).toBeGreaterThanOrEqual(11);
    expect(rows.map((row) => row.package).sort()).toEqual([...new Set(named.map((each) => each.package))].sort());
  });

  it("names exactly the packages that use each", () => {
    for (const row of rows) {
      const users = new Set(named.filter((each) => each.package === row.package).map(({ folder }) => (folder === "." ? "root" : folder)));
      expect(new Set(row.usedBy.replace(" (development)", "").split(", ")), row.package).toEqual(users);
    }
  });

  it("states the licences that the packages state", () => {
    for (const row of rows) {
      const { license }: Manifest = JSON.parse(readFileSync(join(installed(row.package), "package.json"), "utf8"));
      expect(row.licence, row.package).toBe(license);
    }
  });

  it.runIf(process.platform === "linux" && process.arch === "x64")(
    "states sizes that are right within a quarter (Linux on x64 only)",
    () => {
      const binaries: Readonly<Record<string, string>> = {
        "@biomejs/biome": "@biomejs/cli-linux-x64",
        "@bufbuild/buf": "@bufbuild/buf-linux-x64",
        esbuild: "@esbuild/linux-x64",
        typescript: "@typescript/typescript-linux-x64",
      };
      for (const row of rows) {
        const binary = binaries[row.package];
        const bytes = bytesOf(installed(row.package)) + (binary === undefined ? 0 : bytesOf(join(ROOT, "node_modules", binary)));
        expect(Math.abs(row.bytes - bytes), `${row.package}: ${row.bytes} stated, ${bytes} found`).toBeLessThanOrEqual(bytes / 4);
      }
    },
  );
});

describe("dependencies", () => {
  it("that are shipped are pinned to an exact version", () => {
    expect(named.filter(({ shipped, version }) => shipped && !/^\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });

  it("have the same version wherever they are named", () => {
    for (const name of new Set(named.map((each) => each.package))) {
      expect(new Set(named.filter((each) => each.package === name).map(({ version }) => version)).size, name).toBe(1);
    }
  });

  it("have permissive licences, down to the last one that is installed", () => {
    const lock: { readonly packages: Readonly<Record<string, { readonly license?: string; readonly link?: boolean }>> } = JSON.parse(
      readFileSync(join(ROOT, "package-lock.json"), "utf8"),
    );
    const others = Object.entries(lock.packages)
      .filter(([path, { link }]) => path.includes("node_modules/") && link !== true)
      .filter(([, { license }]) => license === undefined || !PERMISSIVE.test(license));
    expect(others.map(([path, { license }]) => `${path}: ${license}`)).toEqual([]);
  });
});

const PERMISSIVE =
  /^\(?(?:MIT|MIT-0|ISC|Apache-2\.0|BSD-[23]-Clause|0BSD|BlueOak-1\.0\.0|Python-2\.0|CC0-1\.0|Unlicense|Zlib|WTFPL|MPL-2\.0)(?: (?:OR|AND) (?:MIT|Apache-2\.0|BSD-[23]-Clause|WTFPL|CC0-1\.0|Zlib))*\)?$/;
