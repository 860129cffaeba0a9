import { describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { createLocalBusHub } from "../bus/local/local-bus.js";
import { isSettledState } from "../domain/call/call-state.js";
import type { StoredEntry } from "../domain/ports/ledger.js";
import { BrokerPost } from "./broker-post.js";
import type { CallDriver } from "./call-driver.js";
import { CallNotFound, CallRouter } from "./call-router.js";
import type { DriverAnswer } from "./commands.js";
import { accepted, CALL_ID, type DriverStage, driverStage } from "./driver.test.kit.js";
import { DriverTable } from "./driver-table.js";
import { Membership } from "./membership.js";

/** A router of broker `broker_a`, on a bus where others can be played. */
async function routed(stage: DriverStage) {
  const { context, world, process } = stage;
  const hub = createLocalBusHub({ clock: { schedule: (delayMs, task) => world.after(delayMs, task) } });
  const bus = hub.connect();
  const membership = new Membership("broker_a", {
    bus,
    clock: process.clock,
    log: silentLog,
    figures: context.figures,
    timers: context.timers,
  });
  await stage.until(membership.start());
  const table = new DriverTable({ timers: context.timers, clock: context.clock, figures: context.figures });
  const post = new BrokerPost({ bus, ids: context.ids, figures: context.figures, timers: context.timers, membership });
  const router = new CallRouter({ driver: () => context, table, membership, bus, post, performer: stage.perform, log: silentLog });
  router.start();
  const other = hub.connect();
  return { router, table, membership, other, records: await other.registry("brokers") };
}

/** Broker `broker_b` lives, and answers commands as told. */
async function playB(stage: DriverStage, site: Awaited<ReturnType<typeof routed>>, answer: (command: unknown) => DriverAnswer | undefined) {
  await stage.until(site.records.put("broker_b", "{}"));
  const asked: unknown[] = [];
  site.other.respond("broker.broker_b.command", async (payload) => {
    const { command } = JSON.parse(payload) as { command: unknown };
    asked.push(command);
    const said = answer(command);
    return said === undefined ? undefined : JSON.stringify(said);
  });
  await stage.pass(10);
  return asked as { readonly op: string }[];
}

async function drivenByB(stage: DriverStage): Promise<CallDriver> {
  const driver = stage.driver("broker_b");
  await stage.until(driver.create({ ...accepted(false), driver: "broker_b" }, undefined));
  return driver;
}

describe("the way to a call's driver", () => {
  it("never answers from a read that began before the question (I4)", async () => {
    const stage = driverStage();
    const { router } = await routed(stage);
    const { ledger } = stage.context;
    const read = ledger.read.bind(ledger);
    let go: () => void = () => undefined;
    let reads = 0;
    ledger.read = async function* (callId, from) {
      reads += 1;
      // What was there when it began, told late.
      const found: StoredEntry[] = [];
      for await (const entry of read(callId, from)) {
        found.push(entry);
      }
      if (reads === 1) {
        await new Promise<void>((resolve) => {
          go = resolve;
        });
      }
      yield* found;
    };
    const early = router.find(CALL_ID);
    await stage.pass(1);
    await drivenByB(stage);
    const late = router.find(CALL_ID);
    const later = router.find(CALL_ID);
    go();
    expect(await stage.until(early)).toBeUndefined();
    expect((await stage.until(late))?.callId).toBe(CALL_ID);
    expect(await stage.until(later)).toBe(await late);
    expect(reads).toBe(2);
  });

  it("adopts nothing for a look: when the driver does not answer, the log does", async () => {
    const stage = driverStage();
    const site = await routed(stage);
    await drivenByB(stage);
    await playB(stage, site, () => undefined);
    const view = await stage.until(site.router.command(CALL_ID, { op: "view" }));
    expect(view).toMatchObject({ kind: "view", view: { id: CALL_ID, state: "queued" } });
    const events = await stage.until(site.router.command(CALL_ID, { op: "events", afterSeq: 0, waitMs: 50 }));
    expect(events).toMatchObject({ kind: "events", settled: false });
    expect([stage.kinds(), site.table.size]).toEqual([["accepted"], 0]);
  });

  it("adopts for a command when the driver lives and does not answer, and tells it until it hears", async () => {
    const stage = driverStage();
    const site = await routed(stage);
    await drivenByB(stage);
    let deaf = true;
    const asked = await playB(stage, site, () => (deaf ? undefined : { kind: "done" }));
    const done = await stage.until(site.router.command(CALL_ID, { op: "confirm", decision: "allow", by: "key" }));
    expect(done).toMatchObject({ kind: "refused", code: "not_awaiting_confirmation" });
    expect(stage.kinds()).toEqual(["accepted", "adopted"]);
    await stage.pass(10_000);
    const told = asked.filter(({ op }) => op === "verify").length;
    expect(told).toBeGreaterThan(2);
    deaf = false;
    await stage.pass(5_000);
    expect(asked.at(-1)?.op).toBe("verify");
    const all = asked.length;
    await stage.pass(20_000);
    expect(asked.length).toBe(all);
  });

  it("adopts a call that its driver says is not its own, instead of asking in circles", async () => {
    const stage = driverStage();
    const site = await routed(stage);
    await drivenByB(stage);
    const asked = await playB(stage, site, () => ({ kind: "not_driver" }));
    await stage.until(site.router.command(CALL_ID, { op: "cancel", mode: "kill", reason: null }));
    expect(asked.filter(({ op }) => op === "cancel")).toHaveLength(1);
    expect(stage.kinds()).toEqual(["accepted", "adopted", "cancelled"]);
  });

  it("does not take the call from a broker whose answer is too large for the bus", async () => {
    const stage = driverStage();
    const site = await routed(stage);
    await drivenByB(stage);
    await playB(stage, site, () => ({ kind: "done" }));
    const huge = { op: "cancel", mode: "kill", reason: "x".repeat(2_000_000) } as const;
    await expect(stage.until(site.router.command(CALL_ID, huge))).rejects.toMatchObject({ code: "too_large" });
    expect(stage.kinds()).toEqual(["accepted"]);
  });

  it("puts a call to work again that names this broker and that its memory lost", async () => {
    const stage = driverStage();
    const site = await routed(stage);
    await stage.until(stage.driver().create(accepted(false), undefined));
    stage.effects.length = 0;
    await stage.until(site.router.command(CALL_ID, { op: "view" }));
    expect([site.table.get(CALL_ID)?.drives, stage.effects]).toEqual([true, ["offer"]]);
    await stage.pass(61_000);
    expect(stage.kinds()).toEqual(["accepted", "timed_out"]);
  });

  it("is remembered from one command to the next, and forgotten when it leads nowhere", async () => {
    const stage = driverStage();
    const site = await routed(stage);
    await drivenByB(stage);
    let drives = true;
    const asked = await playB(stage, site, () => (drives ? { kind: "done" } : { kind: "not_driver" }));
    const hint = { driver: undefined as string | undefined };
    await stage.until(site.router.command(CALL_ID, { op: "verify" }, hint));
    expect(hint.driver).toBe("broker_b");
    await stage.until(site.router.command(CALL_ID, { op: "verify" }, hint));
    expect(asked).toHaveLength(2);
    drives = false;
    await stage.until(site.router.command(CALL_ID, { op: "verify" }, hint));
    expect(hint.driver).toBe("broker_a");
  });

  it("ends at once for a call that nobody stored", async () => {
    const stage = driverStage();
    const { router } = await routed(stage);
    await expect(stage.until(router.command("call_unknown", { op: "view" }))).rejects.toThrow(CallNotFound);
  });

  it("leads two adopters to one driver", async () => {
    const stage = driverStage();
    const site = await routed(stage);
    await drivenByB(stage);
    await Promise.all([
      stage.until(site.router.command(CALL_ID, { op: "cancel", mode: "kill", reason: null })),
      stage.until(site.router.command(CALL_ID, { op: "cancel", mode: "kill", reason: null })),
    ]);
    expect(stage.kinds()).toEqual(["accepted", "adopted", "cancelled"]);
    const driver = site.table.get(CALL_ID);
    expect(driver !== undefined && isSettledState(driver.known)).toBe(true);
  });
});
