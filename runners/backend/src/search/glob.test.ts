import { symlinkSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { Arguments } from "../arguments.js";
import { jsonBytes } from "../json-budget.js";
import { noAbort, useFolders, writeTree } from "../testing/temp-folders.js";
import { WorkspaceRoot } from "../workspace-root.js";
import { glob } from "./glob.js";

const makeFolder = useFolders();
const globIn = (folder: string, args: Record<string, unknown>, budget = 32_768, signal = noAbort()) =>
  glob(new WorkspaceRoot(folder), new Arguments(args), budget, signal);

describe("glob (W5)", () => {
  it("names the newest files first", async () => {
    const folder = makeFolder();
    writeTree(folder, { "old.ts": "", "sub/new.ts": "", "mid.ts": "", "other.js": "" });
    utimesSync(path.join(folder, "old.ts"), 1_000, 1_000);
    utimesSync(path.join(folder, "mid.ts"), 2_000, 2_000);
    utimesSync(path.join(folder, "sub/new.ts"), 3_000, 3_000);
    expect(await globIn(folder, { pattern: "*.ts" })).toEqual({ text: "sub/new.ts\nmid.ts\nold.ts", shown: 3, matched: 3, notes: [] });
  });

  it("names at most 100 of 10,000 files, counts all of them, and says so", async () => {
    const folder = makeFolder();
    for (let index = 0; index < 10_000; index += 1) {
      const file = path.join(folder, `f${index}.txt`);
      writeFileSync(file, "");
      utimesSync(file, index, index);
    }
    const found = await globIn(folder, { pattern: "**/*.txt" });
    expect(found).toMatchObject({ shown: 100, matched: 10_000, notes: [expect.stringContaining("9900 older files are left out")] });
    expect(found.text.split("\n")[0]).toBe("f9999.txt");
    expect(found.text.split("\n").at(-1)).toBe("f9900.txt");
  });

  it("starts in path, and names files relative to the root all the same", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a/x.ts": "", "b/x.ts": "", "a/deep/y.ts": "" });
    expect((await globIn(folder, { pattern: "./*.ts", path: "a" })).text.split("\n").sort()).toEqual(["a/deep/y.ts", "a/x.ts"]);
    expect((await globIn(folder, { pattern: "deep/*.ts", path: "a" })).text).toBe("a/deep/y.ts");
    expect((await globIn(folder, { pattern: `${folder}/a/*.ts` })).text).toBe("a/x.ts");
  });

  it("says that nothing matched, and what .gitignore left out", async () => {
    const folder = makeFolder();
    writeTree(folder, { ".gitignore": "*.log", "a.log": "" });
    expect((await globIn(folder, { pattern: "*.log" })).notes).toEqual(["Nothing matched.", expect.stringContaining(".gitignore")]);
    expect((await globIn(folder, { pattern: "*.log", include_ignored: true })).text).toBe("a.log");
  });

  it("writes names with line breaks on one line, and takes leading dashes", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a\nb.ts": "" });
    expect((await globIn(folder, { pattern: "*.ts" })).text).toBe('"a\\nb.ts"');
    writeTree(folder, { "-rf.md": "" });
    expect((await globIn(folder, { pattern: "-*.md" })).text).toBe("-rf.md");
  });

  it("keeps to the byte budget", async () => {
    const folder = makeFolder();
    writeTree(folder, Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`${'"'.repeat(100)}${index}`, ""])));
    const found = await globIn(folder, { pattern: "*" }, 2048);
    expect(jsonBytes(found)).toBeLessThanOrEqual(2048);
    expect(found.shown).toBeGreaterThan(3);
    expect(found.matched).toBe(100);
  });

  it.each([
    [{ pattern: "../*" }, "pattern_invalid"],
    [{ pattern: "/etc/*" }, "outside_workspace"],
    [{ pattern: "*", path: ".." }, "outside_workspace"],
    [{ pattern: "*", path: "out" }, "outside_workspace"],
    [{ pattern: "*", path: "missing" }, "not_found"],
    [{ pattern: "*", path: "file" }, "not_a_file"],
    [{ pattern: "" }, "arguments_invalid"],
    [{}, "arguments_invalid"],
  ])("refuses %j with %s", async (args, code) => {
    const folder = makeFolder();
    writeTree(folder, { file: "" });
    symlinkSync("/etc", path.join(folder, "out"));
    await expect(globIn(folder, args)).rejects.toMatchObject({ name: "WorkspaceFault", code });
  });

  it("ends when the call is cancelled", async () => {
    const controller = new AbortController();
    controller.abort(new Error("cancelled by a test"));
    await expect(globIn(makeFolder(), { pattern: "*" }, 32_768, controller.signal)).rejects.toThrow("cancelled by a test");
  });
});
