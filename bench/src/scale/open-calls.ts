/** Whether a call costs more where many calls are open: queued, waiting in its own lane, or running. */
import { setTimeout as delay } from "node:timers/promises";
import type { Sample } from "../figures.js";
import { openStores, type Stores } from "../measure.js";
import type { RoleProcess } from "../processes/role-process.js";
import type { LedgerKind, Stall } from "../processes/roles.js";
import { type Contrast, inTurns, type Rounds } from "./contrast.js";
import type { ScaleContext } from "./idle-sessions.js";
import { HOLD_TOOL, LANE_TOOL } from "./names.js";
import type { FleetRole } from "./roles.js";
import { Scene } from "./scene.js";

const IN_FLIGHT = 64;
const FILL_IN_FLIGHT = 256;
/** Grants that one light runner holds at most: the broker's limit of slots. */
const SLOTS = 1_000;
/** Of the one runner that a lane waits for. */
const LANE_SLOTS = 64;
const GRANTED_WITHIN_MS = 180_000;
/** Entries of grants and receipts that are still on their way when the last receipt was sent. */
const SETTLE_MS = 200;

export interface OpenCalls {
  readonly queued: Contrast;
  readonly lane: Contrast;
  readonly running: Contrast;
  /** Of the broker with many, while all of its queued calls were granted, and while all of them ran. */
  readonly grantStall: Stall;
  readonly runningStall: Stall;
  /** How long it took to grant them. */
  readonly grantMs: number;
}

/** One broker with few open calls, one with many: the same load on both in turn, for each kind of open call. */
export async function measureOpenCalls(ledger: LedgerKind, context: ScaleContext): Promise<OpenCalls> {
  const stores: Stores[] = [];
  const scenes: Scene[] = [];
  try {
    for (let side = 0; side < 2; side += 1) {
      const store = await openStores(ledger, context.natsServer);
      stores.push(store);
      scenes.push(await Scene.start({ ledger: await store.placeFor("product"), index: context.index }));
    }
    const [few, many] = scenes as [Scene, Scene];
    const rounds: Rounds = { ...context, load: { inFlight: IN_FLIGHT, durationMs: context.loadMs } };
    const { fewOpen, open } = context;
    const sizes = { ledger, few: fewOpen, many: open };
    await fill(few, HOLD_TOOL, fewOpen);
    await fill(many, HOLD_TOOL, open);
    const queued = { ...sizes, what: "queued calls of another tool", ...(await inTurns(few, many, rounds)) };
    const lane = await measureLane(ledger, few, many, context);
    const [, held] = await Promise.all([hold(few, fewOpen), hold(many, open)]);
    await many.broker.ask("watchStalls");
    const running = { ...sizes, what: "running calls of another tool", ...(await inTurns(few, many, rounds)) };
    const runningStall = await many.broker.ask("longestStall");
    for (const scene of scenes.splice(0)) await scene.stop();
    return { queued, lane, running, ...held, runningStall };
  } finally {
    await Promise.allSettled(scenes.map((scene) => scene.end()));
    for (const store of stores) await store.dispose();
  }
}

async function fill(scene: Scene, tool: string, calls: number): Promise<void> {
  await (await scene.filler()).ask("fill", { tool, calls, inFlight: FILL_IN_FLIGHT });
}

/** Grants all calls that wait for runners that never answer. */
async function hold(scene: Scene, calls: number): Promise<{ readonly grantMs: number; readonly grantStall: Stall }> {
  const fleet = scene.fleet();
  const begun = performance.now();
  await scene.broker.ask("watchStalls");
  await fleet.ask("connect", {
    url: scene.places.ws,
    speech: "protocol",
    runners: Math.ceil(calls / SLOTS),
    tools: [HOLD_TOOL],
    slots: SLOTS,
    grants: "hold",
  });
  await fleet.ask("reached", { held: calls, withinMs: GRANTED_WITHIN_MS });
  return { grantMs: performance.now() - begun, grantStall: await scene.broker.ask("longestStall") };
}

/** In each round the same number of calls is granted and settled, from a lane in which few or many wait. */
async function measureLane(ledger: LedgerKind, few: Scene, many: Scene, context: ScaleContext): Promise<Contrast> {
  const { laneStep, open, rounds } = context;
  const sides = [await laneOf(few, laneStep), await laneOf(many, open)] as const;
  // The first step of each side warms it up.
  for (let round = 0; round <= rounds; round += 1) {
    for (const side of round % 2 === 0 ? sides : [...sides].reverse()) {
      const sample = await laneStepOn(side, laneStep);
      if (round > 0) side.samples.push(sample);
    }
  }
  const [{ samples: fewSamples }, { samples: manySamples }] = sides;
  return { ledger, what: "calls waiting in the same lane", few: laneStep, many: open, fewSamples, manySamples };
}

interface LaneSide {
  readonly scene: Scene;
  readonly fleet: RoleProcess<FleetRole>;
  readonly samples: Pick<Sample, "brokerCpuMsPerCall" | "callsPerSecond">[];
  waiting: number;
}

/** A lane in which so many calls wait for a runner that has all its slots full. */
async function laneOf(scene: Scene, waiting: number): Promise<LaneSide> {
  const fleet = scene.fleet();
  await fill(scene, LANE_TOOL, waiting + LANE_SLOTS);
  await fleet.ask("connect", {
    url: scene.places.ws,
    speech: "protocol",
    runners: 1,
    tools: [LANE_TOOL],
    slots: LANE_SLOTS,
    grants: "answer",
  });
  return { scene, fleet, samples: [], waiting };
}

async function laneStepOn(side: LaneSide, calls: number): Promise<LaneSide["samples"][number]> {
  const { scene, fleet } = side;
  if (side.waiting < calls) {
    await fill(scene, LANE_TOOL, calls);
    side.waiting += calls;
  }
  // The slots that get free are granted again: that is a part of the step.
  await settle();
  const { grantsAnswered } = await fleet.ask("status");
  const before = await scene.broker.ask("usage");
  const begun = performance.now();
  await fleet.ask("allow", calls);
  await fleet.ask("reached", { answered: grantsAnswered + calls, withinMs: GRANTED_WITHIN_MS });
  const elapsedMs = performance.now() - begun;
  await settle();
  const after = await scene.broker.ask("usage");
  side.waiting -= calls;
  return { brokerCpuMsPerCall: (after.cpuMs - before.cpuMs) / calls, callsPerSecond: (calls / elapsedMs) * 1_000 };
}

const settle = (): Promise<void> => delay(SETTLE_MS);
