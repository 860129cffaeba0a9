import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type JournalLock, takeJournalLock } from "./journal-lock.js";
import { livenessOf, ownIdentity } from "./process-identity.js";

let folder: string;
let path: string;
const locks: JournalLock[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-lock-"));
  path = join(folder, "journal");
});
afterEach(async () => {
  await Promise.all(locks.splice(0).map((lock) => lock.release()));
  rmSync(folder, { recursive: true, force: true });
});

async function take(): Promise<JournalLock> {
  const lock = await takeJournalLock(path);
  locks.push(lock);
  return lock;
}

const leave = (holder: object, ageMs = 0) => {
  const file = `${path}.lock.7`;
  writeFileSync(file, JSON.stringify({ released: false, holder: { ...ownIdentity(), ...holder } }));
  const then = new Date(Date.now() - ageMs);
  utimesSync(file, then, then);
};

/** A pid of a process that has ended. */
async function deadPid(): Promise<number> {
  const child = spawn(process.execPath, ["-e", ""], { stdio: "ignore" });
  await new Promise((resolve) => child.once("exit", resolve));
  return child.pid ?? 0;
}

describe("the journal's lock", () => {
  it("goes to one of many that want it at once", async () => {
    const results = await Promise.allSettled(Array.from({ length: 20 }, () => take()));
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const result of results) if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "journal_in_use" });
  });

  it("goes to one of many when its holder is dead, and to the next when it was given back", async () => {
    for (let round = 0; round < 5; round++) {
      leaveDead(round);
      const results = await Promise.allSettled(Array.from({ length: 10 }, () => take()));
      expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
      await Promise.all(locks.splice(0).map((lock) => lock.release()));
    }
    function leaveDead(round: number): void {
      writeFileSync(`${path}.lock.${100 * (round + 1)}`, JSON.stringify({ released: false, holder: { ...ownIdentity(), started: "1" } }));
    }
  });

  it("is not taken by a slow process that saw a dead holder before others took and released it, and does not disturb the one that has it", async () => {
    leave({ started: "1" });
    let holder: JournalLock | undefined;
    let looks = 0;
    const slow = takeJournalLock(path, async () => {
      looks++;
      if (looks > 1) return;
      await (await takeJournalLock(path)).release();
      holder = await takeJournalLock(path);
      locks.push(holder);
    });
    await expect(slow).rejects.toMatchObject({ code: "journal_in_use" });
    expect(await holder?.held()).toBe(true);
  });

  it("is taken from a process that ended", async () => {
    leave({ pid: await deadPid(), started: "12345" });
    await take();
  });

  it("is taken from a process whose pid another one has by now: the start time tells", async () => {
    leave({ pid: process.pid, started: "1" });
    await take();
  });

  it("is taken after the machine was started anew", async () => {
    leave({ boot: "another boot" });
    await take();
  });

  it("is not taken from a living process, which the error names", async () => {
    const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
    try {
      const pid = child.pid ?? 0;
      const { started } = await startOf(pid);
      leave({ pid, started }, 3_600_000);
      await expect(take()).rejects.toThrow(`used by process ${pid}:`);
    } finally {
      child.kill("SIGKILL");
    }
  });

  it.each([
    ["of another host", { host: "elsewhere" }],
    ["in another pid namespace", { namespace: "pid:[1]" }],
  ])("of a process %s is respected while that gives signs of life, and taken a minute after the last", async (_name, holder) => {
    leave(holder, 50_000);
    await expect(take()).rejects.toMatchObject({ code: "journal_in_use" });
    leave(holder, 61_000);
    await take();
  });

  it("with content that cannot be read is respected for a minute", async () => {
    const file = `${path}.lock.3`;
    writeFileSync(file, "{");
    await expect(take()).rejects.toThrow("cannot be named");
    const then = new Date(Date.now() - 61_000);
    utimesSync(file, then, then);
    await take();
  });

  it("knows when another process took it", async () => {
    const lock = await take();
    expect(await lock.held()).toBe(true);
    writeFileSync(`${path}.lock.50`, JSON.stringify({ released: false, holder: ownIdentity() }));
    expect(await lock.held()).toBe(false);
    expect(lock.lost).toBe(true);
    await lock.release();
    expect(readdirSync(folder)).toContain("journal.lock.50");
  });

  it("is released once, however often that is asked for", async () => {
    const lock = await take();
    await Promise.all([lock.release(), lock.release()]);
    const next = await take();
    await lock.release();
    expect(await next.held()).toBe(true);
  });
});

describe("whether a process lives", () => {
  it("is known of this one, of one that ended, and not of what cannot be seen", async () => {
    const own = ownIdentity();
    expect(own.host).toBe(hostname());
    expect(livenessOf(own)).toBe("alive");
    expect(livenessOf({ ...own, pid: await deadPid() })).toBe("dead");
    expect(livenessOf({ ...own, host: "elsewhere" })).toBe("unknown");
  });

  it("without start times is known only of one that ended", async () => {
    const own = { ...ownIdentity(), started: null, boot: null, namespace: null };
    expect(livenessOf({ ...own, pid: await deadPid() }, own)).toBe("dead");
    expect(livenessOf(own, own)).toBe("unknown");
  });
});

async function startOf(pid: number): Promise<{ started: string | null }> {
  const { readFileSync } = await import("node:fs");
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return { started: stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? null };
}
