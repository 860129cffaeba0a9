/** Notes of entries, and tails that rest on them; part of the suite that every ledger passes. */
import { describe, expect, it } from "vitest";
import { type Ledger, NOTE_UNITS_MAX, type TailedEntry, type Version } from "../../domain/ports/ledger.js";
import { entry, freshId, type LedgerHarness, tailUntil, versionOf } from "./ledger-harness.js";

/** What of a tailed entry does not depend on where it came from: with a note the data may be left out. */
const told = ({ callId, version, previous, entryId, note, data }: TailedEntry) => ({
  callId,
  version,
  previous,
  entryId,
  note,
  data: note === undefined ? data : "",
});

/** Registers the tests of notes and of `ledger.latest`. */
export function describeNotes(store: () => LedgerHarness, opened: () => Promise<Ledger>): void {
  describe("notes", () => {
    it("come back from a tail to the letter, whether it follows or begins later; without a note the data does", async () => {
      const ledger = await opened();
      const callId = freshId("call");
      const notes = ["running", undefined, '["queued","ü 😀 : ;",null,"\\u0085"]', "=running", "x".repeat(NOTE_UNITS_MAX), undefined];
      const from = versionOf(await ledger.append(freshId("call"), 0, entry("start")));
      const following = tailUntil(ledger, from + 1, (seen) => seen.length === notes.length);
      const expected: ReturnType<typeof told>[] = [];
      for (const [index, note] of notes.entries()) {
        const previous = expected.at(-1)?.version ?? 0;
        const written = { ...entry(`data ${index}`), note };
        const version = versionOf(await ledger.append(callId, previous, written));
        expected.push({ callId, version, previous, entryId: written.entryId, note, data: note === undefined ? `data ${index}` : "" });
      }
      expect((await following).map(told)).toEqual(expected);
      expect((await tailUntil(ledger, from + 1, (seen) => seen.length === notes.length)).map(told)).toEqual(expected);
      // A read is never without data.
      const read: string[] = [];
      for await (const { data } of ledger.read(callId)) read.push(data);
      expect(read).toEqual(notes.map((_, index) => `data ${index}`));
    });

    it("are refused when they are no line, or too long for a header", async () => {
      const ledger = await opened();
      for (const note of ["", "a\nb", "a\rb", " a", "a ", "x".repeat(NOTE_UNITS_MAX + 1)]) {
        await expect(ledger.append(freshId("call"), 0, { ...entry("x"), note })).rejects.toThrow(TypeError);
      }
    });

    it("make no difference to the order of a tail, with and without them in any mixture, nothing lost and nothing twice", async () => {
      const ledger = await opened();
      const from = versionOf(await ledger.append(freshId("call"), 0, entry("start")));
      const following = tailUntil(ledger, from + 1, (seen) => seen.length === 600);
      const append = async (index: number): Promise<readonly Version[]> => {
        const callId = freshId("call");
        const first = versionOf(await ledger.append(callId, 0, { ...entry("a"), note: index % 7 === 0 ? undefined : "queued" }));
        return [first, versionOf(await ledger.append(callId, first, { ...entry("b"), note: index % 5 === 0 ? undefined : "running" }))];
      };
      const versions = (await Promise.all(Array.from({ length: 300 }, (_, index) => append(index)))).flat();
      expect((await following).map(({ version }) => version)).toEqual(versions.sort((a, b) => a - b));
    });
  });

  describe("latest", () => {
    it("is at least the version of whatever was acknowledged, and tails bring it", async () => {
      const ledger = await opened();
      const version = versionOf(await ledger.append(freshId("call"), 0, { ...entry("x"), note: "queued" }));
      const latest = await ledger.latest();
      expect(latest).toBeGreaterThanOrEqual(version);
      const following = tailUntil(ledger, version, (seen) => seen.length === 2);
      const next = versionOf(await ledger.append(freshId("call"), 0, { ...entry("y"), note: "queued" }));
      expect(await ledger.latest()).toBeGreaterThanOrEqual(next);
      expect((await following).map((stored) => stored.version)).toEqual([version, next]);
    });

    it("knows what another broker appended, and has tails bring it at once", async ({ skip }) => {
      skip(!store().shared, "this store has one process only");
      const [here, there] = [await opened(), await opened()];
      const from = versionOf(await here.append(freshId("call"), 0, { ...entry("start"), note: "queued" }));
      const following = tailUntil(here, from + 1, (seen) => seen.length === 20);
      const versions: Version[] = [];
      for (let index = 0; index < 20; index += 1) {
        const by = index % 3 === 0 ? here : there;
        versions.push(versionOf(await by.append(freshId("call"), 0, { ...entry("x"), note: index % 4 === 0 ? undefined : "queued" })));
      }
      expect(await here.latest()).toBeGreaterThanOrEqual(versions.at(-1) ?? 0);
      expect((await following).map(({ version }) => version)).toEqual(versions);
    });

    it("rejects when the ledger is closed", async () => {
      const ledger = await opened();
      await ledger.close();
      await expect(ledger.latest()).rejects.toMatchObject({ code: "closed" });
    });
  });
}
