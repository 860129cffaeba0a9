import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { EDGES } from "./edges.js";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const script = join(root, "scripts", "generate-state-diagram.mjs");
const committed = join(root, "docs", "state-machine.md");

function generate(...args: readonly string[]): Promise<{ readonly code: number | string; readonly stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [script, ...args], (error, _stdout, stderr) => resolve({ code: error?.code ?? 0, stderr }));
  });
}

describe("docs/state-machine.md", () => {
  it("is what the edge table generates", async () => {
    expect(await generate("--check")).toEqual({ code: 0, stderr: "" });
  });

  it("has a row for each edge and an arrow for each pair of states, but for adoption and evidence", () => {
    const text = readFileSync(committed, "utf8");
    for (const { from, on, to, when } of EDGES) {
      expect(text).toContain(`| \`${from}\` | \`${on}\` | ${when?.text ?? ""} | \`${to}\` |`);
      if (on !== "adopted" && on !== "evidence") {
        expect(text).toContain(`    ${from} --> ${to} : `);
      }
    }
  });

  it("is refused by the check when it is missing or one character differs", async () => {
    const folder = mkdtempSync(join(tmpdir(), "state-machine-"));
    try {
      const file = join(folder, "state-machine.md");
      expect((await generate("--check", "--file", file)).code).toBe(1);
      writeFileSync(file, `${readFileSync(committed, "utf8")} `);
      const stale = await generate("--check", "--file", file);
      expect(stale.code).toBe(1);
      expect(stale.stderr).toMatch(/out of date: run node scripts\/generate-state-diagram\.mjs/);
      expect((await generate("--file", file)).code).toBe(0);
      expect(readFileSync(file, "utf8")).toBe(readFileSync(committed, "utf8"));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
