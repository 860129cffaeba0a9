import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { systemClock } from "../app/system.js";
import { DEFAULT_FIGURES } from "./figures.js";
import { LedgerWatch } from "./ledger-watch.js";
import { Random, SimProcess, World } from "./schedule/world.test.kit.js";
import { createTimerWheel, type TimerWheel } from "./timer-wheel.js";

let timers: TimerWheel;
afterEach(() => timers.stop());

function watchOf(check: () => Promise<void>): LedgerWatch {
  timers = createTimerWheel(systemClock, (error) => {
    throw error;
  });
  return new LedgerWatch({
    ledger: { check },
    clock: systemClock,
    timers,
    figures: { ...DEFAULT_FIGURES, ledgerAnswerMs: 100 },
    log: silentLog,
  });
}

describe("the watch on the ledger", () => {
  it("gives the work's outcome where it comes in time, and its failure", async () => {
    const watch = watchOf(async () => undefined);
    await expect(watch.guard(Promise.resolve(7))).resolves.toBe(7);
    await expect(watch.guard(Promise.reject(new Error("its own")))).rejects.toThrow("its own");
  });

  it("tells agents that they may repeat when the work takes too long", async () => {
    const watch = watchOf(async () => undefined);
    await expect(watch.guard(new Promise(() => undefined))).rejects.toMatchObject({ code: "ledger_away", retryAfterSeconds: 1 });
  });

  it("tells once that the ledger is away, and again only after it was back", async () => {
    let reachable = false;
    const watch = watchOf(() => (reachable ? Promise.resolve() : Promise.reject(new Error("away"))));
    let told = 0;
    await new Promise<void>((resolve) => {
      watch.onAway(() => {
        told += 1;
        resolve();
      });
      watch.start();
    });
    expect(watch.away).toBe(true);
    reachable = true;
    const endsAt = performance.now() + 5_000;
    while (watch.away && performance.now() < endsAt) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(watch.away).toBe(false);
    expect(told).toBe(1);
    await watch.stop();
  });

  it("does not take its own standstill for the ledger's (G3)", async () => {
    const world = new World(new Random(1));
    const process = new SimProcess(world, "broker");
    timers = createTimerWheel(process.clock, (error) => {
      throw error;
    });
    const watch = new LedgerWatch({
      ledger: { check: () => process.turn(1) },
      clock: process.clock,
      timers,
      figures: DEFAULT_FIGURES,
      log: silentLog,
    });
    let told = 0;
    watch.onAway(() => {
      told += 1;
    });
    watch.start();
    await world.run(10_000, () => false);
    process.stop();
    await world.run(60_000, () => false);
    process.wake();
    await world.run(80_000, () => false);
    expect([told, watch.away]).toEqual([0, false]);
  });

  it("is not away between two checks that succeed, however short the time that it has to answer", async () => {
    const world = new World(new Random(1));
    const process = new SimProcess(world, "broker");
    timers = createTimerWheel(process.clock, (error) => {
      throw error;
    });
    const figures = { ...DEFAULT_FIGURES, ledgerAnswerMs: 400 };
    const watch = new LedgerWatch({ ledger: { check: () => process.turn(1) }, clock: process.clock, timers, figures, log: silentLog });
    let told = 0;
    watch.onAway(() => {
      told += 1;
    });
    watch.start();
    await world.run(10_000, () => watch.away);
    expect([told, watch.away]).toEqual([0, false]);
  });

  it("tells whoever still waits at its end, and whoever asks after it", async () => {
    const watch = watchOf(async () => undefined);
    const late = watch.guard(new Promise(() => undefined)).catch((error: { readonly code: string }) => error.code);
    const soon = watch.guard(new Promise((resolve) => setTimeout(() => resolve("in time"), 20)));
    await watch.stop();
    expect([await late, await soon]).toEqual(["ledger_away", "in time"]);
    await expect(watch.guard(new Promise(() => undefined))).rejects.toMatchObject({ code: "ledger_away" });
  });
});
