/**
 * One run: a fleet under load, faults by plan, then quiet, then the check.
 *
 * Invariant: whatever happens, everything that was started is ended; folders are removed unless there is something to see in them.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAgentClient, type ToolInput } from "@toolrunner/agent-sdk";
import { QUICK_TOOLS, TOOLS, type ToolName } from "./call-mix.js";
import { checkHistory, storiesOf } from "./check-history.js";
import { describeFault, type Fault, readPlan, writePlan } from "./faults.js";
import { ADMIN_KEY, BINDING, type Fleet, startFleet } from "./fleet.js";
import { readLines } from "./handler-files.js";
import { unhealthySpans } from "./health.js";
import type { AcknowledgedReceipt, Alarm, HandlerEnd, HandlerStart, History, LedgerEntry } from "./history.js";
import { healAll, type Injection, injectFaults } from "./inject.js";
import { isSettled, type Story } from "./ledger-story.js";
import { type Load, startLoad } from "./load.js";
import { startOperator } from "./operator.js";
import type { ChaosOptions } from "./options.js";
import { planFaults } from "./plan-faults.js";
import { openLedgerReader } from "./read-ledger.js";
import { type ChaosReport, reportViolation } from "./report.js";
import { type ResourceCurve, watchResources } from "./resources.js";
import { seededRandom } from "./seeded-random.js";
import { longestStall, type Span } from "./stalls.js";

const BROKERS = 3;
const NATS_SERVERS = 3;
/** Longest a call may still take when everything is well again: its time-out and a lease. */
const QUIET_MS = 150_000;
const LOOK_AGAIN_MS = 120_000;
const LOOK_AGAIN_CALL_MS = 15;
/** Between two connections that are cut in a soak. */
const CUT_EVERY_MS = 8_000;
const CUT_FOR_MS = 300;
const KILL_FIRST_MS = 5_000;
const KILL_FOR_MS = 4_000;
/** Around a kill, in which its gap is looked for. */
const GAP_MS = 15_000;

/** Runs, and resolves with what was found. `dropsPackets`: see links. */
export async function runChaos(options: ChaosOptions, say: (line: string) => void, dropsPackets: boolean): Promise<ChaosReport> {
  const plan = planOf(options);
  const folder = mkdtempSync(join(tmpdir(), "toolrunner-chaos-"));
  writeFileSync(join(folder, "plan.json"), writePlan(plan));
  say(`seed ${options.seed}, ${plan.length} faults:`);
  if (options.mode !== "soak") for (const fault of plan) say(`  ${describeFault(fault)}`);
  const alarms: Alarm[] = [];
  let report: ChaosReport | undefined;
  try {
    const fleet = await startFleet({
      seed: options.seed,
      brokers: BROKERS,
      natsServers: NATS_SERVERS,
      runners: options.runners,
      folder,
      dropsPackets,
      alarm: (alarm) => alarms.push(alarm),
    });
    try {
      report = await observe(fleet, options, plan, folder, alarms, say);
    } finally {
      await fleet.close();
    }
  } finally {
    // Where it did not come to a report, everything is needed to see why.
    if (report !== undefined && report.folder === null) rmSync(folder, { recursive: true, force: true });
    else say(`kept in ${folder}`);
  }
  return report;
}

function planOf(options: ChaosOptions): readonly Fault[] {
  const size = { brokers: BROKERS, natsServers: NATS_SERVERS, runners: options.runners };
  if (options.mode === "kill-each") {
    const targets = Array.from({ length: BROKERS + NATS_SERVERS }, (_, index) =>
      index < BROKERS ? `broker-${index + 1}` : `nats-${index + 1 - BROKERS}`,
    );
    const everyMs = (options.durationMs - KILL_FIRST_MS) / targets.length;
    return targets.map((target, index) => ({
      atMs: KILL_FIRST_MS + index * everyMs,
      forMs: Math.min(KILL_FOR_MS, everyMs / 2),
      kind: "kill",
      target,
    }));
  }
  if (options.mode === "soak") {
    // Connections that come and go: of each runner and of agents, one after the other.
    const links = [
      ...Array.from({ length: options.runners }, (_, index) => `runner-broker:${index + 1}`),
      ...["1", "2", "3"].map((n) => `agent-broker:${n}`),
    ];
    return Array.from({ length: Math.max(0, Math.floor(options.durationMs / CUT_EVERY_MS) - 1) }, (_, index) => {
      return { atMs: (index + 1) * CUT_EVERY_MS, forMs: CUT_FOR_MS, kind: "cut", target: links[index % links.length] ?? "" };
    });
  }
  if (options.planFile !== undefined) return readPlan(readFileSync(options.planFile, "utf8"));
  return planFaults({
    ...size,
    seed: options.seed,
    durationMs: options.durationMs,
    ...(options.faults === undefined ? {} : { kinds: options.faults }),
  });
}

async function observe(
  fleet: Fleet,
  options: ChaosOptions,
  plan: readonly Fault[],
  folder: string,
  alarms: readonly Alarm[],
  say: (line: string) => void,
): Promise<ChaosReport> {
  await fleet.startRunners(await setUp(fleet));
  const files = <T>(name: string): readonly T[] => fleet.runners.flatMap((runner) => readLines<T>(join(folder, runner.name, name)));
  const handlers = () => ({ starts: files<HandlerStart>("starts"), ends: files<HandlerEnd>("ends") });
  const reader = await openLedgerReader(fleet.natsUrls);
  const { seed, rate, agents } = options;
  const load = startLoad(fleet, { seed, rate, agents, ...(options.mode === "kill-each" ? { tools: QUICK_TOOLS } : {}) });
  const operator = startOperator(fleet, seededRandom(seed, "operator"), handlers);
  const watch = options.mode === "soak" ? watchResources([...fleet.brokers, ...fleet.runners]) : undefined;
  let resources: readonly ResourceCurve[] = [];
  try {
    const beganMs = Date.now();
    say("everything runs; the load begins");
    const [injection] = await Promise.all([
      injectFaults(fleet, plan, say),
      new Promise<void>((resolve) => setTimeout(resolve, options.durationMs)),
    ]);
    resources = watch?.curves() ?? [];
    watch?.stop();
    await healAll(fleet);
    const healedMs = Date.now();
    say("everything is healed");
    const allAnswered = await load.finish(QUIET_MS);
    if (!allAnswered) say(`some turns had no answer ${QUIET_MS / 1_000} s after everything was healed`);
    await operator.stop();
    const quietMs = await untilQuiet(reader.read, QUIET_MS);
    const lookedAgain = await load.lookAgain(allAnswered ? LOOK_AGAIN_MS + load.turns.length * LOOK_AGAIN_CALL_MS : 0).then(
      () => true,
      (cause: unknown) => {
        say(String(cause));
        return !allAnswered;
      },
    );
    const history: History = {
      sights: load.sights,
      refusals: load.refusals,
      ...handlers(),
      acknowledged: files<AcknowledgedReceipt>("acknowledged"),
      decisions: operator.decisions,
      entries: await reader.read(),
      alarms: [
        ...alarms,
        ...fleet.logged(),
        ...(lookedAgain ? [] : [{ process: "brokers", event: "calls cannot be looked at", call: null }]),
      ],
    };
    return finished({ options, folder, history, load, injection, beganMs, quietAfterMs: quietMs - healedMs, resources });
  } finally {
    watch?.stop();
    await operator.stop();
    load.close();
    await reader.close();
  }
}

async function setUp(fleet: Fleet): Promise<string> {
  const client = createAgentClient({ url: `http://127.0.0.1:${fleet.brokerPorts[0]?.http}`, key: ADMIN_KEY });
  try {
    await client.bindings.put(BINDING, { name: "Work", kind: "backend" });
    const tools = (Object.keys(TOOLS) as ToolName[]).map((name): ToolInput => {
      const { behaviour, idempotent, cancellable, submission, timeoutSeconds } = TOOLS[name];
      return {
        name,
        description: "Takes its time.",
        input_schema: { type: "object" },
        binding: BINDING,
        behaviour,
        idempotent,
        cancellable,
        timeout_seconds: timeoutSeconds,
        result_semantics: submission ? "submission" : "completion",
      };
    });
    await client.toolsets.put(BINDING, { baseVersion: 0, tools });
    return (await client.bindings.keys.create(BINDING)).key;
  } finally {
    client.close();
  }
}

/** When no call is open but those that wait for somebody's word; the time is up otherwise, and the check says what is open. */
async function untilQuiet(read: () => Promise<readonly LedgerEntry[]>, withinMs: number): Promise<number> {
  const until = Date.now() + withinMs;
  for (;;) {
    const stories = storiesOf(await read());
    if ([...stories.values()].every(isQuiet) || Date.now() > until) return Date.now();
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

function isQuiet({ steps }: Story): boolean {
  const state = steps.at(-1)?.state ?? "queued";
  return isSettled(state) || state === "needs_reconciliation";
}

interface Finished {
  readonly options: ChaosOptions;
  readonly folder: string;
  readonly history: History;
  readonly load: Load;
  readonly injection: Injection;
  readonly beganMs: number;
  readonly quietAfterMs: number;
  readonly resources: readonly ResourceCurve[];
}

function finished({ options, folder, history, load, injection, beganMs, quietAfterMs, resources }: Finished): ChaosReport {
  const stories = [...storiesOf(history.entries).values()];
  const settledAtMs = stories.flatMap(({ steps }) => steps.filter(({ state }) => isSettled(state)).map(({ atMs }) => atMs));
  const nowMs = Date.now();
  const waiting = load.turns.map(({ fromMs, toMs }): Span => [fromMs, toMs ?? nowMs]);
  const settled: Record<string, number> = {};
  for (const { steps } of stories) {
    const state = steps.at(-1)?.state ?? "unknown";
    settled[state] = (settled[state] ?? 0) + 1;
  }
  const violations = checkHistory(history).map((violation) => reportViolation(violation, history));
  const gaps =
    options.mode !== "kill-each"
      ? []
      : injection.injected.map(({ fault, fromMs }) => ({ target: fault.target, gapMs: gapAround(fromMs, settledAtMs) }));
  const keeps = options.keeps || violations.length > 0 || resources.some(({ trend }) => !trend.isFlat);
  const report: ChaosReport = {
    seed: options.seed,
    seconds: Math.round((nowMs - beganMs - quietAfterMs) / 1_000),
    faults: Object.fromEntries(injection.counts),
    calls: stories.length,
    settled,
    requestsRepeated: load.repeats,
    callsRepeated: stories.filter(({ grants }) => (grants.at(-1)?.attempt ?? 0) > 1).length,
    reconciliations: stories.reduce((sum, { reconciliations }) => sum + reconciliations, 0),
    takeOvers: stories.reduce((sum, { takeOvers }) => sum + takeOvers, 0),
    receiptsAcknowledged: history.acknowledged.length,
    longestStallMs: longestStall({
      settledAtMs,
      waiting,
      unhealthy: unhealthySpans(injection.injected, { brokers: BROKERS, natsServers: NATS_SERVERS, runners: options.runners }),
    }),
    longestCallMs: Math.max(0, ...waiting.map(([from, to]) => to - from)),
    quietAfterMs,
    gaps: gaps.sort((a, b) => a.target.localeCompare(b.target)),
    resources,
    violations,
    folder: keeps ? folder : null,
  };
  if (keeps) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "history.json"), JSON.stringify(withoutPayloads(history)));
    writeFileSync(join(folder, "report.json"), JSON.stringify(report, null, 2));
  }
  return report;
}

/** Longest time without a settlement that overlaps the moments after `atMs`. */
function gapAround(atMs: number, settledAtMs: readonly number[]): number {
  return longestStall({ settledAtMs, waiting: [[atMs, atMs + GAP_MS]], unhealthy: [] });
}

function withoutPayloads(history: History): History {
  return {
    ...history,
    entries: history.entries.map((each) => {
      const { entry } = each;
      if (entry.kind === "accepted") return { ...each, entry: { ...entry, argumentsJson: "null" } };
      if (entry.kind === "receipt" || entry.kind === "evidence") {
        const { value } = entry.receipt;
        return value?.kind === "inline"
          ? { ...each, entry: { ...entry, receipt: { ...entry.receipt, value: { ...value, json: "null" } } } }
          : each;
      }
      return each;
    }),
  };
}
