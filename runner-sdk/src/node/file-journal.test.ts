import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../core/clock.js";
import { JournalError } from "../core/errors.js";
import type { JournalRecord, OpenJournal } from "../core/journal.js";
import { fileJournal, fileJournalOn, type JournalFiles } from "./file-journal.js";
import { decodeFile } from "./journal-codec.js";

let folder: string;
let path: string;
const opened: OpenJournal[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-journal-"));
  path = join(folder, "journal");
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((journal) => journal.close()));
  rmSync(folder, { recursive: true, force: true });
});

async function open(journal = fileJournal(path)): Promise<OpenJournal> {
  const held = await journal.open({ clock: systemClock });
  opened.push(held);
  return held;
}

const at = Date.now();
const granted = (id: string): JournalRecord => ({
  kind: "granted",
  callId: `call_${id}`,
  grantId: id,
  fence: 3,
  attempt: 2,
  tool: "work",
  version: "1",
  at,
});
const started = (id: string): JournalRecord => ({ kind: "started", grantId: id, at });
const finished = (id: string, resultJson = '"ü\\n"'): JournalRecord => ({
  kind: "finished",
  at,
  receipt: {
    callId: `call_${id}`,
    grantId: id,
    fence: 3,
    attempt: 2,
    digest: "d",
    startedAtUnixMs: 1,
    finishedAtUnixMs: 2,
    outcome: { kind: "succeeded", resultJson },
  },
});
const ids = (journal: OpenJournal) => [...journal.view.unacknowledged()].map((entry) => `${entry.grantId} ${entry.phase}`);

const realFiles: JournalFiles = {
  write: async (handle, bytes) => {
    await handle.writeFile(bytes);
  },
  sync: (handle) => handle.datasync(),
};

describe("a file journal", () => {
  it("gives back after a restart what was appended, and keeps its id", async () => {
    const first = await open();
    await first.append(granted("a"));
    await first.append(started("a"));
    await first.append(granted("b"));
    await first.append(finished("b"));
    await first.append({ kind: "refused", callId: "call_c", grantId: "c", fence: 9, neverStarted: true, at });
    first.note({ kind: "acknowledged", grantId: "c", at });
    await first.close();
    const second = await open();
    expect(second.journalId).toBe(first.journalId);
    expect(ids(second)).toEqual(["a started", "b finished"]);
    expect(second.view.get("a")).toMatchObject({ startedHere: false, tool: "work", attempt: 2 });
    expect(second.view.get("b")?.receipt?.outcome).toEqual({ kind: "succeeded", resultJson: '"ü\\n"' });
    expect(second.view.refusedFence("call_c")).toBe(9);
  });

  it("makes its folder and is readable by its owner only", async () => {
    path = join(folder, "deep", "er", "journal");
    await open();
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it("shows a record in its picture when it is on disk, not before (F1)", async () => {
    let synced = 0;
    const journal = await open(
      fileJournalOn(
        {
          write: realFiles.write,
          async sync(handle) {
            await handle.datasync();
            synced++;
          },
        },
        path,
      ),
    );
    synced = 0;
    const append = journal.append(granted("a"));
    expect(journal.view.get("a")).toBeUndefined();
    await append;
    expect(synced).toBe(1);
    expect(journal.view.get("a")).toBeDefined();
    expect(readFileSync(path, "utf8")).toContain('"grantId":"a"');
  });

  it("writes what comes together with one sync: group commit", async () => {
    let syncs = 0;
    const journal = await open(
      fileJournalOn(
        {
          write: realFiles.write,
          async sync(handle) {
            syncs++;
            await handle.datasync();
          },
        },
        path,
      ),
    );
    syncs = 0;
    await Promise.all(Array.from({ length: 500 }, (_, index) => journal.append(granted(`g${index}`))));
    expect(syncs).toBeLessThanOrEqual(2);
    expect(ids(journal)).toHaveLength(500);
  });

  it("drops a torn end, wherever a write was cut, and keeps everything before it", async () => {
    const first = await open();
    await first.append(granted("kept"));
    await first.close();
    const again = await open();
    const whole = statSync(path).size;
    await again.append(finished("torn", JSON.stringify("x".repeat(200))));
    await again.close();
    const bytes = readFileSync(path);
    for (let cut = whole; cut < bytes.length; cut += 7) {
      writeFileSync(path, bytes);
      truncateSync(path, cut);
      const journal = await open();
      expect(ids(journal)).toEqual(["kept granted"]);
      await journal.append(granted("after"));
      await journal.close();
      const reopened = await open();
      expect(ids(reopened)).toEqual(["kept granted", "after granted"]);
      await reopened.close();
    }
  });

  it("drops zeros that a power cut left behind the last sync", async () => {
    const first = await open();
    await first.append(granted("kept"));
    await first.close();
    appendFileSync(path, Buffer.alloc(4_096));
    expect(ids(await open())).toEqual(["kept granted"]);
  });

  it("refuses a file that is damaged before its end, and leaves it as it is", async () => {
    const first = await open();
    await first.append(granted("a"));
    await first.append(granted("b"));
    await first.append(granted("c"));
    await first.close();
    const bytes = readFileSync(path);
    const at = bytes.indexOf('"grantId":"b"');
    bytes[at + 12] = 0x58;
    writeFileSync(path, bytes);
    await expect(open()).rejects.toMatchObject({ code: "journal_corrupt" });
    expect(readFileSync(path)).toEqual(bytes);
  });

  it("refuses a file that is something else, a folder, and a later format", async () => {
    writeFileSync(path, "hello\n");
    await expect(open()).rejects.toMatchObject({ code: "journal_corrupt" });
    expect(readFileSync(path, "utf8")).toBe("hello\n");
    rmSync(path);
    mkdirSync(path);
    await expect(open()).rejects.toThrow("is not a file");
    rmSync(path, { recursive: true });
    writeFileSync(path, "");
    expect(ids(await open())).toEqual([]);
  });

  it("does not break on any bytes: it is read, empty or damaged", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(["read", "empty", "damaged"]).toContain(decodeFile(bytes).kind);
      }),
    );
  });

  it("gets shorter: many finished calls leave a file of bounded size", async () => {
    const journal = await open();
    const payload = JSON.stringify("x".repeat(50_000));
    for (let index = 0; index < 1_000; index++) {
      await journal.append(finished(`g${index}`, payload));
      journal.note({ kind: "acknowledged", grantId: `g${index}`, at: Date.now() });
    }
    await journal.append(granted("last"));
    // 16 MiB of acknowledged payload are kept; the file may be twice that and 4 MiB.
    expect(statSync(path).size).toBeLessThan(2 * 18 * 1_048_576 + 4 * 1_048_576);
    await journal.close();
    const again = await open();
    expect(ids(again)).toEqual(["last granted"]);
    expect(again.view.get("g999")?.acknowledged).toBe(true);
  });

  it("writes notes without being asked again, and on close", async () => {
    const first = await open();
    await first.append(finished("a"));
    first.note({ kind: "acknowledged", grantId: "a", at: Date.now() });
    expect(ids(first)).toEqual([]);
    await first.close();
    expect(ids(await open())).toEqual([]);
  });

  it("refuses to append after close", async () => {
    const journal = await open();
    await journal.close();
    await expect(journal.append(granted("a"))).rejects.toMatchObject({ code: "journal_closed" });
    journal.note(granted("b"));
    await journal.close();
  });
});

describe("a disk that fails (F2)", () => {
  function faulty() {
    let failing: "no" | "write" | "half" | "sync" = "no";
    const files: JournalFiles = {
      async write(handle, bytes) {
        if (failing === "write") throw new Error("ENOSPC: no space left on device");
        if (failing === "half") {
          await handle.write(bytes.subarray(0, Math.floor(bytes.length / 2)));
          throw new Error("EIO: i/o error");
        }
        await realFiles.write(handle, bytes);
      },
      async sync(handle) {
        if (failing === "sync") throw new Error("EIO: sync failed");
        await handle.datasync();
      },
    };
    return {
      files,
      fail: (how: typeof failing) => {
        failing = how;
      },
    };
  }

  it.each(["write", "half", "sync"] as const)("by %s rejects the append, and a later one writes everything that counts", async (how) => {
    const { files, fail } = faulty();
    const journal = await open(fileJournalOn(files, path));
    await journal.append(granted("before"));
    fail(how);
    const rejected = await journal.append(started("before")).catch((error: unknown) => error);
    expect(rejected).toBeInstanceOf(JournalError);
    expect(rejected).toMatchObject({ code: "journal_unwritable" });
    await expect(journal.append(granted("during"))).rejects.toMatchObject({ code: "journal_unwritable" });
    expect(ids(journal)).toEqual(["before granted"]);
    fail("no");
    await journal.append(granted("after"));
    expect(ids(journal)).toEqual(["before granted", "after granted"]);
    await journal.close();
    expect(ids(await open())).toEqual(["before granted", "after granted"]);
  });

  it("keeps a note that fell into the fault", async () => {
    const { files, fail } = faulty();
    const journal = await open(fileJournalOn(files, path));
    await journal.append(finished("a"));
    fail("write");
    journal.note({ kind: "acknowledged", grantId: "a", at: Date.now() });
    await expect(journal.append(granted("b"))).rejects.toBeInstanceOf(JournalError);
    fail("no");
    await journal.append(granted("c"));
    await journal.close();
    expect(ids(await open())).toEqual(["c granted"]);
  });

  it("at opening is told at once, and gives the lock back", async () => {
    const { files, fail } = faulty();
    fail("sync");
    await expect(open(fileJournalOn(files, path))).rejects.toMatchObject({ code: "journal_unwritable" });
    fail("no");
    await open(fileJournalOn(files, path));
  });
});

describe("one process at a time (F3)", () => {
  it("a second opening is refused with the holder's pid and what to do, until the first is closed", async () => {
    const first = await open();
    const error = await open().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "journal_in_use" });
    expect(String(error)).toContain(`pid ${process.pid}`);
    expect(String(error)).toContain("give each runner its own journal");
    await first.close();
    await open();
  });

  it("leaves no more than the journal and one lock file behind", async () => {
    for (let round = 0; round < 5; round++) await (await open()).close();
    const files = (await readdir(folder)).sort();
    expect(files).toHaveLength(2);
    expect(files[0]).toBe("journal");
    expect(files[1]).toMatch(/^journal\.lock\.\d+$/);
  });
});
