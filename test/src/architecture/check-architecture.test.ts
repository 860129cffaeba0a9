/** The checker itself, on planted trees: each rule finds what it is for, and lets pass what is allowed. */
import { describe, expect, it } from "vitest";
import { checkArchitecture } from "./check-architecture.js";
import { BROKER_PARTS } from "./layer-table.js";
import { treeOf } from "./source-tree.js";

const MANIFESTS = {
  "package.json": JSON.stringify({
    name: "root",
    workspaces: ["proto", "broker", "runner-sdk", "agent-sdk", "cli", "runners/backend", "test"],
    devDependencies: { vitest: "1" },
  }),
  "proto/package.json": manifest("proto", { ".": "index", "./services": "services" }),
  "broker/package.json": manifest("broker", { ".": "index", "./internal": "internal" }, ["@toolrunner/proto", "fastify"]),
  "runner-sdk/package.json": manifest("runner-sdk", { ".": "index", "./node": "node" }, ["@toolrunner/proto", "ws"]),
  "agent-sdk/package.json": manifest("agent-sdk", { ".": "index" }, ["@toolrunner/proto", "eventsource-parser"]),
  "cli/package.json": manifest("cli", { ".": "index" }, ["@toolrunner/broker", "@toolrunner/runner-sdk"]),
  "runners/backend/package.json": manifest("runner-backend", { ".": "index" }, ["@toolrunner/runner-sdk"]),
  "test/package.json": manifest("test", {}, ["@toolrunner/broker", "@toolrunner/proto"]),
};

function manifest(name: string, exports: Readonly<Record<string, string>>, dependencies: readonly string[] = []): string {
  return JSON.stringify({
    name: `@toolrunner/${name}`,
    exports: Object.fromEntries(
      Object.entries(exports).map(([subpath, file]) => [subpath, { types: `./dist/${file}.d.ts`, default: `./dist/${file}.js` }]),
    ),
    dependencies: Object.fromEntries(dependencies.map((each) => [each, "1"])),
  });
}

/** A tree in which nothing is wrong. */
const SOUND: Readonly<Record<string, string>> = {
  ...MANIFESTS,
  "proto/src/index.ts": `export { redialRule } from "./close-codes.js";\nexport * from "./gen/toolrunner/v1/session.js";`,
  "proto/src/services.ts": `export const services = {};`,
  "proto/src/close-codes.ts": `export function redialRule(): string { return "never"; }`,
  "proto/src/gen/toolrunner/v1/session.ts": `/* eslint-disable */\nexport interface RunnerFrame {}\nexport const RunnerFrame = {};`,
  "broker/src/index.ts": `export { createBroker } from "./app/create-broker.js";`,
  "broker/src/internal.ts": `export { state } from "./domain/state.js";`,
  "broker/src/app/create-broker.ts": `import { sqlite } from "../ledger/sqlite.js"; import { serve } from "../gateway/http/serve.js"; export const createBroker = [sqlite, serve];`,
  "broker/src/domain/state.ts": `import type { Port } from "./ports/port.js"; export const state: Port = {};`,
  "broker/src/domain/ports/port.ts": `export interface Port {}`,
  "broker/src/ledger/sqlite.ts": `import { state } from "../domain/state.js"; import { readFile } from "node:fs/promises"; export const sqlite = [state, readFile];`,
  "broker/src/wire/operations.ts": `import type { RunnerFrame } from "@toolrunner/proto"; import type { Port } from "../domain/ports/port.js"; export type Operations = [RunnerFrame, Port];`,
  "broker/src/gateway/http/serve.ts": `import type { Operations } from "../../wire/operations.js"; import fastify from "fastify"; export const serve = (o: Operations) => [o, fastify];`,
  "runner-sdk/src/index.ts": `export { session } from "./core/session.js";`,
  "runner-sdk/src/core/session.ts": `import { redialRule } from "@toolrunner/proto"; import { decode } from "./wire.js"; export const session = [redialRule, decode];`,
  "runner-sdk/src/core/wire.ts": `import type { RunnerFrame } from "@toolrunner/proto"; export const decode = (f: RunnerFrame) => f;`,
  "runner-sdk/src/node.ts": `import WebSocket from "ws"; import "node:fs"; export const connect = WebSocket;`,
  "agent-sdk/src/index.ts": `import { createParser } from "eventsource-parser"; export const client = createParser;`,
  "cli/src/index.ts": `import { createBroker } from "@toolrunner/broker"; export const cli = createBroker;`,
  "runners/backend/src/index.ts": `import { connect } from "@toolrunner/runner-sdk/node"; export const run = connect;`,
  "test/src/e2e/call.test.ts": `import { state } from "@toolrunner/broker/internal"; import type { RunnerFrame } from "@toolrunner/proto"; import { it } from "vitest"; it("a", () => [state, {} as RunnerFrame]);`,
};

const found = (changes: Readonly<Record<string, string>>): readonly string[] =>
  checkArchitecture(treeOf({ ...SOUND, ...changes })).map(({ rule, file, line, message }) => `${rule} ${file}:${line} ${message}`);

/** Exactly one violation, of this rule in this file. */
function refused(rule: string, file: string, text: string, more: Readonly<Record<string, string>> = {}): void {
  expect(found({ ...more, [file]: text })).toEqual([expect.stringMatching(new RegExp(`^${rule} ${file.replace(/[.]/g, "\\.")}:`))]);
}

describe("the architecture rules", () => {
  it("find nothing in a sound tree", () => {
    expect(found({})).toEqual([]);
  });

  it.each(BROKER_PARTS.flatMap((from) => [...BROKER_PARTS, "app", "wire"].filter((to) => to !== from).map((to) => [from, to] as const)))(
    "keep broker/%s from importing %s",
    (from, to) => {
      refused("layer", `broker/src/${from}/part.ts`, `import type { other } from "../${to}/other.js";\nexport type Part = typeof other;`, {
        [`broker/src/${to}/other.ts`]: "export const other = 1;",
      });
    },
  );

  it("let the test of a part run it on another part, but keep the domain's tests pure", () => {
    const text = `import { sqlite } from "../ledger/sqlite.js"; export const a = sqlite;`;
    expect(
      found({ "broker/src/catalog/part.test.ts": text, "broker/src/catalog/testing/suite.ts": text.replace("../", "../../") }),
    ).toEqual([]);
    refused("layer", "broker/src/domain/part.test.ts", text);
  });

  it.each([
    ["another folder", `export { sqlite } from "../ledger/sqlite.js";`],
    ["a package", `import fastify from "fastify"; export const a = fastify;`],
    ["a Node module", `import { hash } from "node:crypto"; export const a = hash;`],
    ["a Node module without prefix", `import { hash } from "crypto"; export const a = hash;`],
    ["a type of the wire, by expression", `export type A = import("@toolrunner/proto").Anything;`],
    ["a module on demand", `export const a = () => import("../app/create-broker.js");`],
  ])("keep the domain from importing %s", (_what, text) => {
    expect(found({ "broker/src/domain/impure.ts": text })).toContainEqual(
      expect.stringMatching(/^layer broker\/src\/domain\/impure\.ts:1/),
    );
  });

  it("let a gateway see of the wire what it offers, and no more", () => {
    refused("layer", "broker/src/gateway/http/deep.ts", `import { driver } from "../../wire/driver.js"; export const a = driver;`, {
      "broker/src/wire/driver.ts": "export const driver = 1;",
    });
  });

  it("keep broker and runner SDK apart", () => {
    refused("layer", "broker/src/app/peek.ts", `import { session } from "@toolrunner/runner-sdk"; export const a = session;`);
    refused("layer", "runner-sdk/src/node/peek.ts", `import { state } from "@toolrunner/broker/internal"; export const a = state;`);
    refused("layer", "runners/backend/src/peek.ts", `import { redialRule } from "@toolrunner/proto"; export const a = redialRule;`);
  });

  it("forbid deep imports across packages, by path and by name", () => {
    refused("layer", "cli/src/deep.ts", `import { state } from "../../broker/src/domain/state.js"; export const a = state;`);
    refused("layer", "cli/src/deep.ts", `import { state } from "@toolrunner/broker/dist/domain/state.js"; export const a = state;`);
    refused("layer", "cli/src/deep.ts", `import { state } from "@toolrunner/broker/internal"; export const a = state;`);
  });

  it("want every package named in the manifest, and test packages in tests only", () => {
    refused("layer", "cli/src/undeclared.ts", `import pino from "pino"; export const a = pino;`);
    refused("layer", "cli/src/undeclared.ts", `import { it } from "vitest"; export const a = it;`);
    expect(found({ "cli/src/declared.test.ts": `import { it } from "vitest"; it("a", () => undefined);` })).toEqual([]);
  });

  it("want every file in a folder of the table", () => {
    refused("layer", "elsewhere/src/a.ts", "export const a = 1;");
  });

  it("find cycles, also of types, also across packages", () => {
    refused("cycle", "broker/src/domain/ports/port.ts", `import type { state } from "../state.js"; export type Port = typeof state;`);
    refused("cycle", "broker/src/app/self.ts", `import type { A } from "./self.js"; export type B = A;`);
    expect(
      found({
        "proto/src/close-codes.ts": `import type { services } from "@toolrunner/proto/services"; export function redialRule(): typeof services { return {}; }`,
        "proto/src/services.ts": `import { redialRule } from "./index.js"; export const services = { redialRule };`,
      }),
    ).toContainEqual(expect.stringMatching(/^cycle .*close-codes\.ts → .*services\.ts/));
  });

  it("find relative imports that lead nowhere", () => {
    refused("resolved", "cli/src/lost.ts", `import { a } from "./not-there.js"; export const b = a;`);
  });

  it.each([
    ["by name", `import type { RunnerFrame } from "@toolrunner/proto"; export type A = RunnerFrame;`],
    ["as a whole", `import * as proto from "@toolrunner/proto"; export const a = proto;`],
    ["passed on", `export * from "@toolrunner/proto";`],
    ["by expression", `export type A = import("@toolrunner/proto").RunnerFrame;`],
    ["of services", `import { services } from "@toolrunner/proto/services"; export const a = services;`],
  ])("keep generated types out of session logic: %s", (_how, text) => {
    refused("generated", "runner-sdk/src/core/grants.ts", text);
  });

  it("keep Node out of browser entries, however long the way", () => {
    const way = {
      "runner-sdk/src/core/far.ts": `export const far = 1;`,
      "runner-sdk/src/core/session.ts": `import { far } from "./far.js"; export const session = far;`,
    };
    refused("browser", "runner-sdk/src/core/far.ts", `import { readFile } from "node:fs"; export const far = readFile;`, way);
    refused("browser", "runner-sdk/src/core/far.ts", `import type { Stats } from "fs"; export const far = {} as Stats;`, way);
    refused("browser", "runner-sdk/src/core/far.ts", `import ws from "ws"; export const far = ws;`, way);
    refused("browser", "runner-sdk/src/core/far.ts", `export const far = Buffer.from("a");`, way);
    refused("browser", "runner-sdk/src/core/far.ts", `export const far = process.env;`, way);
    refused("browser", "runner-sdk/src/core/far.ts", `export const far = setImmediate(() => 1);`, way);
    expect(
      found({ ...way, "runner-sdk/src/core/far.ts": `export const far = typeof setImmediate === "function" ? setImmediate(() => 1) : 2;` }),
    ).toEqual([]);
    refused("browser", "proto/src/close-codes.ts", `import "node:util"; export function redialRule(): string { return "never"; }`);
    expect(found({ ...way, "runner-sdk/src/core/far.ts": `export const far = { process: 1 }; // Buffer.from and process.env` })).toEqual(
      [],
    );
  });

  it("find files that are too long, but not generated ones", () => {
    refused("size", "cli/src/long.ts", "export {};\n".repeat(451));
    expect(found({ "cli/src/long.ts": "export {};\n".repeat(450), "proto/src/gen/long.ts": "export {};\n".repeat(900) })).toEqual([]);
  });

  it.each([
    "// biome-ignore lint/style/noRestrictedImports: just this once",
    "// biome-ignore lint/suspicious/noImportCycles: just this once",
    "// biome-ignore lint/style: all of it",
    "// biome-ignore lint: all of it",
    "/* biome-ignore-all lint/style/useConst: the file */",
    "// biome-ignore-start lint/style/useConst: from here",
    `// @ts-${"ignore"}`,
    `// @ts-${"nocheck"}`,
    `// @ts-${"expect-error"} in a source`,
  ])("find a rule that is turned off: %s", (comment) => {
    refused("suppression", "cli/src/off.ts", `${comment}\nexport const a = 1;`);
  });

  it("let a single other lint rule be turned off with a reason, and a type test say what must not compile", () => {
    expect(
      found({
        "cli/src/off.ts": "// biome-ignore lint/suspicious/noConsole: this prints\nexport const a = 1;",
        "cli/src/types.test.ts": `// @ts-${"expect-error"} a number is no string\nexport const a: string = 1;`,
      }),
    ).toEqual([]);
  });

  it.each(["cli/src/camelCase.ts", "cli/src/Big.ts", "cli/src/utils.ts", "cli/src/helpers.ts", "cli/src/under_score.ts"])(
    "refuse the file name %s",
    (path) => {
      refused("name", path, "export const a = 1;");
    },
  );

  it("let a test be skipped that says why in its title", () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: this text is a template in the source that is checked
    expect(found({ "cli/src/skips.test.ts": "it.skip(`${title} [${reason}]`);\nit.skip('a [no server]');\n" })).toEqual([]);
  });

  it.each([
    ["leftover", `// ${"TO"}${"DO"} later`],
    ["leftover", `const where = "/${"wo"}${"rk"}/place";`],
    ["leftover", "// see issue 12"],
    ["leftover", "// fixed in #123"],
    ["escape", "const a = 1 as any;"],
    ["escape", "it.only('a', () => undefined);"],
    ["escape", "describe.skip('a', () => undefined);"],
    ["escape", "export default 1;"],
  ])("find what is not finished: %s %s", (rule, line) => {
    refused(rule, "cli/src/unfinished.ts", `export {};\n${line}\n`);
  });
});
