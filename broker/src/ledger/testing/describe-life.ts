/** The part of the ledger suite about opening, closing and crashing. */
import { describe, expect, it } from "vitest";
import type { Ledger, Version } from "../../domain/ports/ledger.js";
import { collect, entry, freshId, isLedgerError, type LedgerHarness, versionOf } from "./ledger-harness.js";

/** Registers the tests of a ledger's life cycle. */
export function describeLife(store: () => LedgerHarness, opened: () => Promise<Ledger>): void {
  describe("life cycle", () => {
    it("keeps entries over a close and an open, and goes on with higher versions (L3)", async () => {
      const before = await store().open();
      const callId = freshId("call");
      const first = entry("a", "opens");
      const version = versionOf(await before.append(callId, 0, first));
      await before.close();
      const after = await opened();
      expect(await collect(after.read(callId))).toEqual([{ callId, version, previous: 0, entryId: first.entryId, data: "a" }]);
      expect(await after.append(callId, 0, first)).toEqual({ kind: "duplicate", version });
      expect(versionOf(await after.append(callId, version, entry("b")))).toBeGreaterThan(version);
    });

    it("has every acknowledged entry after a crash, and no entry that it called a conflict", async ({ skip }) => {
      const { crash } = store();
      if (crash === undefined) return skip("this store cannot be crashed from inside the test's process");
      const ledger = await opened();
      const outcomes: { callId: string; entryId: string; kind: string }[] = [];
      let acknowledged: () => void = () => undefined;
      const some = new Promise<void>((resolve) => {
        acknowledged = resolve;
      });
      const writers = Array.from({ length: 300 }, async (_, index) => {
        const callId = freshId("call");
        let last: Version = 0;
        for (let step = 0; step < 4; step += 1) {
          const next = entry(`${index} ${step}`);
          const outcome = await ledger.append(callId, last, next);
          outcomes.push({ callId, entryId: next.entryId, kind: outcome.kind });
          if (outcomes.length === 200) acknowledged();
          if (outcome.kind === "conflict") throw new Error(`call ${callId} has one writer, yet it met a conflict`);
          last = outcome.version;
        }
      });
      await some;
      await crash.call(store());
      await Promise.all(writers);
      const after = store().shared ? await opened() : ledger;
      for (const { callId, entryId } of outcomes) {
        const stored = await collect(after.read(callId));
        expect(stored.filter((found) => found.entryId === entryId)).toHaveLength(1);
        expect(stored).toHaveLength(4);
      }
    });

    it("refuses everything after close, which may be called twice", async () => {
      const ledger = await store().open();
      const last = versionOf(await ledger.append(freshId("call"), 0, entry("x")));
      await ledger.check();
      const waiting = collect(ledger.tail(last + 1, new AbortController().signal));
      const ended = expect(waiting).rejects.toSatisfy(isLedgerError("closed"));
      await Promise.all([ledger.close(), ledger.close()]);
      await ended;
      await ledger.close();
      const asked: readonly (() => Promise<unknown>)[] = [
        () => ledger.append(freshId("call"), 0, entry("x")),
        () => collect(ledger.read(freshId("call"))),
        () => collect(ledger.tail(0, new AbortController().signal)),
        () => collect(ledger.openCalls()),
        () => ledger.check(),
        () => ledger.retire("gone"),
        () => ledger.blobs.put(`${freshId("call")}/${freshId("ent")}`, "x"),
        () => ledger.blobs.get(`${freshId("call")}/${freshId("ent")}`),
      ];
      for (const ask of asked) await expect(ask(), ask.toString()).rejects.toSatisfy(isLedgerError("closed"));
    });

    it("says in one sentence what an acknowledged entry survives", async () => {
      const { description } = await opened();
      expect(["memory", "sqlite", "jetstream"]).toContain(description.kind);
      expect(description.durability.length).toBeGreaterThan(20);
    });
  });
}
