import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { REQUIREMENTS } from "./requirements.js";
import { SCENARIOS } from "./scenarios/index.js";

const sources = fileURLToPath(new URL("../../src", import.meta.url));

async function titlesBelow(folder: string): Promise<string> {
  const files = (await readdir(join(sources, folder), { recursive: true })).filter((file) => file.endsWith(".test.ts"));
  const texts = await Promise.all(files.map((file) => readFile(join(sources, folder, file), "utf8")));
  return texts.join("\n");
}

describe("the requirement manifest", () => {
  it("has each id once", () => {
    const ids = REQUIREMENTS.map(({ id }) => id);
    expect(ids.filter((id, index) => ids.indexOf(id) !== index)).toEqual([]);
  });

  it("has a scenario for each requirement of the matrix", () => {
    const shown = new Set(SCENARIOS.flatMap(({ shows }) => shows));
    expect(REQUIREMENTS.filter(({ id, shownBy }) => shownBy === "matrix" && !shown.has(id)).map(({ id }) => id)).toEqual([]);
  });

  it("knows every id that a scenario cites", () => {
    const known = new Set(REQUIREMENTS.map(({ id }) => id));
    expect(SCENARIOS.flatMap(({ shows }) => shows).filter((id) => !known.has(id))).toEqual([]);
  });

  it("has a test that cites each requirement outside the matrix, in the folders it names", async () => {
    const missing: string[] = [];
    for (const { id, shownBy } of REQUIREMENTS) {
      if (shownBy === "matrix") {
        continue;
      }
      const found = await Promise.all(shownBy.map(async (folder) => new RegExp(`\\b${id}\\b`).test(await titlesBelow(folder))));
      if (!found.some(Boolean)) {
        missing.push(id);
      }
    }
    expect(missing).toEqual([]);
  });
});
