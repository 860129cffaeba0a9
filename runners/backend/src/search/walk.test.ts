import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { asNobody, noAbort, useFolders, writeTree } from "../testing/temp-folders.js";
import { emptyWalkReport, type WalkOptions, walkFiles, walkNotes } from "./walk.js";

const makeFolder = useFolders();

async function walked(root: string, more: Partial<WalkOptions> = {}) {
  const report = emptyWalkReport();
  const files: string[] = [];
  const options = { root, from: root, includeIgnored: false, includeLinks: false, signal: noAbort(), ...more };
  for await (const file of walkFiles(options, report)) files.push(file);
  return { files, report };
}

describe("walking a folder", () => {
  it("chooses the files that ripgrep chooses by .gitignore rules", async ({ skip }) => {
    const folder = makeFolder();
    writeTree(folder, {
      ".gitignore":
        "*.log\r\n# comment\n\n!keep.log\n/only-here\nbuild/\ndoc/*.txt\n**/cache\nfoo/**\n\\#hash\ntrail   \nesc\\ \na?b\n[xy].c\n*.swp~\n!/foo/back\nspace name\n",
      "a.log": "",
      "keep.log": "",
      "only-here": "",
      "sub/only-here": "",
      "build/x": "",
      "sub/build/x": "",
      "sub2/build": "",
      "doc/a.txt": "",
      "doc/deep/a.txt": "",
      "x/doc/a.txt": "",
      "p/cache/q": "",
      "cache/q": "",
      "foo/a": "",
      "foo/b/c": "",
      "foo/back": "",
      "#hash": "",
      trail: "",
      "esc ": "",
      esc: "",
      axb: "",
      "x.c": "",
      "z.c": "",
      "space name": "",
      "n/.gitignore": "!*.log\n/y\nd/\n",
      "n/a.log": "",
      "n/y": "",
      "n/m/y": "",
      "n/m/d/e": "",
      ".git/config": "",
      "n/.git/HEAD": "",
      ".hidden/.file": "",
      "-dash": "",
    });
    let answer = "";
    try {
      answer = execFileSync(
        "rg",
        [
          "--no-config",
          "--files",
          "--hidden",
          "--no-require-git",
          "--no-ignore-global",
          "--no-ignore-exclude",
          "--no-ignore-dot",
          "--no-ignore-parent",
          "--glob",
          "!.git",
          ".",
        ],
        { cwd: folder, encoding: "utf8" },
      );
    } catch (error) {
      skip(error instanceof Error && "code" in error && error.code === "ENOENT", "ripgrep is not installed");
      throw error;
    }
    const expected = answer
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => line.replace(/^\.\//, ""));
    const { files, report } = await walked(folder);
    expect([...files].sort()).toEqual(expected.sort());
    expect(report.ignored).toBeGreaterThan(10);
    expect(walkNotes(report)).toEqual([expect.stringContaining("include_ignored")]);
  });

  it("passes over a byte order mark at the start of a .gitignore, as git does", async () => {
    const folder = makeFolder();
    writeTree(folder, { ".gitignore": "\ufeff*.log\n", "a.log": "", b: "" });
    expect((await walked(folder)).files).toEqual([".gitignore", "b"]);
  });

  it("applies rules from above when it starts in a sub-folder, and none when ignored files are wanted", async () => {
    const folder = makeFolder();
    writeTree(folder, { ".gitignore": "*.log\n/sub/x\n", "sub/a.log": "", "sub/x": "", "sub/y": "", "sub/.git/z": "" });
    const from = path.join(folder, "sub");
    expect((await walked(folder, { from })).files).toEqual(["y"]);
    expect((await walked(folder, { from, includeIgnored: true })).files).toEqual(["a.log", "x", "y"]);
  });

  it("is not caught by loops of links, and gives out neither pipes nor what links lead out to", async () => {
    const outside = makeFolder();
    const folder = makeFolder();
    writeTree(outside, { secret: "" });
    writeTree(folder, { "a/b/file": "" });
    symlinkSync("..", path.join(folder, "a/b/up"));
    symlinkSync("self", path.join(folder, "self"));
    symlinkSync(outside, path.join(folder, "out"));
    symlinkSync(path.join(outside, "secret"), path.join(folder, "out-file"));
    symlinkSync("a/b/file", path.join(folder, "in-file"));
    execFileSync("mkfifo", [path.join(folder, "pipe")]);
    expect((await walked(folder)).files).toEqual(["a/b/file"]);
    expect((await walked(folder, { includeLinks: true })).files).toEqual(["a/b/file", "in-file"]);
  });

  it("leaves out names that are not UTF-8, and counts them", async () => {
    const folder = makeFolder();
    writeFileSync(Buffer.concat([Buffer.from(`${folder}/bad`), Buffer.from([0xff])]), "");
    writeTree(folder, { good: "" });
    const { files, report } = await walked(folder);
    expect(files).toEqual(["good"]);
    expect(walkNotes(report)).toEqual(["Left out because the name is not UTF-8: 1."]);
  });

  it("passes over folders that it may not read, and counts them", async () => {
    const folder = makeFolder();
    chmodSync(folder, 0o755);
    writeTree(folder, { "closed/a": "", b: "" });
    chmodSync(path.join(folder, "closed"), 0o000);
    await asNobody(async () => {
      const { files, report } = await walked(folder);
      expect(files).toEqual(["b"]);
      expect(walkNotes(report)).toEqual(["Folders that could not be read: 1."]);
    });
  });

  it("lets other work have its turn, and a cancel through, in a folder of 20,000 files", async () => {
    const folder = makeFolder();
    for (let index = 0; index < 20_000; index += 1) writeFileSync(path.join(folder, `${index}`), "");
    const controller = new AbortController();
    let seen = 0;
    const walking = (async () => {
      for await (const _ of walkFiles(
        { root: folder, from: folder, includeIgnored: false, includeLinks: false, signal: controller.signal },
        emptyWalkReport(),
      )) {
        seen += 1;
        if (seen === 1) setImmediate(() => controller.abort(new Error("cancelled by a test")));
      }
    })();
    await expect(walking).rejects.toThrow("cancelled by a test");
    expect(seen).toBeLessThan(5_000);
  });

  it("walks a thousand folders deep", async () => {
    const folder = makeFolder();
    const deep = Array.from({ length: 1000 }, () => "d").join("/");
    mkdirSync(path.join(folder, deep), { recursive: true });
    writeFileSync(path.join(folder, deep, "end"), "");
    expect((await walked(folder)).files).toEqual([`${deep}/end`]);
  });

  it("stops when it is cancelled", async () => {
    const controller = new AbortController();
    controller.abort(new Error("cancelled by a test"));
    await expect(walked(makeFolder(), { signal: controller.signal })).rejects.toThrow("cancelled by a test");
  });
});
