/** The part of the ledger suite about large values (L7). */
import { describe, expect, it } from "vitest";
import { type Ledger, LedgerError } from "../../domain/ports/ledger.js";
import { freshId, type LedgerHarness } from "./ledger-harness.js";

/** Registers the tests of `ledger.blobs`. */
export function describeBlobs(store: () => LedgerHarness, opened: () => Promise<Ledger>): void {
  const freshName = (): string => `${freshId("call")}/${freshId("ent")}`;

  describe("blobs", () => {
    it("give back what was put, from nothing to several MiB, also to a ledger opened later (L7)", async () => {
      const ledger = await store().open();
      const texts = ["", "\u0000", "é💩".repeat(700_000), JSON.stringify({ rows: Array.from({ length: 20_000 }, (_, row) => ({ row })) })];
      const named = texts.map((text) => ({ name: freshName(), text }));
      await Promise.all(named.map(({ name, text }) => ledger.blobs.put(name, text)));
      for (const { name, text } of named) expect((await ledger.blobs.get(name)) === text).toBe(true);
      await ledger.close();
      const later = await opened();
      for (const { name, text } of named) expect((await later.blobs.get(name)) === text).toBe(true);
    });

    it("may be put again, one after the other and at the same time", async () => {
      const { blobs } = await opened();
      const name = freshName();
      await Promise.all([blobs.put(name, "same"), blobs.put(name, "same"), blobs.put(name, "same")]);
      await blobs.put(name, "same");
      expect(await blobs.get(name)).toBe("same");
    });

    it("are written once: another text under the same name is refused", async () => {
      const { blobs } = await opened();
      const name = freshName();
      await blobs.put(name, "first");
      await expect(blobs.put(name, "second")).rejects.toBeInstanceOf(TypeError);
      expect(await blobs.get(name)).toBe("first");
    });

    it("are missing when nobody put them, whatever the name", async () => {
      const { blobs } = await opened();
      for (const name of [freshName(), "", "nowhere", "../../etc/passwd", "a/b/c", "*/>"]) {
        await expect(blobs.get(name), JSON.stringify(name)).rejects.toSatisfy(
          (error) => error instanceof LedgerError && error.code === "blob_missing",
        );
      }
      await expect(blobs.put("not a name", "x")).rejects.toBeInstanceOf(TypeError);
    });

    it("that were changed behind the ledger are reported, never given out, and can be put again (L7)", async ({ skip }) => {
      const { corruptBlob } = store();
      if (corruptBlob === undefined) return skip("this store's blobs cannot be changed from the test");
      const ledger = await opened();
      const name = freshName();
      await ledger.blobs.put(name, "the truth");
      await corruptBlob.call(store(), name);
      await expect(ledger.blobs.get(name)).rejects.toSatisfy((error) => error instanceof LedgerError && error.code === "blob_corrupt");
      await ledger.blobs.put(name, "the truth");
      expect(await ledger.blobs.get(name)).toBe("the truth");
    });
  });
}
