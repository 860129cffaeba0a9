/** The part of the ledger suite about retention (L3, L6): entries and values that are removed, and what comes after them. */
import { describe, expect, it } from "vitest";
import type { BlobPlace, EntryPlace, Ledger, Version } from "../../domain/ports/ledger.js";
import { collect, entry, eventually, freshId, type LedgerHarness, tailUntil, versionOf } from "./ledger-harness.js";

const never = new AbortController().signal;

/** A call that was opened, went on and was settled: the versions of its three entries. */
async function settledCall(ledger: Ledger, callId: string): Promise<readonly [Version, Version, Version]> {
  const opened = versionOf(await ledger.append(callId, 0, entry("a", "opens")));
  const middle = versionOf(await ledger.append(callId, opened, entry("b")));
  return [opened, middle, versionOf(await ledger.append(callId, middle, entry("c", "settles")))];
}

async function versionsIn(ledger: Ledger, callId: string): Promise<readonly Version[]> {
  return (await collect(ledger.read(callId))).map(({ version }) => version);
}

/** Where the entries of `calls` lie; those of other tests are left out. */
async function placesOf(ledger: Ledger, calls: readonly string[], from = 0): Promise<readonly EntryPlace[]> {
  return (await collect(ledger.places(from, never))).filter(({ callId }) => calls.includes(callId));
}

/** Registers the tests of `remove` and `places`. */
export function describeRemoval(store: () => LedgerHarness, opened: () => Promise<Ledger>): void {
  const names = async (ledger: Ledger, callId: string): Promise<boolean> =>
    (await collect(ledger.openCalls())).some((call) => call.callId === callId);

  describe("removal", () => {
    it("takes away the entries that it names, and a read begins with what is left (L6)", async () => {
      const ledger = await opened();
      const [callId, other] = [freshId("call"), freshId("call")] as const;
      const [first, middle, last] = await settledCall(ledger, callId);
      const stays = await settledCall(ledger, other);
      await ledger.remove(callId, [first]);
      const left = await collect(ledger.read(callId));
      expect(left.map(({ version, previous }) => [version, previous])).toEqual([
        [middle, first],
        [last, middle],
      ]);
      await ledger.remove(callId, [middle, last]);
      expect(await versionsIn(ledger, callId)).toEqual([]);
      expect(await versionsIn(ledger, other)).toEqual(stays);
      expect((await placesOf(ledger, [callId, other])).map(({ version }) => version)).toEqual(stays);
    });

    it("may be done again, and by two at once: what is gone is passed over", async () => {
      const ledger = await opened();
      const again = store().shared ? await opened() : ledger;
      const callId = freshId("call");
      const versions = await settledCall(ledger, callId);
      await Promise.all([ledger.remove(callId, versions), again.remove(callId, versions), ledger.remove(callId, versions)]);
      await again.remove(callId, versions);
      await ledger.remove(freshId("call"), [1]);
      await ledger.remove(callId, []);
      expect(await versionsIn(again, callId)).toEqual([]);
    });

    it("gives room to a new call of the same id, whose entries a late removal does not touch (X12, L3)", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const old = await settledCall(ledger, callId);
      expect(await ledger.append(callId, 0, entry("new", "opens"))).toEqual({ kind: "conflict", current: old[2] });
      await ledger.remove(callId, old);
      const fresh = await settledCall(ledger, callId);
      expect(fresh[0]).toBeGreaterThan(old[2]);
      await ledger.remove(callId, old);
      expect(await versionsIn(ledger, callId)).toEqual(fresh);
    });

    it("answers an append on top of what is gone with a conflict", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const versions = await settledCall(ledger, callId);
      await ledger.remove(callId, versions);
      expect(await ledger.append(callId, versions[2], entry("late"))).toEqual({ kind: "conflict", current: 0 });
      expect(await versionsIn(ledger, callId)).toEqual([]);
    });

    it("of the newest entries gives their versions to nobody else, also after a close and an open (L3)", async () => {
      const before = await store().open();
      const callId = freshId("call");
      const versions = await settledCall(before, callId);
      await before.remove(callId, versions);
      await before.close();
      const after = await opened();
      expect(await versionsIn(after, callId)).toEqual([]);
      expect(versionOf(await after.append(callId, 0, entry("new", "opens")))).toBeGreaterThan(versions[2]);
    });

    it("of the newest entries gives their versions to nobody else, also after a crash (L3)", async ({ skip }) => {
      const { crash } = store();
      if (crash === undefined) return skip("this store cannot be crashed from inside the test's process");
      const ledger = await opened();
      const callId = freshId("call");
      const versions = await settledCall(ledger, callId);
      await ledger.remove(callId, versions);
      await crash.call(store());
      const after = store().shared ? await opened() : ledger;
      // A replica that leads from now on may be a moment behind.
      await eventually("the removed entries to be gone", async () => (await versionsIn(after, callId)).length === 0);
      expect(versionOf(await after.append(callId, 0, entry("new", "opens")))).toBeGreaterThan(versions[2]);
    });

    it("keeps the index of open calls: a new call of the same id is named, a removed one is not (L4)", async () => {
      const ledger = await opened();
      const [callId, bystander] = [freshId("call"), freshId("call")] as const;
      await ledger.append(bystander, 0, entry("a", "opens"));
      await ledger.remove(callId, await settledCall(ledger, callId));
      await eventually("the removed call is not named", async () => !(await names(ledger, callId)));
      await ledger.append(callId, 0, entry("new", "opens"));
      expect(await names(ledger, callId)).toBe(true);
      expect(await names(ledger, bystander)).toBe(true);
    });

    it("leaves gaps that a tail passes, and a tail brings the new call of an old id", async () => {
      const ledger = await opened();
      const reader = store().shared ? await opened() : ledger;
      const [callId, later] = [freshId("call"), freshId("call")] as const;
      const old = await settledCall(ledger, callId);
      const followed = tailUntil(reader, old[0], (seen) => seen.some((stored) => stored.callId === later));
      const kept = (await settledCall(ledger, freshId("call")))[2];
      await ledger.remove(callId, old);
      const fresh = versionOf(await ledger.append(callId, 0, entry("new", "opens")));
      const end = versionOf(await ledger.append(later, 0, entry("end")));
      const seen = (await followed).map(({ version }) => version);
      expect(seen).toEqual(expect.arrayContaining([kept, fresh, end]));
      const anew = (await tailUntil(reader, old[0], (found) => found.some((stored) => stored.callId === later))).map(
        ({ version }) => version,
      );
      expect(anew.filter((version) => old.includes(version))).toEqual([]);
      expect(anew).toEqual(expect.arrayContaining([kept, fresh, end]));
    });

    it("lists the places of entries in version order, from a version on, and ends", async () => {
      const ledger = await opened();
      const calls = Array.from({ length: 700 }, () => freshId("call"));
      const written = (await Promise.all(calls.map((callId) => settledCall(ledger, callId)))).flat().sort((a, b) => a - b);
      const places = await placesOf(ledger, calls);
      expect(places.map(({ version }) => version)).toEqual(written);
      const middle = written[1_000] as Version;
      expect((await placesOf(ledger, calls, middle)).map(({ version }) => version)).toEqual(written.slice(1_000));
      expect(places.filter(({ previous }) => previous === 0)).toHaveLength(700);
      const aborted = new AbortController();
      aborted.abort();
      expect(await collect(ledger.places(0, aborted.signal))).toEqual([]);
    });
  });

  describe("removal of values", () => {
    const freshName = (): string => `${freshId("call")}/${freshId("ent")}`;
    const placesIn = async (ledger: Ledger, wanted: readonly string[], from = 0): Promise<readonly BlobPlace[]> =>
      (await collect(ledger.blobs.places(from, never))).filter(({ name }) => wanted.includes(name));

    it("takes them from the list and from those who ask for them (L6)", async () => {
      const ledger = await opened();
      const { blobs } = ledger;
      const [name, other] = [freshName(), freshName()] as const;
      await blobs.put(name, "x".repeat(1_200_000));
      await blobs.put(other, "stays");
      const place = (await blobs.placeOf(name)) as number;
      expect(await blobs.remove({ name, place })).toBe(true);
      await expect(blobs.get(name)).rejects.toMatchObject({ code: "blob_missing" });
      expect(await blobs.placeOf(name)).toBeUndefined();
      expect(await blobs.remove({ name, place })).toBe(false);
      expect(await blobs.get(other)).toBe("stays");
      expect([...new Set((await placesIn(ledger, [name, other])).map((blob) => blob.name))]).toEqual([other]);
    });

    it("leaves one that was put again since, and its place is a later one", async () => {
      const { blobs } = await opened();
      const name = freshName();
      await blobs.put(name, "same");
      const before = (await blobs.placeOf(name)) as number;
      await blobs.put(name, "same");
      const after = (await blobs.placeOf(name)) as number;
      expect(after).toBeGreaterThan(before);
      expect(await blobs.remove({ name, place: before })).toBe(false);
      expect(await blobs.get(name)).toBe("same");
      expect(await blobs.remove({ name, place: after })).toBe(true);
      await blobs.put(name, "same");
      expect((await blobs.placeOf(name)) as number).toBeGreaterThan(after);
      expect(await blobs.get(name)).toBe("same");
    });

    it("at the same time as puts of the same value never leaves a put without its value", async () => {
      const { blobs } = await opened();
      for (let round = 0; round < 20; round += 1) {
        const name = freshName();
        await blobs.put(name, "v".repeat(600_000));
        const place = (await blobs.placeOf(name)) as number;
        await Promise.all([blobs.put(name, "v".repeat(600_000)), blobs.remove({ name, place }), blobs.remove({ name, place })]);
        expect((await blobs.get(name)).length).toBe(600_000);
      }
    });

    it("lists values in the order in which they were put, from a place on", async () => {
      const ledger = await opened();
      const wanted = [freshName(), freshName(), freshName()];
      for (const name of wanted) await ledger.blobs.put(name, name);
      const places = await placesIn(ledger, wanted);
      const highest = new Map(places.map(({ name, place }) => [name, place]));
      expect([...highest.keys()]).toEqual(wanted);
      expect(places.map(({ place }) => place)).toEqual(places.map(({ place }) => place).toSorted((a, b) => a - b));
      for (const name of wanted) expect(await ledger.blobs.placeOf(name)).toBe(highest.get(name));
      const from = highest.get(wanted[2] as string) as number;
      expect((await placesIn(ledger, wanted, from)).map(({ name }) => name)).toEqual([wanted[2]]);
    });

    it("refuses what is no name, and finds nothing under one", async () => {
      const { blobs } = await opened();
      await expect(blobs.remove({ name: "../x", place: 1 })).rejects.toBeInstanceOf(TypeError);
      expect(await blobs.placeOf("no name")).toBeUndefined();
      expect(await blobs.remove({ name: freshName(), place: 1 })).toBe(false);
    });
  });
}
