import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openLineFile, readLines } from "./handler-files.js";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-lines-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe("a file of lines", () => {
  it("gives back what was written, over processes", () => {
    const path = join(folder, "lines");
    for (const n of [1, 2]) {
      const file = openLineFile(path);
      file.write({ n });
      file.close();
    }
    expect(readLines(path)).toEqual([{ n: 1 }, { n: 2 }]);
    expect(readLines(join(folder, "none"))).toEqual([]);
  });

  it("leaves out a line that a kill cut off, and nothing that follows it", () => {
    const path = join(folder, "lines");
    appendFileSync(path, '{"n":1}\n{"n":');
    const file = openLineFile(path);
    file.write({ n: 3 });
    file.close();
    expect(readLines(path)).toEqual([{ n: 1 }, { n: 3 }]);
  });

  it("is refused when a whole line is damaged", () => {
    const path = join(folder, "lines");
    appendFileSync(path, '{"n":1}\n{"n"#2}\n');
    expect(() => readLines(path)).toThrow(/not JSON/);
  });
});
