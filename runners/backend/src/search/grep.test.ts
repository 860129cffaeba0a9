import { execFileSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { Arguments } from "../arguments.js";
import { jsonBytes } from "../json-budget.js";
import { asNobody, noAbort, until, useFolders, writeTree } from "../testing/temp-folders.js";
import { WorkspaceRoot } from "../workspace-root.js";
import { builtInEngine } from "./built-in-grep.js";
import { grep } from "./grep.js";
import type { GrepEngine } from "./grep-engine.js";
import { hasRipgrep, ripgrepEngine } from "./ripgrep.js";

const makeFolder = useFolders();
const isInstalled = hasRipgrep("rg");
const engines: [string, GrepEngine][] = [
  ...(isInstalled ? [["ripgrep", ripgrepEngine("rg")] satisfies [string, GrepEngine]] : []),
  ["built-in", builtInEngine()],
];

const grepIn = (
  engine: GrepEngine,
  folder: string,
  args: Record<string, unknown>,
  more: { budgetBytes?: number; signal?: AbortSignal; searchMs?: number } = {},
) => grep(new WorkspaceRoot(folder), new Arguments(args), { engine, budgetBytes: 32_768, signal: noAbort(), ...more });

const TREE = {
  "a.txt": "one\nTwo foo\nthree\n",
  "dos.txt": "foo\r\nbar foo\r\nend foo",
  "sub/b.ts": "const foo = 'é😀';\nfoo-bar\n\nfoo",
  "sub/deep/c.ts": "nothing\n",
  "bom.txt": "\ufefffoo at the start\n",
  "latin.txt": Buffer.from("foo caf\xe9\n", "latin1"),
  "early.bin": Buffer.from("foo\0foo\nfoo\n"),
  "late.bin": Buffer.concat([Buffer.from("foo early\n"), Buffer.from("x\n".repeat(6000)), Buffer.from("foo here\0foo\nfoo after\n")]),
  "utf16.txt": Buffer.from("\ufefffoo\n", "utf16le"),
  "empty.txt": "",
  "blank.txt": "\n\n",
  "wide.txt": `foo ${"x".repeat(600)}\nfoo short\n`,
  "-dash.txt": "foo\n",
  "new\nline.txt": "foo\n",
  ".hidden/x": "foo\n",
  "skip.log": "foo\n",
  ".gitignore": "*.log\n",
  ".git/config": "foo\n",
};

describe.each(engines)("grep with %s (W5)", (name, engine) => {
  it("gives path, line number and text, in files of any kind of name", async () => {
    const folder = makeFolder();
    writeTree(folder, TREE);
    const found = await grepIn(engine, folder, { pattern: "foo$" });
    expect(found.engine).toBe(name);
    expect(found.text.split("\n").sort()).toEqual(
      [
        "-dash.txt:1:foo",
        ".hidden/x:1:foo",
        "a.txt:2:Two foo",
        "dos.txt:1:foo",
        "dos.txt:2:bar foo",
        "dos.txt:3:end foo",
        '"new\\nline.txt":1:foo',
        "sub/b.ts:4:foo",
      ].sort(),
    );
    expect(found.next_offset).toBeNull();
    expect(found.notes).toContainEqual(expect.stringContaining("Left out by .gitignore: 1 entry"));
  });

  it.each([
    [{ pattern: "FOO", ignore_case: true, glob: "*.ts" }, ["sub/b.ts:1:const foo = 'é😀';", "sub/b.ts:2:foo-bar", "sub/b.ts:4:foo"]],
    [{ pattern: "o.*o|^$", path: "blank.txt" }, ["blank.txt:1:", "blank.txt:2:"]],
    [{ pattern: "(foo", literal: true, path: "sub" }, []],
    [{ pattern: "foo-b", literal: true, path: "sub" }, ["sub/b.ts:2:foo-bar"]],
    [{ pattern: "-bar", path: "sub/b.ts" }, ["sub/b.ts:2:foo-bar"]],
    [{ pattern: "^foo at", path: "bom.txt" }, ["bom.txt:1:foo at the start"]],
    [{ pattern: "caf", path: "latin.txt" }, ["latin.txt:1:foo caf\ufffd"]],
    [{ pattern: "😀", path: "sub" }, ["sub/b.ts:1:const foo = 'é😀';"]],
    [{ pattern: "[éè]", path: "sub" }, ["sub/b.ts:1:const foo = 'é😀';"]],
    [{ pattern: "foo", path: "skip.log" }, ["skip.log:1:foo"]],
    [{ pattern: "foo", glob: "*.log", include_ignored: true }, ["skip.log:1:foo"]],
    [{ pattern: "\\bfoo\\b\\-", path: "sub" }, ["sub/b.ts:2:foo-bar"]],
    [{ pattern: "foo", glob: "{early,late}.bin" }, ["late.bin:1:foo early", "late.bin:6002:foo here"]],
  ])("finds by %j", async (args, expected) => {
    const folder = makeFolder();
    writeTree(folder, TREE);
    const found = await grepIn(engine, folder, args);
    expect(found.text === "" ? [] : found.text.split("\n")).toEqual(expected);
    expect(found.shown).toBe(expected.length);
  });

  it("leaves out matching lines over 500 characters, and counts them", async () => {
    const folder = makeFolder();
    writeTree(folder, { "wide.txt": `foo${"x".repeat(497)}\nfoo${"x".repeat(498)}\nfoo ${"y".repeat(3_000_000)}\nfoo\n` });
    const found = await grepIn(engine, folder, { pattern: "foo" });
    expect(found.text).toBe(`wide.txt:1:foo${"x".repeat(497)}\nwide.txt:4:foo`);
    expect(found.notes).toContainEqual(expect.stringContaining("2 matching lines with over 500 characters"));
  });

  it("names files only, once each, when asked", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "foo\nfoo\n", "b.txt": `${"x".repeat(600)}foo\n`, "c.txt": "bar\n" });
    expect((await grepIn(engine, folder, { pattern: "foo", output: "files" })).text.split("\n")).toEqual(["a.txt", "b.txt"]);
  });

  it("gives 250 lines a call, and every one of them exactly once over all pages", async () => {
    const folder = makeFolder();
    writeTree(folder, Object.fromEntries(Array.from({ length: 4 }, (_, index) => [`f${index}.txt`, "foo\n".repeat(200)])));
    const seen: string[] = [];
    const pages: number[] = [];
    for (let offset: number | null = 0; offset !== null; ) {
      const page = await grepIn(engine, folder, { pattern: "foo", offset });
      pages.push(page.shown);
      seen.push(...page.text.split("\n"));
      offset = page.next_offset;
    }
    expect(pages).toEqual([250, 250, 250, 50]);
    expect(new Set(seen).size).toBe(800);
  });

  it("keeps to the byte budget and goes on from what it showed", async () => {
    const folder = makeFolder();
    writeTree(folder, { "q.txt": `${`foo ${'"'.repeat(400)}\n`.repeat(40)}` });
    let total = 0;
    for (let offset: number | null = 0; offset !== null; ) {
      const page = await grepIn(engine, folder, { pattern: "foo", offset }, { budgetBytes: 4096 });
      expect(jsonBytes(page)).toBeLessThanOrEqual(4096);
      expect(page.shown).toBeGreaterThan(1);
      total += page.shown;
      offset = page.next_offset;
    }
    expect(total).toBe(40);
  });

  it.each(["(", "[z-a]", "*", "a{2,1}", "a\nb", "a\\nb"])(
    "refuses the pattern %j with a typed fault, with and without files",
    async (pattern) => {
      const folder = makeFolder();
      await expect(grepIn(engine, folder, { pattern })).rejects.toMatchObject({ name: "WorkspaceFault", code: "pattern_invalid" });
      writeTree(folder, { "a.txt": "x\n" });
      await expect(grepIn(engine, folder, { pattern })).rejects.toMatchObject({ name: "WorkspaceFault", code: "pattern_invalid" });
    },
  );

  it("searches 3,000 files in lots, and an argument list longer than one command takes", async () => {
    const folder = makeFolder();
    const long = "n".repeat(200);
    for (let index = 0; index < 3000; index += 1)
      writeFileSync(path.join(folder, `${long}${index}`), index % 1000 === 7 ? "needle\n" : "hay\n");
    const found = await grepIn(engine, folder, { pattern: "needle" });
    expect(found.text.split("\n").map((line) => line.slice(long.length))).toEqual(["1007:1:needle", "2007:1:needle", "7:1:needle"]);
  });

  it("passes over files that it may not read", async () => {
    const folder = makeFolder();
    chmodSync(folder, 0o755);
    writeTree(folder, { "locked.txt": "foo\n", "open.txt": "foo\n" });
    chmodSync(path.join(folder, "locked.txt"), 0o000);
    await asNobody(async () => {
      expect((await grepIn(engine, folder, { pattern: "foo" })).text).toBe("open.txt:1:foo");
    });
  });

  it("does not hang on pipes, devices and loops of links", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "foo\n" });
    execFileSync("mkfifo", [path.join(folder, "pipe")]);
    symlinkSync(".", path.join(folder, "loop"));
    symlinkSync("/dev/zero", path.join(folder, "zero"));
    expect((await grepIn(engine, folder, { pattern: "foo" })).text).toBe("a.txt:1:foo");
    await expect(grepIn(engine, folder, { pattern: "foo", path: "pipe" })).rejects.toMatchObject({ code: "not_a_file" });
    await expect(grepIn(engine, folder, { pattern: "foo", path: "zero" })).rejects.toMatchObject({ code: "outside_workspace" });
    await expect(grepIn(engine, folder, { pattern: "foo", path: "nope" })).rejects.toMatchObject({ code: "not_found" });
  });
});

/** Living children of this process by that name. */
function children(name: string): string[] {
  return readdirSync("/proc")
    .filter((pid) => /^\d+$/.test(pid))
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
        return stat.includes(`(${name}) `) && stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1] === String(process.pid);
      } catch {
        return false;
      }
    });
}

describe("grep and cancels", () => {
  it("ends when the call is cancelled, and leaves no ripgrep behind", async ({ skip }) => {
    skip(!isInstalled, "ripgrep is not installed");
    const folder = makeFolder();
    const file = path.join(folder, "huge.txt");
    writeFileSync(file, "x\n".repeat(8000));
    truncateSync(file, 16 * 1024 ** 3);
    const controller = new AbortController();
    const searching = grepIn(ripgrepEngine("rg"), folder, { pattern: "never there" }, { signal: controller.signal });
    const ended = expect(searching).rejects.toThrow("cancelled by a test");
    await until(() => children("rg").length > 0, "the start of ripgrep");
    controller.abort(new Error("cancelled by a test"));
    await ended;
    expect(children("rg")).toEqual([]);
  });

  it("ends the built-in search when the call is cancelled, whatever it is at", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": `${"a".repeat(60)}b\n` });
    const controller = new AbortController();
    const searching = grepIn(builtInEngine(), folder, { pattern: "^(a|aa)+$" }, { signal: controller.signal });
    const ended = expect(searching).rejects.toThrow("cancelled by a test");
    setTimeout(() => controller.abort(new Error("cancelled by a test")), 200);
    await ended;
  });
});

describe("grep without ripgrep (W5)", () => {
  it("says so, and that the order is not promised", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "foo\n" });
    const { notes } = await grepIn(builtInEngine(), folder, { pattern: "foo" });
    expect(notes).toEqual([expect.stringMatching(/ripgrep is not installed.*the order of matches is not promised/)]);
  });

  it("finds the same as ripgrep on the same tree", async ({ skip }) => {
    skip(!isInstalled, "ripgrep is not installed");
    const folder = makeFolder();
    writeTree(folder, TREE);
    for (const args of [
      { pattern: "foo" },
      { pattern: "(?i)FOO" },
      { pattern: "^" },
      { pattern: "$" },
      { pattern: "\\s" },
      // A byte that is not UTF-8 is a character to the built-in search only.
      { pattern: "[^a-z ]", glob: "[!l]*" },
      { pattern: "^\\w+$" },
      { pattern: "o{2}\\b" },
      { pattern: "x", output: "files" },
      { pattern: ".", literal: true },
      { pattern: "a|e", ignore_case: true, glob: "**/*.t*" },
    ]) {
      const [one, other] = await Promise.all([grepIn(ripgrepEngine("rg"), folder, args), grepIn(builtInEngine(), folder, args)]);
      expect([args, other.text, other.next_offset]).toEqual([args, one.text, one.next_offset]);
    }
  });

  it("ends a regular expression that blows up, and says that time ran out, while the runner stays awake", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": `${"a".repeat(60)}b\n` });
    let ticks = 0;
    const ticking = setInterval(() => {
      ticks += 1;
    }, 10);
    const searching = grepIn(builtInEngine(), folder, { pattern: "^(a|aa)+$" }, { searchMs: 500 });
    await expect(searching).rejects.toMatchObject({ code: "search_timed_out" });
    clearInterval(ticking);
    expect(ticks).toBeGreaterThan(10);
  });

  it("keeps what was found before time ran out", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "aaa\n", "b.txt": `${"a".repeat(60)}b\n` });
    const found = await grepIn(builtInEngine(), folder, { pattern: "^(a|aa)+$" }, { searchMs: 1_000 });
    expect(found.text).toBe("a.txt:1:aaa");
    expect(found.notes).toContainEqual("The search was stopped after 1 s; there may be more.");
  });
});
