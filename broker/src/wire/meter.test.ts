/** What the wire tells its meter, seen through the metrics that are made of it: each fact once, whichever broker stored it. */
import { Failed, type Grant } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { createMetrics, type Metrics } from "../diagnostics/metrics.js";
import { type ParsedMetrics, parseMetrics } from "../diagnostics/testing/parse-metrics.js";
import { createMemoryLedger } from "../ledger/memory/memory-ledger.js";
import type { Figures } from "./figures.js";
import {
  AGENT,
  type BrokerParts,
  connectRunner,
  createSite,
  type ScriptedRunner,
  type Site,
  startBroker,
  type TestBroker,
  until,
} from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

interface MeteredBroker extends TestBroker {
  readonly metrics: Metrics;
}

async function metered(site: Site, figures: Partial<Figures> = {}, parts: BrokerParts = {}): Promise<MeteredBroker> {
  const metrics = createMetrics({
    version: "1",
    ledger: "memory",
    errorCodes: ["call_cancelled"],
    closeReasons: { 1000: "normal", 4409: "superseded" },
  });
  stops.push(() => metrics.stop());
  const broker = await startBroker(site, figures, { ...parts, meter: metrics.meter });
  stops.push(() => broker.stop());
  metrics.lookAt(() => broker.wire.readings(), undefined);
  return { ...broker, metrics };
}

async function shown({ metrics }: MeteredBroker): Promise<ParsedMetrics> {
  return parseMetrics((await metrics.read(AGENT.application)).text);
}

/** What all brokers say together. */
async function together(brokers: readonly MeteredBroker[]): Promise<(name: string, labels?: Record<string, string>) => number> {
  const each = await Promise.all(brokers.map(shown));
  return (name, labels = {}) => each.reduce((sum, metrics) => sum + metrics.sum(`toolrunner_${name}`, labels), 0);
}

function fail(runner: ScriptedRunner, { callId, grantId, fence, attempt }: Grant, retryable: boolean): void {
  const value = Failed.create({ code: "busy", message: "busy", retryable, retryAfterMs: 1 });
  const times = { startedAtUnixMs: Date.now(), finishedAtUnixMs: Date.now() };
  runner.send({
    $case: "receipt",
    value: { callId, grantId, fence, attempt, digest: "b".repeat(64), ...times, outcome: { $case: "failed", value } },
  });
}

const ECHO = { toolset: "shop", tool: "echo", arguments: { x: 1 } };
const SAFE = { ...ECHO, tool: "safe" };

async function settled(broker: TestBroker, callId: string): Promise<string> {
  const { state } = await broker.wire.calls.get(AGENT, callId, { wait_seconds: 5 });
  return state;
}

describe("the meter of the wire (D5)", () => {
  it("is told so that accepted calls are the settled and the open ones", async () => {
    const site = createSite(silentLog);
    const broker = await metered(site);
    const runner = await connectRunner(broker.wire, { slots: 2 });
    const create = async (body: typeof ECHO, key?: string) =>
      (await broker.wire.calls.create(AGENT, { ...body, ...(key === undefined ? {} : { idempotency_key: key }) }, {})).id;

    const [good, bad] = [await create(ECHO, "good"), await create(SAFE)];
    const grants = [await runner.next(), await runner.next()];
    const waiting = [await create(ECHO), await create(ECHO), await create({ ...ECHO, tool: "asked" })];
    await create(ECHO, "good");
    await expect(broker.wire.calls.create(AGENT, { ...ECHO, idempotency_key: "" }, {})).rejects.toThrow();
    runner.succeed(grants.find(({ callId }) => callId === good) as Grant);
    // The receipt comes again: nothing is stored, and nothing is counted.
    runner.succeed(grants.find(({ callId }) => callId === good) as Grant);
    fail(runner, grants.find(({ callId }) => callId === bad) as Grant, false);
    expect([await settled(broker, good), await settled(broker, bad)]).toEqual(["succeeded", "failed"]);
    await broker.wire.calls.cancel(AGENT, waiting[2] ?? "", {});
    await until("two more grants", () => runner.grants.length === 4);
    await until("the acknowledgements", () => runner.frames.filter((kind) => kind === "receiptAck").length === 3);

    const metrics = await shown(broker);
    const of = (name: string, labels = {}) => metrics.sum(`toolrunner_${name}`, labels);
    expect(of("calls_accepted_total")).toBe(5);
    expect(of("calls_settled_total") + of("calls_open")).toBe(5);
    expect(["succeeded", "failed", "cancelled"].map((state) => of("calls_settled_total", { state }))).toEqual([1, 1, 1]);
    expect(of("calls_open", { state: "running", tool: "echo", toolset: "shop" })).toBe(2);
    expect(of("attempts_total")).toBe(4);
    expect(of("call_errors_total", { code: "other" })).toBe(1);
    expect(of("call_total_seconds_count")).toBe(3);
    expect(of("cancels_total", { level: "at_once" })).toBe(1);
    expect(of("ledger_append_seconds_count", { outcome: "stored" })).toBe([...site.store.entriesOfCall.values()].flat().length);
    expect(of("ledger_appends_pending")).toBe(0);
    expect(of("sessions", { transport: "memory", binding_kind: "backend" })).toBe(1);
    expect(of("runner_slots", { use: "used" })).toBe(2);
    expect(of("frames_sent_total", { kind: "grant", transport: "memory" })).toBe(4);
    expect(of("frames_sent_total", { kind: "receiptAck" })).toBe(3);
    expect(of("frames_received_total", { kind: "receipt" })).toBe(3);
    expect(of("frames_received_total", { kind: "hello" })).toBe(1);
    expect(of("ledger_away")).toBe(0);
  });

  it("is told of a lost lease and the retry once, and of the receipt that came too late", async () => {
    const site = createSite(silentLog);
    const broker = await metered(site);
    const silent = await connectRunner(broker.wire, { silent: true, slots: 1 });
    const { id } = await broker.wire.calls.create(AGENT, SAFE, {});
    const lost = await silent.next();
    const other = await connectRunner(broker.wire, { runnerId: "runner_2", journalId: "journal_2" });
    const again = await other.next();
    expect([again.callId, again.attempt]).toEqual([id, 2]);
    other.succeed(again);
    expect(await settled(broker, id)).toBe("succeeded");
    // The runner that was thought dead comes back with what it did.
    const back = await connectRunner(broker.wire, { silent: true, slots: 1 });
    back.succeed(lost, '"late"', "c".repeat(64));
    await until("its acknowledgement", () => back.frames.includes("receiptAck"));

    const of = await together([broker]);
    expect(of("leases_lost_total", { toolset: "shop", tool: "safe", cause: "lease" })).toBe(1);
    expect(of("retries_total", { cause: "lease" })).toBe(1);
    expect(of("attempts_total")).toBe(2);
    expect(of("late_receipts_total")).toBe(1);
    expect(of("calls_settled_total")).toBe(1);
    expect(of("call_wait_seconds_count")).toBe(1);
    expect(of("calls_open")).toBe(0);
  });

  it("is told of a retry after a failure, and of an outcome that nobody knows and a person finds out", async () => {
    const broker = await metered(createSite(silentLog));
    const runner = await connectRunner(broker.wire, { slots: 1 });
    const safe = await broker.wire.calls.create(AGENT, SAFE, {});
    fail(runner, await runner.next(), true);
    runner.succeed(await runner.next());
    expect(await settled(broker, safe.id)).toBe("succeeded");
    const { id } = await broker.wire.calls.create(AGENT, ECHO, {});
    await runner.next();
    // It runs no longer, and does not say what became of it.
    const after = await connectRunner(broker.wire, { journalId: "journal_new", slots: 0 });
    await until("nobody to know", async () => (await broker.wire.calls.get(AGENT, id, {})).state === "needs_reconciliation");
    const earlier = await together([broker]);
    expect(earlier("calls_open", { state: "needs_reconciliation" })).toBe(1);
    await broker.wire.calls.reconcile(AGENT, id, { outcome: "applied", result: "found" });
    const of = await together([broker]);
    expect(of("retries_total", { tool: "safe", cause: "failure" })).toBe(1);
    expect(of("reconciliations_opened_total", { tool: "echo" })).toBe(1);
    expect(of("reconciliations_closed_total", { by: "applied" })).toBe(1);
    expect(of("calls_open")).toBe(0);
    expect(of("sessions_closed_total", { reason: "superseded", binding_kind: "backend", transport: "memory" })).toBe(1);
    expect(of("sessions_opened_total")).toBe(2);
    after.close();
    await until("its end", async () => (await together([broker]))("sessions_closed_total", { reason: "normal" }) === 1);
  });

  it("counts a call once over all brokers, though the one that took it died and another one settled it", async () => {
    const site = createSite(silentLog);
    const [dead, heir] = [await metered(site), await metered(site)];
    const runner = await connectRunner(heir.wire);
    await until("both to see each other", async () => (await together([dead, heir]))("brokers") === 4);
    const { id } = await dead.wire.calls.create(AGENT, SAFE, {});
    const grant = await runner.next();
    dead.kill();
    await until("the take-over", async () => (await shown(heir)).sum("toolrunner_calls_adopted_total") === 1);
    runner.succeed(grant);
    expect(await settled(heir, id)).toBe("succeeded");
    const of = await together([dead, heir]);
    expect(of("calls_accepted_total")).toBe(1);
    expect(of("calls_settled_total")).toBe(1);
    expect(of("attempts_total")).toBe(1);
    expect(of("calls_adopted_total")).toBe(1);
    expect(of("call_wait_seconds_count")).toBe(1);
    expect(of("call_run_seconds_count")).toBe(1);
    expect(of("call_total_seconds_count")).toBe(1);
    expect((await shown(heir)).sum("toolrunner_calls_settled_total")).toBe(1);
  });

  it("counts what is stored, not what is tried: of two creations with one key one is accepted, and the other one is a conflict", async () => {
    const site = createSite(silentLog);
    const brokers = [await metered(site), await metered(site)];
    const made = await Promise.all(
      brokers.flatMap(({ wire }) =>
        Array.from({ length: 10 }, (_, index) => wire.calls.create(AGENT, { ...ECHO, idempotency_key: `key-${index}` }, {})),
      ),
    );
    expect(new Set(made.map(({ id }) => id)).size).toBe(10);
    const of = await together(brokers);
    expect(of("calls_accepted_total")).toBe(10);
    expect(of("calls_open")).toBe(10);
    expect(of("ledger_append_seconds_count", { outcome: "conflict" })).toBe(10);
  });

  it("counts nothing that the ledger has not acknowledged", async () => {
    const site = createSite(silentLog);
    let letThrough: () => void = () => undefined;
    let turn = (): Promise<void> => Promise.resolve();
    const broker = await metered(
      site,
      { ledgerAnswerMs: 60 },
      { ledger: () => createMemoryLedger({ store: site.store, turn: () => turn() }) },
    );
    const away = new Promise<void>((resolve) => {
      letThrough = resolve;
    });
    turn = () => away;
    await expect(broker.wire.calls.create(AGENT, { ...ECHO, idempotency_key: "k" }, {})).rejects.toMatchObject({ code: "ledger_away" });
    const earlier = await together([broker]);
    expect([earlier("calls_accepted_total"), earlier("calls_open"), earlier("ledger_appends_pending")]).toEqual([0, 0, 1]);
    letThrough();
    await until("the append", async () => (await together([broker]))("calls_accepted_total") === 1);
    const of = await together([broker]);
    expect([of("calls_open"), of("ledger_appends_pending")]).toEqual([1, 0]);
    expect(of("ledger_append_seconds_sum", { outcome: "stored" })).toBeGreaterThanOrEqual(0.05);
  });

  it("is told of refused hellos by their code", async () => {
    const broker = await metered(createSite(silentLog));
    // It is never welcomed.
    void connectRunner(broker.wire, { runnerId: "not an id" });
    await until("the refusal", async () => (await together([broker]))("sessions_refused_total", { code: "hello_invalid" }) === 1);
  });
});
