import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { useFolders, writeTree } from "../testing/temp-folders.js";
import { WorkspaceFault } from "../workspace-fault.js";
import { matchesGlob, PATTERN_CHARACTERS, parseGlob } from "./glob-pattern.js";

const makeFolder = useFolders();
const matches = (pattern: string, path: string): boolean => matchesGlob(parseGlob(pattern), path);

describe("glob patterns (W5)", () => {
  it.each([
    ["*.ts", "a.ts", true],
    ["*.ts", "deep/down/a.ts", true],
    ["./*.ts", "a.ts", true],
    ["src/*.ts", "src/a.ts", true],
    ["src/*.ts", "src/deep/a.ts", false],
    ["src/*.ts", "x/src/a.ts", false],
    ["src/**/*.ts", "src/a.ts", true],
    ["src/**/*.ts", "src/x/y/a.ts", true],
    ["**/src/*.ts", "x/src/a.ts", true],
    ["src/**", "src/x/y", true],
    ["**", "any/thing", true],
    ["a?c", "abc", true],
    ["a?c", "a😀c", true],
    ["a?c", "ac", false],
    ["*", ".hidden", true],
    ["[a-c]x", "bx", true],
    ["[!a-c]x", "bx", false],
    ["[]]x", "]x", true],
    ["[", "[", true],
    ["[a", "[a", true],
    ["{a,b}/*.{ts,js}", "b/x.js", true],
    ["{a,b}/*.{ts,js}", "c/x.js", false],
    ["a{b,{c,d}}", "ad", true],
    ["{a}", "{a}", true],
    ["{a", "{a", true],
    ["\\*", "*", true],
    ["\\*", "x", false],
    ["\\{a,b\\}", "{a,b}", true],
    ["-x", "-x", true],
    ["a b\n", "a b\n", true],
    ["é*", "éa", true],
  ])("%j on %j is %s", (pattern, path, expected) => {
    expect(matches(pattern, path)).toBe(expected);
  });

  it.each([
    ["../x", "has no .. segments"],
    ["a/../b", "has no .. segments"],
    ["x".repeat(PATTERN_CHARACTERS + 1), "characters"],
    ["{a,b}".repeat(9), "alternatives"],
    ["{{{{a,b},c},d},e}".repeat(5), "alternatives"],
  ])("refuses %j", (pattern, message) => {
    let fault: unknown;
    try {
      parseGlob(pattern);
    } catch (error) {
      fault = error;
    }
    expect(fault).toBeInstanceOf(WorkspaceFault);
    expect(fault).toMatchObject({ code: "pattern_invalid", message: expect.stringContaining(message) });
  });

  it("is not slowed down by patterns that blow up backtracking matchers", () => {
    const started = performance.now();
    expect(matches(`${"*a".repeat(200)}b`, "a".repeat(4000))).toBe(false);
    expect(matches(`${"**/a/".repeat(150)}b`, `${"a/".repeat(1500)}c`)).toBe(false);
    expect(performance.now() - started).toBeLessThan(5_000);
  });

  it("chooses the files that ripgrep's --glob chooses", ({ skip }) => {
    const folder = makeFolder();
    const files = [
      "a.ts",
      "b.js",
      "src/a.ts",
      "src/x/a.ts",
      "src/x/b.tsx",
      "lib/src/a.ts",
      ".env",
      "src/.rc",
      "x-y/[z].ts",
      "é/ü.ts",
      "A.TS",
      "src/x/y/z/deep.ts",
    ];
    writeTree(folder, Object.fromEntries(files.map((file) => [file, ""])));
    for (const pattern of [
      "*.ts",
      "src/*",
      "src/**",
      "**/x/*.ts*",
      "src/**/*.ts",
      "{a,b}.*",
      "[a-b].?s",
      "*[!s]",
      ".*",
      "é/*",
      "src/x/**/*.ts",
      "**/*",
      "\\[z\\].ts",
    ]) {
      let answer: string;
      try {
        answer = execFileSync("rg", ["--no-config", "--files", "--hidden", "--no-ignore", "--glob", pattern, "."], {
          cwd: folder,
          encoding: "utf8",
        });
      } catch (error) {
        skip(error instanceof Error && "code" in error && error.code === "ENOENT", "ripgrep is not installed");
        answer = "";
      }
      const expected = answer
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => line.replace(/^\.\//, ""));
      expect([pattern, files.filter((file) => matches(pattern, file)).sort()]).toEqual([pattern, expected.sort()]);
    }
  });
});
