import { spawnSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

/** Load hooks are a process's: each case runs in one of its own. */
const LOADER = join(dirname(fileURLToPath(import.meta.url)), "load-tools.js");

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "toolrunner-load-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), content);
  }
}

/** Loads `file` in a new process; its tools, or the fault. */
function load(file: string): {
  readonly tools?: unknown;
  readonly code?: string;
  readonly exitCode?: number;
  readonly message?: string;
  readonly stderr: string;
} {
  const script = `
    const { loadTools } = await import(${JSON.stringify(LOADER)});
    try { console.log(JSON.stringify({ tools: await loadTools(process.argv[1], process.cwd()) })); }
    catch (e) { console.log(JSON.stringify({ code: e.code, exitCode: e.exitCode, message: e.message })); }`;
  const ran = spawnSync(process.execPath, ["--input-type=module", "--eval", script, file], { cwd: folder, encoding: "utf8" });
  return { ...JSON.parse(ran.stdout), stderr: ran.stderr };
}

describe("loadTools", () => {
  it("strips types, follows ./x.js to ./x.ts and extensionless imports, and keeps what only looks like types", async () => {
    await write({
      "tools.ts": `
        import type { Missing } from "./types-only-and-not-there.js";
        import { name } from "./parts/name.js";
        import { version } from "./version";
        interface Tool { readonly name: string }
        enum Level { low = 1, high }
        const tool = { name, version, level: Level.high, text: "a as b <c>" } satisfies Tool;
        export default [tool as Tool & Missing];`,
      "parts/name.ts": `export const name: string = "from-ts";`,
      "version.mts": `export const version = "7" as const;`,
    });
    expect(load("tools.ts")).toEqual({ tools: [{ name: "from-ts", version: "7", level: 2, text: "a as b <c>" }], stderr: "" });
  });

  it("gives modules in a folder without packages the command's own @toolrunner/* packages", async () => {
    await write({ "tools.ts": `import * as proto from "@toolrunner/proto"; export default [typeof proto.redialRule];` });
    expect(load("tools.ts").tools).toEqual(["function"]);
  });

  it("prefers the packages of the module's own folder", async () => {
    await write({
      "tools.mjs": `import { own } from "@toolrunner/proto"; export default [own];`,
      "node_modules/@toolrunner/proto/package.json": `{"name":"@toolrunner/proto","type":"module","exports":"./index.js"}`,
      "node_modules/@toolrunner/proto/index.js": `export const own = "theirs";`,
    });
    expect(load("tools.mjs").tools).toEqual(["theirs"]);
  });

  it("takes CommonJS, also in TypeScript", async () => {
    await write({ "plain.cjs": `module.exports = ["cjs"];`, "typed.cts": `const list: string[] = ["cts"]; export = list;` });
    expect(load("plain.cjs").tools).toEqual(["cjs"]);
    expect(load("typed.cts").tools).toEqual(["cts"]);
  });

  it("refuses a file that is not there as wrong usage", () => {
    expect(load("none.ts")).toMatchObject({ code: "usage", exitCode: 2, message: expect.stringContaining("none.ts") });
    expect(load(".")).toMatchObject({ code: "usage", exitCode: 2 });
  });

  it.each([
    ["export const a = 1;", "has no default export"],
    ["export default { tools: [] };", "exports an object"],
    ["export default null;", "exports null"],
    ["export default () => [];", "exports a function"],
    ["export default [];", "nothing to serve"],
  ])("refuses a module that does not export an array of tools: %s", async (source, message) => {
    await write({ "tools.mjs": source });
    expect(load("tools.mjs")).toMatchObject({ code: "module_invalid", exitCode: 1, message: expect.stringContaining(message) });
  });

  it.each([
    ["const a: = 1; export default [];", "line 1, column 10"],
    ['throw new TypeError("no database"); export default [];', "TypeError: no database"],
    ['import "left-pad-that-nobody-has"; export default [];', "left-pad-that-nobody-has"],
    ['import { nothing } from "@toolrunner/none"; export default [nothing];', "@toolrunner/none"],
    ['throw "text"; export default [];', "text"],
  ])("says in one line why a module cannot be loaded: %s", async (source, message) => {
    await write({ "tools.ts": source });
    const { code, exitCode, message: found } = load("tools.ts");
    expect({ code, exitCode }).toEqual({ code: "module_failed", exitCode: 1 });
    expect(found).toContain(message);
    expect(found).not.toContain("\n");
  });
});
