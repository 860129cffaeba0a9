/**
 * Who may import whom. This table is the rule; `docs/architecture.md` explains it, and `biome.json` holds the same rules for editors.
 *
 * Paths are matched by their beginning; the longest entry that matches counts.
 */

/** What the files of a folder may import besides each other. */
export interface Layer {
  readonly folder: string;
  /** Files and folders of the same package. */
  readonly local: readonly string[];
  /** Workspace packages, with subpath where it is not the root entry. */
  readonly workspace: readonly string[];
  /** npm packages and Node's own modules: `true` for all that the manifest names, or a list of names. */
  readonly external: true | readonly string[];
}

const DOMAIN = "broker/src/domain/";
const OPERATIONS = "broker/src/wire/operations.ts";

const layer = (folder: string, local: readonly string[], workspace: readonly string[], external: Layer["external"] = true): Layer => ({
  folder,
  local,
  workspace,
  external,
});

/** The folders of the broker that never import one another. */
export const BROKER_PARTS = ["ledger", "bus", "gateway", "catalog", "access", "diagnostics", "call-index"] as const;

/** The parts that may keep an SQLite file. */
const WITH_SQLITE: readonly string[] = ["ledger", "catalog", "call-index"];
const SQLITE = "broker/src/sqlite/";

/** Every source folder of the repository. */
export const LAYERS: readonly Layer[] = [
  layer("proto/", ["proto/"], []),
  layer("broker/", ["broker/"], ["@toolrunner/proto", "@toolrunner/proto/services"]),
  layer(DOMAIN, [DOMAIN], [], []),
  layer("broker/src/wire/", ["broker/src/wire/", DOMAIN], ["@toolrunner/proto"], ["node:"]),
  ...BROKER_PARTS.filter((part) => part !== "gateway").map((part) =>
    layer(`broker/src/${part}/`, [`broker/src/${part}/`, DOMAIN, ...(WITH_SQLITE.includes(part) ? [SQLITE] : [])], []),
  ),
  layer(SQLITE, [SQLITE], []),
  layer("broker/src/gateway/", ["broker/src/gateway/", DOMAIN, OPERATIONS], ["@toolrunner/proto", "@toolrunner/proto/services"]),
  layer("runner-sdk/", ["runner-sdk/"], ["@toolrunner/proto", "@toolrunner/proto/services"]),
  layer("agent-sdk/", ["agent-sdk/"], ["@toolrunner/proto", "@toolrunner/proto/services"]),
  layer(
    "runners/backend/",
    ["runners/backend/"],
    ["@toolrunner/runner-sdk", "@toolrunner/runner-sdk/node", "@toolrunner/runner-sdk/testing"],
  ),
  layer("runners/desktop/", ["runners/desktop/"], ["@toolrunner/runner-sdk", "@toolrunner/runner-sdk/node", "@toolrunner/runner-backend"]),
  layer("runners/browser/", ["runners/browser/"], ["@toolrunner/runner-sdk", "@toolrunner/runner-sdk/browser"]),
  // What a product would write: it uses the packages by their names.
  layer(
    "runners/browser/demo/",
    ["runners/browser/demo/"],
    ["@toolrunner/runner-sdk", "@toolrunner/runner-sdk/browser", "@toolrunner/runner-browser", "@toolrunner/runner-browser/vite"],
  ),
  layer(
    "cli/",
    ["cli/"],
    [
      "@toolrunner/agent-sdk",
      "@toolrunner/broker",
      "@toolrunner/proto",
      "@toolrunner/runner-sdk",
      "@toolrunner/runner-sdk/node",
      "@toolrunner/runner-backend",
    ],
  ),
  // The model runs the simulation of the wire's own tests, which is not published, with real runners.
  layer("test/", ["test/", "scripts/", "cli/bin/", "broker/dist/wire/schedule/"], ["*"]),
  layer("bench/", ["bench/"], ["*"]),
  // What goes into the image runs there without any package; the shop is what a product would write.
  layer("deploy/", ["deploy/"], [], ["node:"]),
  layer("deploy/shop/", ["deploy/shop/"], ["@toolrunner/runner-sdk"], []),
  // Job scripts run before anything is installed or built, but for the test of them and what writes documents from built tables.
  layer(
    "scripts/",
    [
      "scripts/",
      "broker/dist/internal.js",
      "broker/dist/diagnostics/definitions.js",
      "broker/dist/domain/limits.js",
      "broker/dist/wire/figures.js",
      "proto/dist/index.js",
    ],
    [],
    ["node:"],
  ),
];

/** The only places that may name generated message types; tests of the packages that speak frames besides. */
export const MAY_NAME_GENERATED = [
  /^proto\//,
  /^broker\/src\/(wire|gateway)\//,
  /^runner-sdk\/src\/core\/wire\.ts$/,
  /^runner-sdk\/src\/(core|node|browser|testing)\/(?:[a-z-]+\/)*[a-z-]*(grpc|websocket|memory|channel|transport|fake)[a-z-]*\.ts$/,
  /^agent-sdk\/src\/(grpc\.ts$|grpc\/|grpc-)/,
  /^(test|bench)\//,
  /\.test(?:\.kit)?\.ts$/,
];

/** Entries that must run in a browser, and the npm packages that may be part of them. */
export const BROWSER_ENTRIES = [
  "runner-sdk/src/index.ts",
  "runner-sdk/src/browser.ts",
  "runners/browser/src/index.ts",
  "agent-sdk/src/index.ts",
  "proto/src/index.ts",
] as const;
export const BROWSER_SAFE = new Set(["@bufbuild/protobuf", "eventsource-parser", "idb"]);

/** Longest file, in lines, generated ones aside. */
export const LINES_MAX = 450;
