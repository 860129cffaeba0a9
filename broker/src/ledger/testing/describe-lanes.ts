/** The part of the ledger suite about lanes (X10, B4). */
import { describe, expect, it } from "vitest";
import type { LaneStore } from "../../domain/ports/lanes.js";
import type { Ledger } from "../../domain/ports/ledger.js";
import { freshId, type LedgerHarness } from "./ledger-harness.js";

/** Takes the lane's members out, head by head, and gives their order. */
async function emptied(lanes: LaneStore, lane: string): Promise<string[]> {
  const order: string[] = [];
  for (let head = await lanes.first(lane); head !== undefined; head = await lanes.first(lane)) {
    order.push(head.callId);
    await lanes.leave(lane, head);
  }
  return order;
}

/** Registers the tests of `ledger.lanes`. */
export function describeLanes(store: () => LedgerHarness, opened: () => Promise<Ledger>): void {
  describe("lanes", () => {
    it("give their members back in the order in which they joined, each lane for itself (X10)", async () => {
      const { lanes } = await opened();
      const [one, two] = [freshId("lane"), freshId("lane")];
      const calls = Array.from({ length: 12 }, () => freshId("call"));
      for (const [index, call] of calls.entries()) await lanes.join(index % 3 === 0 ? two : one, call);
      expect(await emptied(lanes, one)).toEqual(calls.filter((_, index) => index % 3 !== 0));
      expect(await emptied(lanes, two)).toEqual(calls.filter((_, index) => index % 3 === 0));
      expect(await lanes.first(one)).toBeUndefined();
    });

    it("keep the place of a call that joins again, one after the other and at the same time (B4)", async () => {
      const { lanes } = await opened();
      const lane = freshId("lane");
      const [a, b] = [freshId("call"), freshId("call")];
      const place = await lanes.join(lane, a);
      const later = await lanes.join(lane, b);
      expect(later).toBeGreaterThan(place);
      expect(await Promise.all(Array.from({ length: 8 }, () => lanes.join(lane, a)))).toEqual(Array.from({ length: 8 }, () => place));
      expect(await lanes.first(lane)).toEqual({ callId: a, place });
      expect(await emptied(lanes, lane)).toEqual([a, b]);
    });

    it("give a call that left and comes again a new place at the end, and places are never used again (B4)", async () => {
      const { lanes } = await opened();
      const lane = freshId("lane");
      const [a, b] = [freshId("call"), freshId("call")];
      const first = await lanes.join(lane, a);
      await lanes.leave(lane, { callId: a, place: first });
      const other = await lanes.join(lane, b);
      const again = await lanes.join(lane, a);
      expect(first < other && other < again).toBe(true);
      // A removal that comes late is of the place that it names.
      await lanes.leave(lane, { callId: a, place: first });
      expect(await emptied(lanes, lane)).toEqual([b, a]);
    });

    it("may be left twice, at the same time, and by a call that was never in", async () => {
      const { lanes } = await opened();
      const lane = freshId("lane");
      const [a, b] = [freshId("call"), freshId("call")];
      const member = { callId: a, place: await lanes.join(lane, a) };
      await lanes.join(lane, b);
      await Promise.all([lanes.leave(lane, member), lanes.leave(lane, member), lanes.leave(lane, member)]);
      await lanes.leave(lane, member);
      await lanes.leave(freshId("lane"), { callId: freshId("call"), place: 2 ** 40 });
      expect(await emptied(lanes, lane)).toEqual([b]);
    });

    it("take members out of the middle, and go on with who is left", async () => {
      const { lanes } = await opened();
      const lane = freshId("lane");
      const calls = Array.from({ length: 9 }, () => freshId("call"));
      const places: number[] = [];
      for (const call of calls) places.push(await lanes.join(lane, call));
      for (const index of [4, 0, 8, 5]) await lanes.leave(lane, { callId: calls[index] as string, place: places[index] as number });
      expect(await emptied(lanes, lane)).toEqual([1, 2, 3, 6, 7].map((index) => calls[index]));
    });

    it("are joined by many at once in one order that everybody sees, through every door (B4)", async () => {
      const ledgers = store().shared ? await Promise.all([opened(), opened(), opened()]) : [await opened()];
      const lane = freshId("lane");
      const calls = Array.from({ length: 60 }, () => freshId("call"));
      const places = await Promise.all(
        calls.map(async (callId, index) => ({ callId, place: await (ledgers[index % ledgers.length] as Ledger).lanes.join(lane, callId) })),
      );
      const expected = places.sort((a, b) => a.place - b.place).map(({ callId }) => callId);
      expect(new Set(places.map(({ place }) => place)).size).toBe(calls.length);
      expect(await emptied((ledgers.at(-1) as Ledger).lanes, lane)).toEqual(expected);
    });

    it("outlive the ledgers that were opened on them (B4)", async () => {
      const ledger = await store().open();
      const lane = freshId("lane");
      const calls = [freshId("call"), freshId("call")];
      for (const call of calls) await ledger.lanes.join(lane, call);
      await ledger.close();
      await expect(ledger.lanes.join(lane, freshId("call"))).rejects.toMatchObject({ code: "closed" });
      await expect(ledger.lanes.first(lane)).rejects.toMatchObject({ code: "closed" });
      expect(await emptied((await opened()).lanes, lane)).toEqual(calls);
    });

    it("stand through a crash of their store (B4)", async ({ skip }) => {
      const { crash } = store();
      if (crash === undefined) return skip("this store cannot be crashed from the test");
      const ledger = await opened();
      const lane = freshId("lane");
      const calls = Array.from({ length: 20 }, () => freshId("call"));
      const joined: string[] = [];
      const joining = (async () => {
        for (const call of calls) {
          await ledger.lanes.join(lane, call);
          joined.push(call);
        }
      })();
      await crash.call(store());
      await joining;
      expect(joined).toEqual(calls);
      expect(await emptied(ledger.lanes, lane)).toEqual(calls);
    });

    it("refuse names that could reach other lanes", async () => {
      const { lanes } = await opened();
      for (const name of ["", "*", ">", "a.b", "a b", "é", "x".repeat(129)]) {
        await expect(lanes.join(name, "call_1"), JSON.stringify(name)).rejects.toBeInstanceOf(TypeError);
        await expect(lanes.join("lane_1", name), JSON.stringify(name)).rejects.toBeInstanceOf(TypeError);
        await expect(lanes.first(name), JSON.stringify(name)).rejects.toBeInstanceOf(TypeError);
        await expect(lanes.leave("lane_1", { callId: name, place: 1 }), JSON.stringify(name)).rejects.toBeInstanceOf(TypeError);
      }
    });
  });
}
