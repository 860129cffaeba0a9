import { beforeEach, describe, expect, it } from "vitest";
import { RollbackWatch } from "./rollback-watch.js";

let nowMs: number;
let stored: Map<number, number>;
beforeEach(() => {
  nowMs = 1_000;
  stored = new Map();
});

const watchOf = (staleForMs: number): RollbackWatch =>
  new RollbackWatch({
    staleForMs,
    storedAt: (version) => Promise.resolve(stored.get(version)),
    now: () => 50_000 + nowMs,
    monotonic: () => nowMs,
  });

describe("the watch for a ledger that was rolled back (L3)", () => {
  it("reports one server that says less at once", async () => {
    expect(await watchOf(0).compare(567, 550)).toEqual({ from: 567, to: 550 });
  });

  it("says nothing of a leader that knows less for a while", async () => {
    const watch = watchOf(15_000);
    stored.set(567, 50_500);
    expect(await watch.compare(567, 550)).toBeUndefined();
    nowMs += 2_000;
    expect(await watch.compare(550, 552)).toBeUndefined();
    nowMs += 2_000;
    expect(await watch.compare(552, 570)).toBeUndefined();
    nowMs += 60_000;
    expect(await watch.compare(570, 580)).toBeUndefined();
  });

  it("reports, once, replicas that go on saying less", async () => {
    const watch = watchOf(15_000);
    expect(await watch.compare(567, 550)).toBeUndefined();
    nowMs += 15_000;
    expect(await watch.compare(550, 551)).toEqual({ from: 567, to: 550 });
    expect(await watch.compare(551, 552)).toBeUndefined();
  });

  it("reports replicas that give the lost versions out again", async () => {
    const watch = watchOf(15_000);
    expect(await watch.compare(567, 550)).toBeUndefined();
    nowMs += 1_000;
    stored.set(567, 50_000 + nowMs);
    expect(await watch.compare(550, 600)).toEqual({ from: 567, to: 550 });
  });

  it("is quiet while all is well", async () => {
    const watch = watchOf(15_000);
    expect(await watch.compare(0, 5)).toBeUndefined();
    expect(await watch.compare(5, 5)).toBeUndefined();
  });
});
