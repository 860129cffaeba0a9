import { describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { createLocalBusHub } from "../bus/local/local-bus.js";
import type { Bus } from "../domain/ports/bus.js";
import { DEFAULT_FIGURES } from "./figures.js";
import { Membership } from "./membership.js";
import { Cuts, createSimBus } from "./schedule/sim-bus.test.kit.js";
import { Random, SimProcess, World } from "./schedule/world.test.kit.js";
import { createTimerWheel } from "./timer-wheel.js";

const FIGURES = { ...DEFAULT_FIGURES, heartbeatMs: 2_000, goneAfterMs: 6_000 };

/** Brokers on one bus in virtual time. */
class Site {
  readonly world = new World(new Random(1));
  readonly cuts = new Cuts();
  private readonly hub = createLocalBusHub({ clock: { schedule: (delayMs, task) => this.world.after(delayMs, task) } });

  async join(name: string, wrap: (bus: Bus) => Bus = (bus) => bus) {
    const process = new SimProcess(this.world, name);
    const bus = wrap(createSimBus(process, this.hub, this.cuts, { lost: 0, twice: 0, late: 0, lateMs: 0 }));
    const timers = createTimerWheel(process.clock, (error) => {
      throw error;
    });
    const membership = new Membership(name, { bus, clock: process.clock, log: silentLog, figures: FIGURES, timers });
    const told: string[] = [];
    membership.onGone((brokerId) => told.push(`${brokerId} gone`));
    membership.onBack((brokerId) => told.push(`${brokerId} back`));
    membership.onDoubt(() => told.push("doubt"));
    await this.until(membership.start());
    return { process, membership, told, bus, records: await bus.registry("brokers") };
  }

  /** Lets time go by until `work` is over. */
  async until<T>(work: Promise<T>): Promise<T> {
    let over = false;
    const seen = work.finally(() => {
      over = true;
    });
    seen.catch(() => undefined);
    await this.world.run(this.world.now + 60_000, () => over);
    return seen;
  }

  run(ms: number): Promise<boolean> {
    return this.world.run(this.world.now + ms, () => false);
  }
}

describe("the members of a site (B1)", () => {
  it("see each other, and miss one that fell silent after six seconds, not before", async () => {
    const site = new Site();
    const [a, b] = [await site.join("a"), await site.join("b")];
    await site.run(10_000);
    expect([a.membership.live(), b.membership.live()]).toEqual([
      ["a", "b"],
      ["a", "b"],
    ]);
    b.process.kill();
    await site.run(3_500);
    expect(a.membership.isLive("b")).toBe(true);
    await site.run(6_000);
    expect([a.membership.isLive("b"), a.membership.isGone("b"), a.told]).toEqual([false, true, ["b gone"]]);
    expect(await site.until(a.records.get("b"))).toBeUndefined();
  });

  it("take nobody for gone after they stood still themselves: the others were not heard, and are heard again first (G3)", async () => {
    const site = new Site();
    const [a, b] = [await site.join("a"), await site.join("b")];
    await site.run(5_000);
    a.process.stop();
    await site.run(30_000);
    expect(b.told).toEqual(["a gone"]);
    a.process.wake();
    await site.run(20_000);
    expect(a.told.filter((what) => what !== "doubt")).toEqual([]);
    expect(a.told).toContain("doubt");
    expect([a.membership.isLive("b"), b.membership.isLive("a"), b.told]).toEqual([true, true, ["a gone", "a back"]]);
  });

  it("learn that others took them for gone, and say at once that they live", async () => {
    const site = new Site();
    const [a, b] = [await site.join("a"), await site.join("b")];
    await site.run(1_000);
    await site.until(b.records.delete("a"));
    await site.run(50);
    expect(a.told).toEqual(["doubt"]);
    expect(b.told).toEqual(["a gone", "a back"]);
    expect((await site.until(b.records.get("a")))?.key).toBe("a");
  });

  it("remove no record of another that was written since they saw it last", async () => {
    const site = new Site();
    const deaf = { now: false };
    const b = await site.join("b");
    const a = await site.join("a", (bus) => ({
      ...bus,
      async registry(name) {
        const registry = await bus.registry(name);
        return { ...registry, watch: (listener) => registry.watch((change) => (deaf.now ? undefined : listener(change))) };
      },
    }));
    await site.run(1_000);
    // Its watch is late: it hears nothing of the other any more.
    deaf.now = true;
    await site.run(9_000);
    expect(a.told).toEqual(["b gone"]);
    expect((await site.until(a.records.get("b")))?.key).toBe("b");
    expect(b.told).toEqual([]);
  });

  it("judge nobody while they are cut off from the bus, and give everybody time again afterwards", async () => {
    const site = new Site();
    const [a, b] = [await site.join("a"), await site.join("b")];
    await site.run(1_000);
    site.cuts.cutOff("a", true);
    b.process.kill();
    await site.run(20_000);
    expect(a.told).toEqual([]);
    site.cuts.cutOff("a", false);
    await site.run(5_000);
    expect(a.told).toEqual(["doubt"]);
    await site.run(5_000);
    expect(a.told).toEqual(["doubt", "b gone"]);
  });

  it("hear of a broker that was gone before they saw it: it may have left calls behind", async () => {
    const site = new Site();
    const a = await site.join("a");
    await site.until(a.records.put("unseen", "{}"));
    await site.until(a.records.delete("unseen"));
    await site.run(50);
    expect(a.membership.isGone("unseen")).toBe(true);
    expect(a.told).toContain("unseen gone");
  });

  it("end in time, whatever the bus does, and beat no more", async () => {
    const site = new Site();
    const a = await site.join("a", (bus) => ({
      ...bus,
      async registry(name) {
        const registry = await bus.registry(name);
        return { ...registry, delete: () => new Promise<void>(() => undefined) };
      },
    }));
    let stopped = false;
    a.membership.stop().then(
      () => {
        stopped = true;
      },
      () => undefined,
    );
    await site.run(1_000);
    expect(stopped).toBe(true);
    const { revision } = (await site.until(a.records.get("a"))) ?? { revision: 0 };
    await site.run(10_000);
    expect((await site.until(a.records.get("a")))?.revision).toBe(revision);
  });
});
