/** What many idle sessions cost a broker, beside as many connections to a bare server, and what they do to calls among them. */
import { setTimeout as delay } from "node:timers/promises";
import { openStores } from "../measure.js";
import { type RoleProcess, startProgram } from "../processes/role-process.js";
import type { LedgerKind, MemoryUse, Stall } from "../processes/roles.js";
import { type Contrast, inTurns } from "./contrast.js";
import { IDLE_TOOLS } from "./names.js";
import type { BareServerRole, FleetRole, FleetSetup } from "./roles.js";
import type { ScaleSizes } from "./scale-options.js";
import { Scene } from "./scene.js";

/** What idle connections cost one server. */
export interface IdleCost {
  readonly connections: number;
  /** From the first dial to the last welcome, all dialled at once. */
  readonly connectMs: number;
  /** The longest stall of the server's event loop meanwhile. */
  readonly connectStall: Stall;
  /** Of each connection: resident memory of the process, and its heap with what hangs on it. */
  readonly residentBytes: number;
  readonly heapBytes: number;
  /** Processor time, of a core. */
  readonly cpuShare: number;
  readonly stall: Stall;
}

/** What a broker that is killed and started again means for its sessions and for calls under way. */
export interface Restart {
  /** From the new broker's first moment to the last welcome. */
  readonly reconnectMs: number;
  /** How long the new broker took to listen. */
  readonly startMs: number;
  readonly stall: Stall;
  /** Calls that were made and answered meanwhile, and why they ended if they failed. */
  readonly calls: number;
  readonly failure: string | undefined;
  /** Dials that were refused or cut, by close code or error. */
  readonly endings: Readonly<Record<string, number>>;
}

export interface IdleSessions {
  readonly ledger: LedgerKind;
  readonly bare: IdleCost;
  readonly product: IdleCost;
  readonly oneAtATime: Contrast;
  readonly inFlight64: Contrast;
  readonly restart: Restart;
}

/** Aims: of memory over the bare server's, and of stalls. */
export const SESSION_BYTES_AIM = 20 * 1_024;
export const STALL_AIM_MS = 50;
export const RECONNECT_AIM_MS = 30_000;

/** The default of brokers: a bare server pings as often. */
const DEFAULT_PING_INTERVAL_MS = 5_000;
const RESTART_IN_FLIGHT = 8;
const RECONNECT_WITHIN_MS = 120_000;

export interface ScaleContext extends ScaleSizes {
  readonly natsServer: string | undefined;
  readonly index: boolean;
  readonly say: (text: string) => void;
}

/** Measures the bare server alone, then brokers with few and with many sessions side by side. */
export async function measureIdleSessions(ledger: LedgerKind, context: ScaleContext): Promise<IdleSessions> {
  const bare = await measureBare(context);
  const stores = [await openStores(ledger, context.natsServer), await openStores(ledger, context.natsServer)] as const;
  const scenes: Scene[] = [];
  try {
    for (const store of stores) scenes.push(await Scene.start({ ledger: await store.placeFor("product"), index: context.index }));
    const [few, many] = scenes as [Scene, Scene];
    await few.fleet().ask("connect", fleetOf(few.places.ws, context.fewSessions));
    await many.measure({ inFlight: 64, durationMs: context.warmUpMs });
    const fleet = many.fleet();
    const product = await measureIdle(many.broker, fleet, fleetOf(many.places.ws, context.sessions), context);
    const contrast = async (inFlight: number): Promise<Contrast> => ({
      ledger,
      what: inFlight === 1 ? "sessions, 1 call at a time" : `sessions, ${inFlight} calls in flight`,
      few: context.fewSessions,
      many: context.sessions,
      ...(await inTurns(few, many, { ...context, load: { inFlight, durationMs: context.loadMs } })),
    });
    const oneAtATime = await contrast(1);
    const inFlight64 = await contrast(64);
    const restart = await measureRestart(many, fleet, context);
    for (const scene of scenes.splice(0)) await scene.stop();
    return { ledger, bare, product, oneAtATime, inFlight64, restart };
  } finally {
    await Promise.allSettled(scenes.map((scene) => scene.end()));
    for (const store of stores) await store.dispose();
  }
}

async function measureBare(context: ScaleContext): Promise<IdleCost> {
  const server = startProgram<BareServerRole>("scale", "bare-server");
  const fleet = startProgram<FleetRole>("scale", "fleet");
  try {
    const url = await server.ask("start", { pingIntervalMs: DEFAULT_PING_INTERVAL_MS });
    const cost = await measureIdle(server, fleet, { ...fleetOf(url, context.sessions), speech: "bare" }, context);
    await fleet.ask("stop");
    await server.ask("stop");
    return cost;
  } finally {
    await Promise.all([fleet.end(), server.end()]);
  }
}

function fleetOf(url: string, runners: number): FleetSetup {
  return { url, speech: "protocol", runners, tools: IDLE_TOOLS, slots: 16, grants: "hold" };
}

type Measured = Pick<BareServerRole, "usage" | "memory" | "watchStalls" | "longestStall">;

async function measureIdle(
  server: Pick<RoleProcess<Measured & { start: (setup: never) => unknown; stop: () => unknown }>, "ask">,
  fleet: RoleProcess<FleetRole>,
  setup: FleetSetup,
  { settleMs, idleMs }: ScaleSizes,
): Promise<IdleCost> {
  const before = await server.ask("memory");
  await server.ask("watchStalls");
  const connectMs = await fleet.ask("connect", setup);
  const connectStall = await server.ask("longestStall");
  await delay(settleMs);
  const after = await server.ask("memory");
  await delay(settleMs);
  const usedBefore = await server.ask("usage");
  const begun = performance.now();
  await server.ask("watchStalls");
  await delay(idleMs);
  const stall = await server.ask("longestStall");
  const usedAfter = await server.ask("usage");
  const { lost, endings } = await fleet.ask("status");
  if (lost > 0) throw new Error(`${lost} of ${setup.runners} idle connections were lost: ${JSON.stringify(endings)}`);
  const each = (field: keyof MemoryUse): number => (after[field] - before[field]) / setup.runners;
  return {
    connections: setup.runners,
    connectMs,
    connectStall,
    residentBytes: each("residentBytes"),
    heapBytes: each("heapBytes"),
    cpuShare: (usedAfter.cpuMs - usedBefore.cpuMs) / (performance.now() - begun),
    stall,
  };
}

async function measureRestart(scene: Scene, fleet: RoleProcess<FleetRole>, { sessions, restart }: ScaleSizes): Promise<Restart> {
  const before = await fleet.ask("status");
  let failure: string | undefined;
  const load = scene.agent.ask("load", { agent: "grpc", inFlight: RESTART_IN_FLIGHT, durationMs: restart.loadMs }).then(
    ({ latenciesMs }) => latenciesMs.length,
    (error: unknown) => {
      failure = error instanceof Error ? error.message : String(error);
      return 0;
    },
  );
  await delay(restart.afterMs);
  const killed = performance.now();
  await scene.restartBroker();
  const listening = performance.now();
  await scene.broker.ask("watchStalls");
  await fleet.ask("reached", { lost: before.lost + sessions, welcome: sessions, withinMs: RECONNECT_WITHIN_MS });
  const reconnectMs = performance.now() - listening;
  const calls = await load;
  const stall = await scene.broker.ask("longestStall");
  const { endings } = await fleet.ask("status");
  return { reconnectMs, startMs: listening - killed, stall, calls, failure, endings };
}
