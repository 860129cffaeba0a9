/**
 * The suite that every ledger passes unchanged: memory, SQLite, JetStream on one server and on three.
 *
 * Its tests share one store; each uses call ids of its own, as the calls of many users do.
 */
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { ENTRY_BYTES_MAX, type Ledger, type NewEntry, type Version } from "../../domain/ports/ledger.js";
import { describeBlobs } from "./describe-blobs.js";
import { describeLanes } from "./describe-lanes.js";
import { describeLife } from "./describe-life.js";
import { describeNotes } from "./describe-notes.js";
import { describeRaces } from "./describe-races.js";
import { describeRemoval } from "./describe-removal.js";
import {
  collect,
  type DescribeLedgerOptions,
  entry,
  eventually,
  freshId,
  isLedgerError,
  isLongRun,
  type LedgerFactory,
  type LedgerHarness,
  tailUntil,
  versionOf,
} from "./ledger-harness.js";

export type { DescribeLedgerOptions, LedgerFactory, LedgerHarness } from "./ledger-harness.js";

/** Registers the suite under `name`. `factory` is called once, before its first test. */
export function describeLedger(name: string, factory: LedgerFactory, options: DescribeLedgerOptions = {}): void {
  const timeout = (options.testTimeoutMs ?? 20_000) * (isLongRun() ? 10 : 1);
  describe(`ledger: ${name}`, { timeout }, () => {
    let harness: LedgerHarness | undefined;
    const store = (): LedgerHarness => {
      if (harness === undefined) throw new Error("the factory did not make a store");
      return harness;
    };
    const opened = async (): Promise<Ledger> => {
      const ledger = await store().open();
      onTestFinished(() => ledger.close());
      return ledger;
    };
    beforeAll(async () => {
      harness = await factory();
    }, 60_000);
    afterAll(async () => {
      await harness?.dispose();
    }, 60_000);

    describeAppends(opened);
    describeReads(opened);
    describeTail(store, opened);
    describeNotes(store, opened);
    describeIndex(store, opened);
    describeRaces(store, opened, options);
    describeBlobs(store, opened);
    describeLanes(store, opened);
    describeRemoval(store, opened);
    describeLife(store, opened);
  });
}

type Open = () => Promise<Ledger>;

function describeAppends(opened: Open): void {
  describe("append", () => {
    it("stores an entry when the call's last version is the expected one (L2)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const first = versionOf(await ledger.append(callId, 0, entry("a", "opens")));
      const second = versionOf(await ledger.append(callId, first, entry("b")));
      expect(second).toBeGreaterThan(first);
      const stored = await collect(ledger.read(callId));
      expect(stored.map(({ version, previous, data }) => [version, previous, data])).toEqual([
        [first, 0, "a"],
        [second, first, "b"],
      ]);
    });

    it("answers a conflict with the call's last version, and stores nothing (L2)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const first = versionOf(await ledger.append(callId, 0, entry("a", "opens")));
      const second = versionOf(await ledger.append(callId, first, entry("b")));
      for (const expected of [0, first, second + 1, second + 1_000_000]) {
        expect(await ledger.append(callId, expected, entry("late"))).toEqual({ kind: "conflict", current: second });
      }
      expect(await ledger.append(freshId("call"), second, entry("no such call"))).toEqual({ kind: "conflict", current: 0 });
      expect(await collect(ledger.read(callId))).toHaveLength(2);
    });

    it("answers a repeat of a stored entry as a duplicate, also when others followed it (L2)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const [a, b, c] = [entry("a", "opens"), entry("b"), entry("c")] as const;
      const first = versionOf(await ledger.append(callId, 0, a));
      expect(await ledger.append(callId, 0, a)).toEqual({ kind: "duplicate", version: first });
      const second = versionOf(await ledger.append(callId, first, b));
      const third = versionOf(await ledger.append(callId, second, c));
      expect(await ledger.append(callId, 0, a)).toEqual({ kind: "duplicate", version: first });
      expect(await ledger.append(callId, first, b)).toEqual({ kind: "duplicate", version: second });
      expect(await ledger.append(callId, second, c)).toEqual({ kind: "duplicate", version: third });
      expect((await collect(ledger.read(callId))).map(({ data }) => data)).toEqual(["a", "b", "c"]);
    });

    it("lets the loser of a place have the next one with the same entry (L2)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const first = versionOf(await ledger.append(callId, 0, entry("winner", "opens")));
      const loser = entry("loser");
      expect(await ledger.append(callId, 0, loser)).toEqual({ kind: "conflict", current: first });
      const second = versionOf(await ledger.append(callId, first, loser));
      expect(await ledger.append(callId, first, loser)).toEqual({ kind: "duplicate", version: second });
    });

    it("stores an entry once when it is sent twice at the same time (L2)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const same = entry("once", "opens");
      const outcomes = await Promise.all(Array.from({ length: 5 }, () => ledger.append(callId, 0, same)));
      const [stored] = await collect(ledger.read(callId));
      const version = stored?.version;
      expect(outcomes.filter(({ kind }) => kind === "appended")).toEqual([{ kind: "appended", version }]);
      expect(outcomes.filter(({ kind }) => kind === "duplicate")).toHaveLength(4);
      expect(outcomes.every((outcome) => outcome.kind !== "conflict" && outcome.version === version)).toBe(true);
      expect(await collect(ledger.read(callId))).toHaveLength(1);
    });

    it("gives versions that rise strictly over all calls and are never used twice, for 1,000 calls at once (L3)", async () => {
      const ledger = await opened();
      const calls = Array.from({ length: 1_000 }, () => freshId("call"));
      const versions = await Promise.all(
        calls.map(async (callId) => {
          const first = versionOf(await ledger.append(callId, 0, entry(`${callId} a`, "opens")));
          const second = versionOf(await ledger.append(callId, first, entry(`${callId} b`, "settles")));
          expect(second).toBeGreaterThan(first);
          return [first, second];
        }),
      );
      expect(new Set(versions.flat()).size).toBe(2_000);
      const later = versionOf(await ledger.append(freshId("call"), 0, entry("later", "opens")));
      expect(later).toBeGreaterThan(Math.max(...versions.flat()));
      const seen = await tailUntil(ledger, Math.min(...versions.flat()), (entries) => entries.at(-1)?.version === later);
      expect(new Set(seen.map(({ data }) => data))).toEqual(new Set([...calls.flatMap((id) => [`${id} a`, `${id} b`]), "later"]));
    });

    it("takes an entry of exactly the limit and refuses one byte more (L7)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const full = "é".repeat(ENTRY_BYTES_MAX / 2);
      const first = versionOf(await ledger.append(callId, 0, entry(full, "opens")));
      const [stored] = await collect(ledger.read(callId));
      expect(stored?.data === full).toBe(true);
      await expect(ledger.append(callId, first, entry(`${full}x`))).rejects.toSatisfy(isLedgerError("entry_too_large"));
      await expect(ledger.append(callId, first, entry("x".repeat(ENTRY_BYTES_MAX + 1)))).rejects.toSatisfy(
        isLedgerError("entry_too_large"),
      );
      expect(await collect(ledger.read(callId))).toHaveLength(1);
    });

    it("refuses ids that could name more than one call, and versions that are none", async () => {
      const ledger = await opened();
      for (const callId of ["", "*", ">", "a.b", "a b", "call/1", "call\n", "ü", "x".repeat(129)]) {
        await expect(ledger.append(callId, 0, entry("x")), JSON.stringify(callId)).rejects.toBeInstanceOf(TypeError);
      }
      for (const entryId of ["", "a\r\nb: c", "x".repeat(65)]) {
        const bad: NewEntry = { entryId, data: "x", mark: "none" };
        await expect(ledger.append(freshId("call"), 0, bad), JSON.stringify(entryId)).rejects.toBeInstanceOf(TypeError);
      }
      for (const expected of [-1, 0.5, Number.NaN, 2 ** 53]) {
        await expect(ledger.append(freshId("call"), expected, entry("x"))).rejects.toBeInstanceOf(TypeError);
      }
    });
  });
}

function describeReads(opened: Open): void {
  describe("read", () => {
    it("gives back data and ids exactly, whatever is in them", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const texts = ["", "\u0000", 'a\r\nNATS/1.0\r\n\r\n"', "💩é\u2028", "{}".repeat(100_000)];
      let last: Version = 0;
      const entries: NewEntry[] = texts.map((text) => entry(text));
      for (const next of entries) last = versionOf(await ledger.append(callId, last, next));
      const stored = await collect(ledger.read(callId));
      expect(stored.map(({ entryId }) => entryId)).toEqual(entries.map(({ entryId }) => entryId));
      expect(stored.map(({ data }) => data)).toEqual(texts);
      expect(stored.every((found) => found.callId === callId)).toBe(true);
    });

    it("begins at the first entry whose version is at least `from`", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const versions: Version[] = [];
      for (const data of ["a", "b", "c"]) versions.push(versionOf(await ledger.append(callId, versions.at(-1) ?? 0, entry(data))));
      const [first = 0, second = 0, third = 0] = versions;
      const dataFrom = async (from: Version) => (await collect(ledger.read(callId, from))).map(({ data }) => data);
      expect(await dataFrom(0)).toEqual(["a", "b", "c"]);
      expect(await dataFrom(first)).toEqual(["a", "b", "c"]);
      expect(await dataFrom(first + 1)).toEqual(["b", "c"]);
      expect(await dataFrom(second)).toEqual(["b", "c"]);
      expect(await dataFrom(third)).toEqual(["c"]);
      expect(await dataFrom(third + 1)).toEqual([]);
    });

    it("finds nothing for a call that is not stored, nor for an id that can name none", async () => {
      const ledger = await opened();
      await ledger.append(freshId("call"), 0, entry("another call's"));
      for (const callId of [freshId("call"), "*", ">", "", "a.b", "call_*", "x'; DROP TABLE entries; --", "\u0000"]) {
        expect(await collect(ledger.read(callId)), JSON.stringify(callId)).toEqual([]);
      }
    });

    it("reads a call of 700 entries in order while others are appended (L8)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const versions: Version[] = [];
      for (let index = 0; index < 700; index += 1) {
        versions.push(versionOf(await ledger.append(callId, versions.at(-1) ?? 0, entry(String(index)))));
      }
      const seen: Version[] = [];
      for await (const stored of ledger.read(callId)) {
        // An append between two entries of a read that is under way.
        if (seen.length % 100 === 0) versionOf(await ledger.append(freshId("call"), 0, entry("between")));
        seen.push(stored.version);
      }
      expect(seen).toEqual(versions);
    });
  });
}

function describeTail(store: () => LedgerHarness, opened: Open): void {
  describe("tail", () => {
    it("begins at any version, then follows live, with nothing lost and nothing twice", async () => {
      const ledger = await opened();
      const versions: Version[] = [];
      for (let index = 0; index < 20; index += 1) versions.push(versionOf(await ledger.append(freshId("call"), 0, entry(`old ${index}`))));
      const middle = versions[10] ?? 0;
      const following = tailUntil(ledger, middle, (seen) => seen.length === 310);
      const live = await Promise.all(Array.from({ length: 300 }, (_, index) => ledger.append(freshId("call"), 0, entry(`new ${index}`))));
      const seen = (await following).map(({ version }) => version);
      expect(seen).toEqual([...versions.slice(10), ...live.map(versionOf)].sort((a, b) => a - b));
    });

    it("waits for a version that is not stored yet", async () => {
      const ledger = await opened();
      const last = versionOf(await ledger.append(freshId("call"), 0, entry("before")));
      const following = tailUntil(ledger, last + 3, (seen) => seen.length === 1);
      const versions: Version[] = [];
      for (let index = 0; index < 3; index += 1) versions.push(versionOf(await ledger.append(freshId("call"), 0, entry(`n ${index}`))));
      const [stored] = await following;
      // Versions may have gaps (L3), but what comes first is the first one at or after what was asked for.
      expect(stored?.version).toBe(versions.find((version) => version >= last + 3));
    });

    it("ends quietly when its signal aborts, at once or while it waits", async () => {
      const ledger = await opened();
      const last = versionOf(await ledger.append(freshId("call"), 0, entry("x")));
      expect(await collect(ledger.tail(0, AbortSignal.abort()))).toEqual([]);
      const abort = new AbortController();
      const waiting = collect(ledger.tail(last + 1, abort.signal));
      await ledger.check();
      abort.abort();
      expect(await waiting).toEqual([]);
    });

    it("serves several readers at their own pace", async () => {
      const ledger = await opened();
      const from = versionOf(await ledger.append(freshId("call"), 0, entry("start")));
      const slow = (async () => {
        const abort = new AbortController();
        const seen: Version[] = [];
        for await (const stored of ledger.tail(from, abort.signal)) {
          seen.push(stored.version);
          if (seen.length === 101) break;
          if (seen.length % 10 === 0) await ledger.check();
        }
        return seen;
      })();
      const quick = tailUntil(ledger, from, (seen) => seen.length === 101);
      await Promise.all(Array.from({ length: 100 }, () => ledger.append(freshId("call"), 0, entry("x"))));
      const expected = (await quick).map(({ version }) => version);
      expect(await slow).toEqual(expected);
      expect(expected).toEqual([...expected].sort((a, b) => a - b));
    });

    it("sees what another broker appends", async ({ skip }) => {
      skip(!store().shared, "this store has one process only");
      const [here, there] = [await opened(), await opened()];
      const from = versionOf(await here.append(freshId("call"), 0, entry("start")));
      const following = tailUntil(here, from + 1, (seen) => seen.length === 1);
      const version = versionOf(await there.append(freshId("call"), 0, entry("from there")));
      expect((await following).map((stored) => [stored.version, stored.data])).toEqual([[version, "from there"]]);
    });
  });
}

function describeIndex(store: () => LedgerHarness, opened: Open): void {
  const namedBy = async (ledger: Ledger): Promise<Set<string>> => new Set((await collect(ledger.openCalls())).map(({ callId }) => callId));

  describe("openCalls", () => {
    it("names every call that is open, and stops naming one that was settled (L4)", async () => {
      const ledger = await opened();
      const [open, advanced, settled] = [freshId("call"), freshId("call"), freshId("call")] as const;
      await ledger.append(open, 0, entry("a", "opens"));
      await ledger.append(advanced, versionOf(await ledger.append(advanced, 0, entry("a", "opens"))), entry("b"));
      await ledger.append(settled, versionOf(await ledger.append(settled, 0, entry("a", "opens"))), entry("b", "settles"));
      const named = await namedBy(ledger);
      expect(named.has(open)).toBe(true);
      expect(named.has(advanced)).toBe(true);
      await eventually("the settled call is no longer named", async () => !(await namedBy(ledger)).has(settled));
      expect((await namedBy(ledger)).has(open)).toBe(true);
    });

    it("keeps naming a call when an entry that would settle it lost its place (L2, L4)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const first = versionOf(await ledger.append(callId, 0, entry("a", "opens")));
      await ledger.append(callId, first, entry("b"));
      expect((await ledger.append(callId, first, entry("late", "settles"))).kind).toBe("conflict");
      expect((await namedBy(ledger)).has(callId)).toBe(true);
    });

    it("names 2,500 open calls once each", async () => {
      const ledger = await opened();
      const calls = Array.from({ length: 2_500 }, () => freshId("call"));
      await Promise.all(calls.map((callId) => ledger.append(callId, 0, entry("a", "opens"))));
      const all = (await collect(ledger.openCalls())).map(({ callId }) => callId);
      const named = new Set(all);
      expect(named.size).toBe(all.length);
      expect(calls.filter((callId) => !named.has(callId))).toEqual([]);
    });

    it("names open calls of a broker that went away, also after its records were retired (L4)", async () => {
      const before = await store().open();
      const callId = freshId("call");
      const settledLater = freshId("call");
      await before.append(callId, 0, entry("a", "opens"));
      const first = versionOf(await before.append(settledLater, 0, entry("a", "opens")));
      await before.close();
      const after = await opened();
      expect([...(await namedBy(after))]).toEqual(expect.arrayContaining([callId, settledLater]));
      await after.retire("gone");
      await after.append(settledLater, first, entry("b", "settles"));
      expect((await namedBy(after)).has(callId)).toBe(true);
      await eventually("the settled call is no longer named", async () => !(await namedBy(after)).has(settledLater));
    });
  });
}
