import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Arguments } from "../arguments.js";
import { jsonBytes } from "../json-budget.js";
import { asNobody, noAbort, useFolders, writeTree } from "../testing/temp-folders.js";
import { WorkspaceFault } from "../workspace-fault.js";
import { WorkspaceRoot } from "../workspace-root.js";
import { read } from "./read.js";
import { MAX_LINES, RANGE_NEEDED_BYTES, READ_CHARACTERS } from "./read-file.js";

const makeFolder = useFolders();
const BUDGET = 32_768;

const readIn = (folder: string, args: Record<string, unknown>, budget = BUDGET) =>
  read(new WorkspaceRoot(folder), new Arguments(args), budget, noAbort());

const faultOf = async (work: Promise<unknown>): Promise<WorkspaceFault> => {
  const error = await work.then(
    (value) => {
      throw new Error(`no fault but ${JSON.stringify(value).slice(0, 200)}`);
    },
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof WorkspaceFault)) throw error;
  return error;
};

describe("read of a text file (W2)", () => {
  it("numbers lines from 1 and says that the end was reached", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "one\ntwo\nthree\n" });
    expect(await readIn(folder, { path: "a.txt" })).toEqual({
      kind: "file",
      text: "1\tone\n2\ttwo\n3\tthree",
      first: 1,
      last: 3,
      total: 3,
      next_offset: null,
      notes: [],
    });
  });

  it("counts a last line without a line break, and not the nothing after a final one", async () => {
    const folder = makeFolder();
    writeTree(folder, { "open.txt": "one\ntwo", "blank.txt": "\n\n" });
    expect(await readIn(folder, { path: "open.txt" })).toMatchObject({ text: "1\tone\n2\ttwo", total: 2 });
    expect(await readIn(folder, { path: "blank.txt" })).toMatchObject({ text: "1\t\n2\t", total: 2 });
  });

  it("says that an empty file is empty", async () => {
    const folder = makeFolder();
    writeTree(folder, { "empty.txt": "" });
    expect(await readIn(folder, { path: "empty.txt" })).toMatchObject({
      text: "",
      first: 0,
      last: 0,
      total: 0,
      next_offset: null,
      notes: ["The file is empty."],
    });
  });

  it("hides the CR of CRLF line ends and says so", async () => {
    const folder = makeFolder();
    writeTree(folder, { "dos.txt": "one\r\ntwo\r\n" });
    expect(await readIn(folder, { path: "dos.txt" })).toMatchObject({
      text: "1\tone\n2\ttwo",
      notes: ["Lines end in CRLF; the CR is not shown."],
    });
  });

  it("shows 2,000 lines by default and where to go on", async () => {
    const folder = makeFolder();
    writeTree(folder, { "long.txt": "x\n".repeat(2500) });
    const page = await readIn(folder, { path: "long.txt" });
    expect(page).toMatchObject({ first: 1, last: 2000, next_offset: 2001 });
    const rest = await readIn(folder, { path: "long.txt", offset: page.next_offset });
    expect(rest).toMatchObject({ first: 2001, last: 2500, total: 2500, next_offset: null });
  });

  it("takes offset and limit, and view_range with an end of 0 or less for the end", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "1\n2\n3\n4\n5\n" });
    expect(await readIn(folder, { path: "a.txt", offset: 2, limit: 2 })).toMatchObject({ text: "2\t2\n3\t3", next_offset: 4 });
    expect(await readIn(folder, { path: "a.txt", view_range: [2, 3] })).toMatchObject({ text: "2\t2\n3\t3", next_offset: 4 });
    for (const end of [0, -1]) {
      expect(await readIn(folder, { path: "a.txt", view_range: [4, end] })).toMatchObject({ text: "4\t4\n5\t5", next_offset: null });
    }
  });

  it.each([
    [{ view_range: [0, 3] }, "range_invalid"],
    [{ view_range: [3, 2] }, "range_invalid"],
    [{ view_range: [1, 2], offset: 1 }, "arguments_invalid"],
    [{ view_range: [1] }, "arguments_invalid"],
    [{ offset: 0 }, "arguments_invalid"],
    [{ limit: MAX_LINES + 1 }, "arguments_invalid"],
    [{ offset: 1.5 }, "arguments_invalid"],
    [{ offset: 9 }, "range_invalid"],
  ])("refuses the range %j as %s", async (range, code) => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "1\n2\n3\n" });
    expect((await faultOf(readIn(folder, { path: "a.txt", ...range }))).code).toBe(code);
  });

  it("cuts lines after 500 characters, never inside a surrogate pair, and says so", async () => {
    const folder = makeFolder();
    writeTree(folder, { "wide.txt": `${"x".repeat(499)}😀tail\n${"y".repeat(500)}\n` });
    const page = await readIn(folder, { path: "wide.txt" });
    const [wide, exact] = page.text.split("\n");
    expect(wide).toBe(`1\t${"x".repeat(499)}`);
    expect(exact).toBe(`2\t${"y".repeat(500)}`);
    expect(page.notes).toEqual([expect.stringContaining("1 line is cut after 500 characters (the longest has 505)")]);
  });

  it("stops at 60,000 characters", async () => {
    const folder = makeFolder();
    writeTree(folder, { "wide.txt": `${"x".repeat(400)}\n`.repeat(300) });
    const page = await readIn(folder, { path: "wide.txt" }, 1_000_000);
    expect(page.text.length).toBeLessThanOrEqual(READ_CHARACTERS + 4 * 150);
    expect(page.last).toBe(Math.floor((READ_CHARACTERS + 1) / 401));
    expect(page.next_offset).toBe(page.last + 1);
  });

  it("keeps to the byte budget with escapes counted, at any budget, and loses no line over all pages", async () => {
    const folder = makeFolder();
    const line = fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 700 }),
      fc.string({ unit: fc.constantFrom('"', "\\", "\t", "\u0001", "é", "😀", "a"), maxLength: 700 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(line, { minLength: 1, maxLength: 60 }), fc.integer({ min: 1024, max: 8192 }), async (drawn, budget) => {
        const lines = drawn.map((text) => `.${text.replace(/[\r\n\0]/g, "_")}`);
        writeTree(folder, { "any.txt": `${lines.join("\n")}\n` });
        const seen: string[] = [];
        for (let offset: number | null = 1; offset !== null; ) {
          const page = await readIn(folder, { path: "any.txt", offset }, budget);
          expect(jsonBytes(page)).toBeLessThanOrEqual(budget);
          expect(page.first).toBe(offset);
          seen.push(...page.text.split("\n"));
          offset = page.next_offset;
        }
        expect(seen.length).toBe(lines.length);
        seen.forEach((shown, index) => {
          const text = shown.slice(String(index + 1).length + 1);
          const whole = lines[index] ?? "";
          expect(whole.startsWith(text.endsWith("…") && text !== whole ? text.slice(0, -1) : text)).toBe(true);
          expect(text).not.toMatch(/[\ud800-\udfff]/u);
        });
      }),
      { numRuns: 60 },
    );
  });

  it("needs a range over 262,144 bytes, and reads one there", async () => {
    const folder = makeFolder();
    writeTree(folder, { "edge.txt": "x\n".repeat(RANGE_NEEDED_BYTES / 2), "big.txt": `${"x\n".repeat(RANGE_NEEDED_BYTES / 2)}y` });
    expect((await readIn(folder, { path: "edge.txt" })).last).toBe(2000);
    const fault = await faultOf(readIn(folder, { path: "big.txt" }));
    expect(fault.code).toBe("range_needed");
    expect(fault.message).toContain(String(RANGE_NEEDED_BYTES + 1));
    expect(await readIn(folder, { path: "big.txt", view_range: [131_073, 0] })).toMatchObject({ text: "131073\ty", total: 131_073 });
  });

  it("reads the first line before one of 4 GiB without reading that", async () => {
    const folder = makeFolder();
    const file = path.join(folder, "huge.txt");
    writeFileSync(file, `first\n${"x".repeat(10_000)}`);
    truncateSync(file, 4 * 1024 ** 3);
    expect(await readIn(folder, { path: "huge.txt", offset: 1, limit: 1 })).toMatchObject({
      text: "1\tfirst",
      next_offset: 2,
      total: null,
    });
  });

  it("stops reading a huge file when the call is cancelled", async () => {
    const folder = makeFolder();
    const file = path.join(folder, "huge.txt");
    writeFileSync(file, "x".repeat(10_000));
    truncateSync(file, 64 * 1024 ** 3);
    const controller = new AbortController();
    const reading = read(new WorkspaceRoot(folder), new Arguments({ path: "huge.txt", offset: 2 }), BUDGET, controller.signal);
    setTimeout(() => controller.abort(new Error("cancelled by a test")), 20);
    await expect(reading).rejects.toThrow("cancelled by a test");
  });

  it("puts characters together that lie across the borders of what is read at once", async () => {
    const folder = makeFolder();
    writeTree(folder, { "split.txt": `${"x".repeat(65_535)}\n${"é😀".repeat(40)}\n`, "split2.txt": `${"x\n".repeat(32_767)}x😀é\n` });
    expect((await readIn(folder, { path: "split.txt", offset: 2 })).text).toBe(`2\t${"é😀".repeat(40)}`);
    expect((await readIn(folder, { path: "split2.txt", offset: 32_768 })).text).toBe("32768\tx😀é");
  });

  it("shows bytes that are not UTF-8 as U+FFFD and says so", async () => {
    const folder = makeFolder();
    writeTree(folder, { "latin.txt": Buffer.from("caf\xe9\n", "latin1") });
    expect(await readIn(folder, { path: "latin.txt" })).toMatchObject({
      text: "1\tcaf\ufffd",
      notes: ["Bytes that are not UTF-8 are shown as U+FFFD."],
    });
  });
});

describe("what read refuses (W2, W10)", () => {
  it("refuses a file with a NUL early on as binary", async () => {
    const folder = makeFolder();
    writeTree(folder, {
      "a.bin": Buffer.from([0x41, 0x00, 0x42]),
      "late.txt": Buffer.concat([Buffer.from("x\n".repeat(5000)), Buffer.from([0])]),
    });
    expect((await faultOf(readIn(folder, { path: "a.bin" }))).code).toBe("binary_file");
    expect((await readIn(folder, { path: "late.txt", offset: 5001 })).text).toBe("5001\t\0");
  });

  it.each([
    ["pic.png", Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]), "PNG image"],
    ["pic.txt", Buffer.from([0xff, 0xd8, 0xff, 0xe0]), "JPEG image"],
    ["doc.pdf", Buffer.from("%PDF-1.7\n"), "PDF document"],
    ["book.ipynb", Buffer.from("{}"), "notebook"],
    ["wide.txt", Buffer.from("\ufeffhello", "utf16le"), "UTF-16 text file"],
  ])("refuses %s and says that it is a %3$s", async (name, content, kind) => {
    const folder = makeFolder();
    writeTree(folder, { [name]: content });
    const fault = await faultOf(readIn(folder, { path: name }));
    expect(fault.code).toBe("file_kind_unsupported");
    expect(fault.message).toContain(kind);
  });

  it("answers a missing path with a fault, also below a file", async () => {
    const folder = makeFolder();
    writeTree(folder, { "a.txt": "" });
    for (const missing of ["nope", "nope/deeper", "a.txt/below"]) {
      const fault = await faultOf(readIn(folder, { path: missing }));
      expect(fault.code).toBe("not_found");
      expect(fault.message).toContain(missing);
    }
  });

  it("never waits for a FIFO, a device or a socket", async () => {
    const folder = makeFolder();
    execFileSync("mkfifo", [path.join(folder, "pipe")]);
    expect((await faultOf(readIn(folder, { path: "pipe" }))).code).toBe("not_a_file");
    expect((await faultOf(readIn("/dev", { path: "zero" }))).code).toBe("not_a_file");
    expect((await faultOf(readIn("/dev", { path: "null" }))).code).toBe("not_a_file");
  });

  it("refuses paths outside the root: by .., absolute, by a link, through a linked folder, and whether or not they exist", async () => {
    const outside = makeFolder();
    const folder = path.join(makeFolder(), "root");
    writeTree(outside, { "secret.txt": "secret" });
    writeTree(folder, { "sub/a.txt": "inside" });
    symlinkSync(path.join(outside, "secret.txt"), path.join(folder, "link.txt"));
    symlinkSync(outside, path.join(folder, "linked"));
    symlinkSync("/", path.join(folder, "slash"));
    for (const requested of [
      "../x",
      "..",
      "sub/../../x",
      path.join(outside, "secret.txt"),
      path.join(outside, "missing.txt"),
      "link.txt",
      "linked",
      "linked/secret.txt",
      "linked/missing.txt",
      "slash/etc/passwd",
      "/etc/passwd",
      `${folder}x`,
    ]) {
      expect([requested, (await faultOf(readIn(folder, { path: requested }))).code]).toEqual([requested, "outside_workspace"]);
    }
  });

  it("follows links that stay inside, and takes the root's absolute path", async () => {
    const folder = makeFolder();
    writeTree(folder, { "sub/a.txt": "inside" });
    symlinkSync("sub/a.txt", path.join(folder, "link.txt"));
    symlinkSync("sub", path.join(folder, "linked"));
    for (const requested of ["link.txt", "linked/a.txt", "sub/../sub/a.txt", path.join(folder, "sub/a.txt")]) {
      expect((await readIn(folder, { path: requested })).text).toBe("1\tinside");
    }
  });

  it("resolves a root that is a link itself, and makes a root that is missing (W10)", async () => {
    const folder = makeFolder();
    writeTree(folder, { "real/a.txt": "inside" });
    symlinkSync("real", path.join(folder, "alias"));
    expect((await readIn(path.join(folder, "alias"), { path: "a.txt" })).text).toBe("1\tinside");
    expect(await readIn(path.join(folder, "new/deep"), { path: "." })).toMatchObject({ kind: "folder", notes: ["The folder is empty."] });
  });

  it("says when the root cannot be used", async () => {
    const folder = makeFolder();
    writeTree(folder, { file: "" });
    expect((await faultOf(readIn(path.join(folder, "file"), { path: "." }))).code).toBe("workspace_unusable");
  });

  it("answers a loop of links and an endless name with a fault", async () => {
    const folder = makeFolder();
    symlinkSync("loop-b", path.join(folder, "loop-a"));
    symlinkSync("loop-a", path.join(folder, "loop-b"));
    symlinkSync("self", path.join(folder, "self"));
    for (const name of ["loop-a", "self", "self/x"]) expect((await faultOf(readIn(folder, { path: name }))).code).toBe("not_found");
    expect((await faultOf(readIn(folder, { path: "n".repeat(5000) }))).code).toBe("arguments_invalid");
    expect((await faultOf(readIn(folder, { path: "a\0b" }))).code).toBe("arguments_invalid");
  });

  it("answers what the user may not read with permission_denied", async () => {
    const folder = makeFolder();
    chmodSync(folder, 0o755);
    writeTree(folder, { "locked.txt": "x", "closed/a.txt": "x" });
    chmodSync(path.join(folder, "locked.txt"), 0o000);
    chmodSync(path.join(folder, "closed"), 0o000);
    await asNobody(async () => {
      for (const name of ["locked.txt", "closed", "closed/a.txt"]) {
        expect([name, (await faultOf(readIn(folder, { path: name }))).code]).toEqual([name, "permission_denied"]);
      }
    });
  });
});

describe("read of a folder (W2)", () => {
  it("lists folders first, each group by name, and marks links and pipes", async () => {
    const folder = makeFolder();
    writeTree(folder, { "b.txt": "", "a.txt": "", "z/x": "", "y/x": "", "-dash": "", "new\nline": "" });
    symlinkSync("a.txt", path.join(folder, "link"));
    execFileSync("mkfifo", [path.join(folder, "pipe")]);
    const listing = await readIn(folder, { path: "." });
    expect(listing.text.split("\n")).toEqual([
      "y/",
      "z/",
      '"new\\nline"',
      "-dash",
      "a.txt",
      "b.txt",
      "link (link)",
      "pipe (pipe, socket or device)",
    ]);
    expect(listing).toMatchObject({ kind: "folder", first: 1, last: 8, total: 8, next_offset: null });
  });

  it("lists at most 500 entries and goes on from next_offset", async () => {
    const folder = makeFolder();
    for (let index = 0; index < 1203; index += 1) writeFileSync(path.join(folder, `f${index}`), "");
    mkdirSync(path.join(folder, "zz"));
    const seen: string[] = [];
    const pages: number[] = [];
    for (let offset: number | null = 1; offset !== null; ) {
      const page = await readIn(folder, offset === 1 ? { path: "." } : { path: ".", offset });
      pages.push(page.last - page.first + 1);
      seen.push(...page.text.split("\n"));
      offset = page.next_offset;
    }
    expect(pages).toEqual([500, 500, 204]);
    expect(new Set(seen).size).toBe(1204);
    expect(seen[0]).toBe("zz/");
  });

  it("refuses an offset past the end", async () => {
    expect((await faultOf(readIn(makeFolder(), { path: ".", offset: 2 }))).code).toBe("range_invalid");
  });
});
