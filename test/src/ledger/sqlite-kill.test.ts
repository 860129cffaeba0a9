/** The SQLite ledger in a process of its own that is killed, or whose disk is full (L8). */
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Ledger, LedgerError, type Log, openSqliteLedger } from "@toolrunner/broker/internal";
import { describe, expect, it, onTestFinished } from "vitest";
import { eventually } from "../kit/eventually.js";

const CHILD = fileURLToPath(new URL("./sqlite-child.js", import.meta.url));
const LIMIT_TOOL = "/usr/bin/prlimit";
const silent: Log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
const rounds = process.env.TOOLRUNNER_LONG === "1" ? 30 : 4;

interface Acknowledged {
  readonly callId: string;
  readonly entryId: string;
  readonly version: number;
  readonly mark: string;
}

interface Writer {
  readonly child: ChildProcess;
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  /** Resolves when there are at least `count` acknowledgements. */
  reached(count: number): Promise<unknown>;
  acknowledged(): Promise<Acknowledged[]>;
}

async function startWriter(dataDir: string, command: readonly string[] = []): Promise<Writer> {
  const [file = process.execPath, ...args] = [...command, process.execPath, CHILD, dataDir];
  // Acknowledgements go to a file: a pipe that is full would hold the writer up, or refuse the line.
  const folder = await freshFolder();
  const path = join(folder, "acknowledged");
  const output = await open(path, "a");
  const child = spawn(file, args, { stdio: ["ignore", output.fd, "inherit"] });
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once("close", (code, signal) => resolve({ code, signal }));
  });
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
    await output.close();
  });
  const acknowledged = async (): Promise<Acknowledged[]> =>
    (await readFile(path, "utf8"))
      .split("\n")
      .slice(1, -1)
      .map((line) => {
        const [callId = "", entryId = "", version = "", mark = ""] = line.split(" ");
        return { callId, entryId, version: Number(version), mark };
      });
  return {
    child,
    ended,
    reached: (count) =>
      eventually(`${count} acknowledgements`, async () => {
        if (child.exitCode !== null || child.signalCode !== null)
          throw new Error(`the writer ended: ${child.exitCode} ${child.signalCode}`);
        return (await acknowledged()).length >= count;
      }),
    acknowledged,
  };
}

async function opened(dataDir: string): Promise<Ledger> {
  const ledger = await openSqliteLedger({
    dataDir,
    log: silent,
    onFatal: (error) => {
      throw error;
    },
  });
  onTestFinished(() => ledger.close());
  return ledger;
}

async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-kill-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** All that was acknowledged is there, once, at its version; the index names what is open and nothing that is settled. */
async function expectAllThere(ledger: Ledger, acknowledged: readonly Acknowledged[]): Promise<void> {
  const stored = new Map<string, { version: number; callId: string }>();
  const settled = new Set<string>();
  const all = new Set<string>();
  const abort = new AbortController();
  // Entries that were stored but not acknowledged any more lie behind the last acknowledged one: an entry of its own marks the end.
  const end = await ledger.append(`call_${randomUUID()}`, 0, { entryId: `ent_${randomUUID()}`, data: "end", mark: "none" });
  const last = end.kind === "appended" ? end.version : 0;
  for await (const entry of ledger.tail(0, abort.signal)) {
    expect(stored.has(entry.entryId)).toBe(false);
    stored.set(entry.entryId, entry);
    if (entry.data === "end") {
      if (entry.version === last) break;
      continue;
    }
    all.add(entry.callId);
    if (entry.data?.endsWith("settles") === true) settled.add(entry.callId);
  }
  for (const { callId, entryId, version } of acknowledged) expect(stored.get(entryId), entryId).toMatchObject({ callId, version });
  const named = new Set<string>();
  for await (const { callId } of ledger.openCalls()) named.add(callId);
  for (const callId of all) if (!settled.has(callId) && !named.has(callId)) throw new Error(`${callId} is open, and not named`);
  for (const callId of settled) if (named.has(callId)) throw new Error(`${callId} is settled, and named as open`);
}

describe("the SQLite ledger in a process that is killed", () => {
  it(`has every acknowledged entry after kill -9 in the middle of appends, ${rounds} times over (L8, I1)`, {
    timeout: 120_000,
  }, async () => {
    const dataDir = await freshFolder();
    const acknowledged: Acknowledged[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const writer = await startWriter(dataDir);
      await writer.reached(600 + 137 * round);
      writer.child.kill("SIGKILL");
      expect(await writer.ended).toEqual({ code: null, signal: "SIGKILL" });
      acknowledged.push(...(await writer.acknowledged()));
      const ledger = await opened(dataDir);
      await expectAllThere(ledger, acknowledged);
      await ledger.close();
    }
    const versions = acknowledged.map(({ version }) => version);
    expect(new Set(versions).size, "no version was given out twice (L3)").toBe(versions.length);
  });

  it("keeps the folder to itself while it runs, and leaves it free when it was killed (L8)", { timeout: 30_000 }, async () => {
    const dataDir = await freshFolder();
    const writer = await startWriter(dataDir);
    await writer.reached(10);
    await expect(opened(dataDir)).rejects.toSatisfy((error) => error instanceof LedgerError && error.code === "in_use");
    const before = (await writer.acknowledged()).length;
    await writer.reached(before + 100);
    writer.child.kill("SIGKILL");
    await writer.ended;
    await (await opened(dataDir)).check();
  });

  it("stops with code 74 when its disk takes no more, and has every acknowledged entry (L8)", { timeout: 60_000 }, async ({ skip }) => {
    if (!existsSync(LIMIT_TOOL)) return skip(`${LIMIT_TOOL} is not on this machine`);
    const dataDir = await freshFolder();
    // No file of this process may grow beyond this: the write-ahead log reaches it in the middle of a transaction.
    const writer = await startWriter(dataDir, [LIMIT_TOOL, "--fsize=3000000"]);
    expect(await writer.ended).toEqual({ code: 74, signal: null });
    const acknowledged = await writer.acknowledged();
    expect(acknowledged.length).toBeGreaterThan(500);
    await expectAllThere(await opened(dataDir), acknowledged);
  });
});
