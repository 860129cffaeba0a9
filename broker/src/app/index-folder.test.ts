import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { createCallIndex } from "../call-index/call-index.js";
import type { Log, LogFields } from "../domain/ports/log.js";
import { createMemoryLedger } from "../ledger/memory/memory-ledger.js";
import { makeIndexFolder } from "./index-folder.js";

const parents: string[] = [];

function freshParent(): string {
  const parent = mkdtempSync(join(tmpdir(), "index-folder-"));
  parents.push(parent);
  return parent;
}

afterEach(() => {
  for (const parent of parents.splice(0)) rmSync(parent, { recursive: true, force: true });
});

function hear(): Log & { readonly lines: [string, LogFields | undefined][] } {
  const lines: [string, LogFields | undefined][] = [];
  const note = (event: string, fields?: LogFields): void => void lines.push([event, fields]);
  return { lines, debug: note, info: note, warn: note, error: note };
}

const inTwoMinutes = (): number => Date.now() + 120_000;

describe("the folder of a broker's own index", () => {
  it("is removed by a later broker when it was left behind, with whatever is in it", async () => {
    const parent = freshParent();
    const left = await makeIndexFolder(parent, hear());
    const index = createCallIndex({ ledger: createMemoryLedger(), file: left.file, log: hear() });
    await index.start();
    await index.stop();
    mkdirSync(join(parent, "toolrunner-index-empty"));
    const log = hear();
    const made = await makeIndexFolder(parent, log, inTwoMinutes);
    expect(readdirSync(parent)).toEqual([dirname(made.file).slice(parent.length + 1)]);
    expect(log.lines).toEqual([["call_index_left_overs_removed", { folder: parent, count: 2 }]]);
    await made.remove();
    expect(readdirSync(parent)).toEqual([]);
  });

  it("is left alone while its broker runs, while it is young, and when it is something else", async () => {
    const parent = freshParent();
    const running = await makeIndexFolder(parent, hear());
    const index = createCallIndex({ ledger: createMemoryLedger(), file: running.file, log: hear() });
    await index.start();
    const elsewhere = freshParent();
    writeFileSync(join(elsewhere, "treasure"), "gold");
    symlinkSync(elsewhere, join(parent, "toolrunner-index-link"));
    writeFileSync(join(parent, "toolrunner-index-file"), "a file");
    mkdirSync(join(parent, "other-folder"));
    mkdirSync(join(parent, "toolrunner-index-young"));
    const later = inTwoMinutes();
    utimesSync(join(parent, "toolrunner-index-young"), later / 1_000, later / 1_000);
    const before = readdirSync(parent);
    const log = hear();
    await makeIndexFolder(parent, log, () => later);
    expect(before.filter((name) => !readdirSync(parent).includes(name))).toEqual([]);
    expect(readdirSync(elsewhere)).toEqual(["treasure"]);
    expect(log.lines).toEqual([]);
    await index.stop();
  });

  it("is refused with the system's reason when it cannot be made", async () => {
    const log = hear();
    await expect(makeIndexFolder(join(freshParent(), "nowhere"), log)).rejects.toMatchObject({ code: "ENOENT" });
    expect(log.lines.map(([event]) => event)).toEqual(["call_index_left_overs_stay"]);
  });
});
