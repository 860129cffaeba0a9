/** `biome.json` on planted files: lint finds what breaks a layer, where editors show it, and lets pass what the layer table allows. */
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BROKER_PARTS } from "./layer-table.js";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");
const BIOME = join(ROOT, "node_modules", "@biomejs", "biome", "bin", "biome");

interface Planted {
  readonly file: string;
  readonly imports: string;
}

const planted = (file: string, imports: string): Planted => ({ file, imports });

const REFUSED: readonly Planted[] = [
  ...BROKER_PARTS.flatMap((from) =>
    [...BROKER_PARTS, "app"].filter((to) => to !== from).map((to) => planted(`broker/src/${from}/to-${to}.ts`, `../${to}/other.js`)),
  ),
  ...BROKER_PARTS.map((from) => planted(`broker/src/${from}/deep/to-wire.ts`, "../../wire/driver.js")),
  ...BROKER_PARTS.filter((from) => from !== "gateway").map((from) => planted(`broker/src/${from}/to-proto.ts`, "@toolrunner/proto")),
  planted("broker/src/domain/to-ledger.ts", "../ledger/memory.js"),
  planted("broker/src/domain/ports/to-wire.ts", "../../wire/operations.js"),
  planted("broker/src/domain/to-package.ts", "fastify"),
  planted("broker/src/domain/to-scoped-package.ts", "@toolrunner/proto"),
  planted("broker/src/domain/to-node.ts", "node:crypto"),
  planted("broker/src/wire/to-gateway.ts", "../gateway/http/serve.js"),
  planted("broker/src/wire/to-runner.ts", "@toolrunner/runner-sdk"),
  planted("runner-sdk/src/core/to-broker.ts", "@toolrunner/broker"),
  planted("runner-sdk/src/to-broker-by-path.ts", "../../broker/src/domain/state.js"),
  planted("agent-sdk/src/to-runner.ts", "@toolrunner/runner-sdk"),
  planted("proto/src/to-broker.ts", "@toolrunner/broker"),
  planted("runners/backend/src/to-proto.ts", "@toolrunner/proto"),
  planted("cli/src/to-internal.ts", "@toolrunner/broker/internal"),
];

const ALLOWED: readonly Planted[] = [
  ...BROKER_PARTS.map((part) => planted(`broker/src/${part}/ok.ts`, "../domain/state.js")),
  ...BROKER_PARTS.map((part) => planted(`broker/src/${part}/deep/ok.ts`, "../../domain/ports/port.js")),
  planted("broker/src/ledger/sqlite/ok.ts", "../memory/memory-ledger.js"),
  planted("broker/src/gateway/http/ok-wire.ts", "../../wire/operations.js"),
  planted("broker/src/gateway/http/ok-proto.ts", "@toolrunner/proto"),
  planted("broker/src/wire/ok.ts", "@toolrunner/proto"),
  planted("broker/src/app/ok.ts", "../ledger/memory.js"),
  planted("broker/src/domain/ok.ts", "./ports/port.js"),
  planted("broker/src/domain/ports/ok.ts", "../state.js"),
  planted("runner-sdk/src/core/ok.ts", "@toolrunner/proto"),
  planted("runners/backend/src/ok.ts", "@toolrunner/runner-sdk/node"),
  planted("cli/src/ok.ts", "@toolrunner/broker"),
];

describe("lint", () => {
  let folder: string;
  let found: ReadonlySet<string>;

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "toolrunner-lint-"));
    copyFileSync(join(ROOT, "biome.json"), join(folder, "biome.json"));
    for (const { file, imports } of [...REFUSED, ...ALLOWED]) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), `import { other } from ${JSON.stringify(imports)};\n\nexport const made = other;\n`);
    }
    const ran = spawnSync(
      process.execPath,
      [BIOME, "lint", "--only=style/noRestrictedImports", "--vcs-enabled=false", "--max-diagnostics=none", "--reporter=json", "."],
      { cwd: folder, encoding: "utf8" },
    );
    const report: {
      readonly diagnostics: readonly {
        readonly category: string;
        readonly location: { readonly path: string | { readonly file: string } };
      }[];
    } = JSON.parse(ran.stdout);
    found = new Set(
      report.diagnostics
        .filter(({ category }) => category === "lint/style/noRestrictedImports")
        .map(({ location: { path } }) => (typeof path === "string" ? path : path.file).replace(/^\.\//, "")),
    );
  }, 30_000);
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("refuses every import that breaks a layer", () => {
    expect(REFUSED.map(({ file }) => file).filter((file) => !found.has(file))).toEqual([]);
  });

  it("lets every import pass that the layer table allows", () => {
    expect(ALLOWED.map(({ file }) => file).filter((file) => found.has(file))).toEqual([]);
  });
});
