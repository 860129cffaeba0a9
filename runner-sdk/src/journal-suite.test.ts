import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "vitest";
import { memoryJournal } from "./index.js";
import { JOURNAL_SCENARIOS } from "./journal-suite.test.kit.js";
import { fileJournal } from "./node.js";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-journal-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe.each([
  ["a journal in a file", () => fileJournal(join(folder, "journal"))],
  ["a journal in memory, while its process lives", () => memoryJournal()],
])("%s", (_title, make) => {
  it.each(JOURNAL_SCENARIOS)("$title", async ({ run }) => {
    const journal = make();
    await run({ open: (clock) => journal.open({ clock }) });
  });
});
