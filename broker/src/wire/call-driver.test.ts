import { describe, expect, it } from "vitest";
import { LedgerError } from "../domain/ports/ledger.js";
import { receiptFacts } from "../testing/sample-call.js";
import type { CallDriver } from "./call-driver.js";
import { accepted, type DriverStage, driverStage } from "./driver.test.kit.js";
import { NotDriver } from "./driver-context.js";

const session = (sessionEpoch: number, runnerId = "runner_a") => ({
  brokerId: "broker_a",
  application: "default",
  binding: "shop",
  runnerId,
  sessionEpoch,
});
const RUNNER = { application: "default", binding: "shop", subject: null, journalId: "journal_a" };

async function running(stage: DriverStage, overrides = {}): Promise<{ readonly driver: CallDriver; readonly grantId: string }> {
  const driver = stage.driver();
  await stage.until(driver.create(accepted(true, overrides), stage.placement()));
  if (driver.known.kind !== "running") {
    throw new Error(`the call is ${driver.known.kind}`);
  }
  return { driver, grantId: driver.known.grant.grantId };
}

describe("a driver whose appends fail", () => {
  it("gives the reserved slot back, whichever append it was and however it failed", async () => {
    const stage = driverStage();
    const failing = stage.driver();
    stage.faults.append = () => Promise.reject(new LedgerError("closed", "the ledger is closed"));
    const first = stage.placement();
    await expect(stage.until(failing.create(accepted(true), first))).rejects.toThrow("closed");
    expect(first.reserved).toBe(false);

    stage.faults.append = undefined;
    const driver = stage.driver();
    await stage.until(driver.create(accepted(false), undefined));
    stage.faults.append = () => Promise.reject(new LedgerError("unreachable", "no answer"));
    const second = stage.placement();
    await expect(stage.until(driver.grant(second))).rejects.toThrow("no answer");
    expect(second.reserved).toBe(false);

    stage.faults.append = () => Promise.resolve({ kind: "conflict", current: 1 });
    const third = stage.placement();
    expect(await stage.until(driver.grant(third))).toBe(false);
    expect(third.reserved).toBe(false);
    stage.faults.append = undefined;
    expect(await stage.until(driver.grant(stage.placement()))).toBe(true);
  });

  it("tries what a timer decided again and again, until it is stored: no open call is left without a timer", async () => {
    const stage = driverStage();
    const driver = stage.driver();
    await stage.until(driver.create(accepted(false), undefined));
    stage.faults.append = () => Promise.resolve({ kind: "conflict", current: 99 });
    await stage.pass(75_000);
    expect(driver.known.kind).toBe("queued");
    stage.faults.append = undefined;
    await stage.pass(3_000);
    expect(driver.known.kind).toBe("timed_out");
    expect(stage.kinds()).toEqual(["accepted", "timed_out"]);
  });

  it("fails a command after eight conflicts in a row, and stores nothing", async () => {
    const stage = driverStage();
    const { driver } = await running(stage);
    let appends = 0;
    stage.faults.append = () => {
      appends += 1;
      return Promise.resolve({ kind: "conflict", current: 99 });
    };
    const cancel = stage.perform(driver, { op: "cancel", mode: "skip", reason: null });
    await expect(stage.until(cancel)).rejects.toThrow("8 appends in a row");
    expect(appends).toBe(8);
    expect(stage.kinds()).toEqual(["accepted"]);
  });

  it("takes a duplicate for what it is: its own entry, stored before the first answer got lost (L2)", async () => {
    const stage = driverStage();
    const driver = stage.driver();
    await stage.until(driver.create(accepted(false), undefined));
    const inner = stage.faults;
    inner.append = (entry) =>
      entry.kind === "granted"
        ? Promise.resolve().then(async () => {
            inner.append = undefined;
            await stage.foreign(entry);
            return { kind: "duplicate", version: stage.store.entries.length };
          })
        : undefined;
    expect(await stage.until(driver.grant(stage.placement()))).toBe(true);
    expect([driver.known.kind, driver.known.record.version, stage.effects.at(-1)]).toEqual(["running", 2, "send 1"]);
    const receipt = stage.perform(driver, {
      op: "receipt",
      runner: RUNNER,
      receipt: receiptFacts(driver.known.record.newestGrant?.grantId ?? ""),
    });
    expect(await stage.until(receipt)).toEqual({ kind: "disposition", disposition: "settled" });
  });
});

describe("a driver that lost its call to another broker", () => {
  const adopted = { kind: "adopted", at: 0, driver: "broker_b", from: "broker_a" } as const;

  it("stores nothing more and hands it over, whatever it was asked for", async () => {
    for (const ask of [
      (stage: DriverStage, driver: CallDriver, grantId: string) =>
        stage.perform(driver, { op: "receipt", runner: RUNNER, receipt: receiptFacts(grantId) }),
      (stage: DriverStage, driver: CallDriver) => stage.perform(driver, { op: "cancel", mode: "killnowait", reason: null }),
      (stage: DriverStage, driver: CallDriver, grantId: string) =>
        stage.perform(driver, { op: "decline", runner: RUNNER, grantId, reason: "unavailable", message: "" }),
      (stage: DriverStage, driver: CallDriver, grantId: string) =>
        stage.perform(driver, { op: "held", runner: RUNNER, grantId, phase: "outcome_unknown", session: session(7) }),
    ]) {
      const stage = driverStage();
      const { driver, grantId } = await running(stage);
      await stage.foreign(adopted);
      await expect(stage.until(ask(stage, driver, grantId))).rejects.toThrow(NotDriver);
      expect(stage.kinds()).toEqual(["accepted", "adopted"]);
      expect([driver.drives, stage.effects.at(-1)]).toEqual([false, "handed over"]);
      await stage.pass(120_000);
      expect(stage.kinds()).toEqual(["accepted", "adopted"]);
    }
  });

  it("shows nothing from before the take-over once somebody looks", async () => {
    const stage = driverStage();
    const { driver } = await running(stage);
    await stage.pass(5_000);
    await stage.foreign(adopted);
    await expect(stage.until(stage.perform(driver, { op: "view" }))).rejects.toThrow(NotDriver);
    expect(driver.drives).toBe(false);
  });

  it("never calls a receipt expired, or a grant over, that the other one's log knows (I4)", async () => {
    for (const ask of ["receipt", "held"] as const) {
      const stage = driverStage();
      const driver = stage.driver();
      await stage.until(driver.create(accepted(false), undefined));
      await stage.foreign(adopted);
      const holder = { ...stage.placement().holder, brokerId: "broker_b" };
      await stage.foreign({ kind: "granted", at: 0, driver: "broker_b", grant: { attempt: 1, holder } });
      const grantId = stage.store.entries.at(-1)?.entryId ?? "";
      const asked =
        ask === "receipt"
          ? stage.perform(driver, { op: "receipt", runner: RUNNER, receipt: receiptFacts(grantId) })
          : stage.perform(driver, { op: "held", runner: RUNNER, grantId, phase: "running", session: session(7) });
      await expect(stage.until(asked)).rejects.toThrow(NotDriver);
    }
  });

  it("says that a receipt of a grant that nobody ever made is expired, after it looked", async () => {
    const stage = driverStage();
    const { driver } = await running(stage);
    const asked = stage.perform(driver, { op: "receipt", runner: RUNNER, receipt: receiptFacts("entry_unknown") });
    expect(await stage.until(asked)).toEqual({ kind: "disposition", disposition: "expired" });
  });
});

describe("the lease of a grant (G1, G3)", () => {
  const figures = { leaseMs: 15_000, pingIntervalMs: 5_000, driverAnswerMs: 2_000 };

  it("is lost at its end when there is no session to ask", async () => {
    const stage = driverStage(figures);
    const { driver } = await running(stage);
    await stage.pass(14_900);
    expect(driver.known.kind).toBe("running");
    await stage.pass(200);
    expect([driver.known.kind, stage.effects]).toEqual(["needs_reconciliation", ["send 1", "ask", "revoke 1"]]);
  });

  it("is not lost before the runner's present session was asked what became of the grant", async () => {
    const stage = driverStage(figures);
    stage.holder.isThere = true;
    const { driver, grantId } = await running(stage);
    await stage.pass(15_500);
    expect([driver.known.kind, stage.effects]).toEqual(["running", ["send 1", "ask"]]);
    const answer = stage.perform(driver, { op: "held", runner: RUNNER, grantId, phase: "not_started", session: session(8) });
    expect(await stage.until(answer)).toEqual({ kind: "held", keep: false });
    expect([driver.known.kind, stage.effects.at(-1), driver.known.record.attempts]).toEqual(["queued", "offer", 0]);
  });

  it("is lost when the runner leaves that question unanswered", async () => {
    const stage = driverStage(figures);
    stage.holder.isThere = true;
    const { driver } = await running(stage);
    await stage.pass(15_000 + 7_200);
    expect(driver.known.kind).toBe("needs_reconciliation");
    expect(stage.effects.filter((what) => what === "ask")).toHaveLength(1);
  });

  it("is not judged by a broker that stood still before its runners were heard again", async () => {
    const stage = driverStage(figures);
    const { driver } = await running(stage);
    stage.process.stop();
    await stage.pass(40_000);
    stage.process.wake();
    await stage.pass(500);
    expect(driver.known.kind).toBe("running");
    driver.heard(session(7));
    await stage.pass(14_000);
    expect(driver.known.kind).toBe("running");
    await stage.pass(1_500);
    expect(driver.known.kind).toBe("needs_reconciliation");
  });

  it("is kept when the runner is heard of while the decision waits for a slow append", async () => {
    const stage = driverStage(figures);
    const { driver, grantId } = await running(stage);
    let slow: () => void = () => undefined;
    stage.faults.append = () => {
      stage.faults.append = undefined;
      return new Promise((resolve) => {
        slow = () => resolve({ kind: "conflict", current: 0 });
      });
    };
    const cancel = stage.perform(driver, { op: "cancel", mode: "kill", reason: null });
    await stage.pass(15_500);
    driver.heard(session(7));
    slow();
    await stage.until(cancel);
    await stage.pass(1_000);
    expect(driver.known.kind).toBe("running");
    expect(driver.known.record.newestGrant?.grantId).toBe(grantId);
  });

  it("is renewed by the present session only, not by a late report of an older one", async () => {
    const stage = driverStage(figures);
    const { driver } = await running(stage);
    driver.heard(session(9));
    await stage.pass(10_000);
    driver.heard(session(8));
    expect(driver.location?.sessionEpoch).toBe(9);
    await stage.pass(5_500);
    expect(driver.known.kind).toBe("needs_reconciliation");
  });

  it("starts anew at a take-over, once: then only the runner's own word counts", async () => {
    const stage = driverStage(figures);
    await running(stage);
    const first = stage.driver("broker_b");
    await stage.until(first.load());
    await stage.until(first.adopt());
    await stage.pass(14_000);
    expect(first.known.kind).toBe("running");
    const second = stage.driver("broker_c");
    await stage.until(second.load());
    await stage.until(second.adopt());
    // What is left of the first one's lease, but time for one ping.
    await stage.pass(6_500);
    expect(second.known.kind).toBe("running");
    await stage.pass(1_000);
    expect(second.known.kind).toBe("needs_reconciliation");
  });

  it("goes on at a take-over with the cancel that the driver before may not have sent", async () => {
    const stage = driverStage(figures);
    const { driver } = await running(stage);
    await stage.until(stage.perform(driver, { op: "cancel", mode: "kill", reason: null }));
    stage.effects.length = 0;
    const next = stage.driver("broker_b");
    await stage.until(next.load());
    await stage.until(next.adopt());
    expect(stage.effects).toEqual(["send 1", "cancel 1"]);
  });
});

describe("what a runner says of a grant", () => {
  it("counts only from the journal that took it (G1)", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    const other = { ...RUNNER, journalId: "journal_of_another" };
    await stage.until(stage.perform(driver, { op: "decline", runner: other, grantId, reason: "unavailable", message: "" }));
    await stage.until(stage.perform(driver, { op: "held", runner: other, grantId, phase: "not_started", session: session(8) }));
    expect(driver.known.kind).toBe("running");
    await stage.until(stage.perform(driver, { op: "decline", runner: RUNNER, grantId, reason: "unavailable", message: "" }));
    expect(driver.known.kind).toBe("queued");
  });

  it("does not change what the log says about the grant: attempt and fence are the log's", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    const receipt = receiptFacts(grantId, { attempt: 4_000_000_000, fence: 9_007_199_254_740_991 });
    await stage.until(stage.perform(driver, { op: "receipt", runner: RUNNER, receipt }));
    const { known } = driver;
    expect("settlement" in known ? known.settlement.receipt : null).toMatchObject({ attempt: 1, fence: 1 });
  });

  it("about a cancel is stored once each, however often it is said", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    await stage.until(stage.perform(driver, { op: "cancel", mode: "kill", reason: null }));
    for (let round = 0; round < 20; round += 1) {
      await stage.until(stage.perform(driver, { op: "cancel_answer", runner: RUNNER, grantId, level: "delivered" }));
      await stage.until(stage.perform(driver, { op: "cancel_answer", runner: RUNNER, grantId, level: "ignored" }));
    }
    expect(stage.kinds()).toEqual(["accepted", "cancel_requested", "cancel_answered", "cancel_answered"]);
  });

  it("of a process that is gone ends what was left to run by a skip: nobody else will tell", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    await stage.until(stage.perform(driver, { op: "cancel", mode: "skip", reason: null }));
    const held = (phase: "running" | "outcome_unknown") =>
      stage.until(stage.perform(driver, { op: "held", runner: RUNNER, grantId, phase, session: session(7) }));
    expect(await held("running")).toEqual({ kind: "held", keep: true });
    expect(await held("outcome_unknown")).toEqual({ kind: "held", keep: false, over: true });
  });
});

describe("live news of a call", () => {
  it("that comes while an entry is under way gets its number after that entry's", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    driver.progress(grantId, { sessionEpoch: 7, number: 1 }, { text: "one" });
    let store: () => void = () => undefined;
    stage.faults.append = (entry) => {
      stage.faults.append = undefined;
      return new Promise((resolve) => {
        store = () => void stage.foreign(entry).then(() => resolve({ kind: "appended", version: stage.store.entries.length }));
      });
    };
    const cancel = stage.perform(driver, { op: "cancel", mode: "kill", reason: null });
    await stage.pass(1);
    driver.progress(grantId, { sessionEpoch: 7, number: 2 }, { text: "two" });
    driver.started(grantId, 1);
    store();
    await stage.until(cancel);
    const events = driver.events.map(({ event, seq }) => `${seq} ${event}`);
    expect(events).toEqual(["1 requested", "2 queued", "3 granted", "4 progress", "5 cancel_requested", "6 progress", "7 started"]);
  });

  it("that comes late or twice over the bus is not told again (X6)", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    for (const [sessionEpoch, number] of [
      [7, 1],
      [7, 3],
      [7, 2],
      [7, 3],
      [8, 1],
      [7, 9],
      [8, 2],
    ] as const) {
      driver.progress(grantId, { sessionEpoch, number }, { text: `${sessionEpoch}.${number}` });
    }
    const told = driver.events.filter(({ event }) => event === "progress").map(({ data }) => data["text"]);
    expect(told).toEqual(["7.1", "7.3", "8.1", "8.2"]);
  });

  it("is answered with its place among the runner's news, by which streams order what several drivers tell (X6)", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    const events = () => stage.until(stage.perform(driver, { op: "events", afterSeq: 0, waitMs: 0 }));
    expect(await events()).not.toHaveProperty("orders");
    driver.progress(grantId, { sessionEpoch: 7, number: 3 }, { text: "three" });
    expect(await events()).toMatchObject({ orders: [null, null, null, { grantId, sessionEpoch: 7, number: 3 }] });
    await stage.until(stage.perform(driver, { op: "cancel", mode: "kill", reason: null }));
    expect(await events()).toMatchObject({ orders: [null, null, null, { grantId, sessionEpoch: 7, number: 3 }, null] });
  });

  it("is told once when its entry meets a conflict, with numbers that nobody else used", async () => {
    const stage = driverStage();
    const { driver, grantId } = await running(stage);
    driver.started(grantId, 1);
    await stage.foreign({ kind: "cancel_requested", at: 0, reason: "elsewhere" });
    const skip = stage.perform(driver, { op: "cancel", mode: "skip", reason: null });
    driver.progress(grantId, { sessionEpoch: 7, number: 1 }, { text: "meanwhile" });
    await stage.until(skip);
    const numbers = driver.events.map(({ seq }) => seq);
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
  });
});

describe("a reconciliation", () => {
  const decide = (grantId: string, outcome: "applied" | "not_applied") =>
    ({ op: "reconcile", grantId, outcome, value: null, by: "key", note: null }) as const;

  it("lets nobody else begin before the runner's lease is certainly over (G3)", async () => {
    const stage = driverStage({ leaseMs: 15_000 });
    const { driver, grantId } = await running(stage, { timeoutMs: 5_000, maxAttempts: 3 });
    const held = () =>
      stage.until(stage.perform(driver, { op: "held", runner: RUNNER, grantId, phase: "outcome_unknown", session: session(7) }));
    await stage.pass(1_000);
    await held();
    expect(driver.known.kind).toBe("needs_reconciliation");
    await stage.until(stage.perform(driver, decide(grantId, "not_applied")));
    const { known } = driver;
    if (known.kind !== "queued") {
      throw new Error(`the call is ${known.kind}`);
    }
    expect((known.notBeforeMs ?? 0) - stage.process.clock.now()).toBeGreaterThan(14_000);
  });

  it("that comes late is not taken for one about a later grant", async () => {
    const stage = driverStage({ leaseMs: 1_000 });
    const { driver, grantId } = await running(stage);
    await stage.pass(1_500);
    expect(await stage.until(stage.perform(driver, decide("entry_of_an_earlier_grant", "not_applied")))).toMatchObject({
      kind: "refused",
      code: "not_reconcilable",
    });
    expect(driver.known.kind).toBe("needs_reconciliation");
    expect(await stage.until(stage.perform(driver, decide(grantId, "not_applied")))).toMatchObject({ kind: "view" });
  });
});
