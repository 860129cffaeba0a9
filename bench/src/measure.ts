/** Runs product and floor in turn, load by load, so that both see the same machine. */
import { rmSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Cell, emptySamples } from "./figures.js";
import { type NatsProcess, startNats } from "./nats-process.js";
import { type BenchOptions, LOADS } from "./options.js";
import type { AgentInterface, LedgerKind, LedgerPlace, RunnerTransport, Side } from "./processes/roles.js";
import { type Stage, startStage } from "./stage.js";

/** Stores for one group of measurements, removed at its end or that of the process. */
export interface Stores {
  placeFor(side: Side): Promise<LedgerPlace>;
  dispose(): Promise<void>;
}

/** Makes them. `natsServer` is the binary; needed for JetStream. */
export async function openStores(ledger: LedgerKind, natsServer: string | undefined): Promise<Stores> {
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-bench-"));
  let nats: NatsProcess | undefined;
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  process.once("exit", remove);
  const dispose = async (): Promise<void> => {
    await nats?.stop();
    await rm(folder, { recursive: true, force: true });
    process.removeListener("exit", remove);
  };
  try {
    if (ledger === "jetstream") {
      if (natsServer === undefined) throw new Error("JetStream needs a nats-server");
      nats = await startNats(natsServer, join(folder, "nats"));
    }
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    async placeFor(side) {
      if (nats !== undefined) return { kind: "jetstream", url: nats.url };
      const dataDir = join(folder, side);
      await mkdir(dataDir);
      return { kind: "sqlite", dataDir };
    },
    dispose,
  };
}

/** Measures one ledger with one transport of runners, over every interface of agents. */
export async function measureGroup(
  ledger: LedgerKind,
  runner: RunnerTransport,
  options: BenchOptions & { readonly natsServer: string | undefined },
): Promise<readonly Cell[]> {
  const stores = await openStores(ledger, options.natsServer);
  const stages: Stage[] = [];
  try {
    const [product, floor] = await Promise.all(
      (["product", "floor"] as const).map(async (side) => {
        const stage = await startStage(side, runner, { ledger: await stores.placeFor(side), index: options.index });
        stages.push(stage);
        return stage;
      }),
    );
    if (product === undefined || floor === undefined) throw new Error("a side was not started");
    const cells: Cell[] = [];
    for (const agent of options.agents) cells.push({ ledger, runner, agent, ...(await measurePair(product, floor, agent, options)) });
    for (const stage of stages.splice(0)) await stage.stop();
    return cells;
  } finally {
    // Only after a failure: its own error counts.
    await Promise.allSettled(stages.map((stage) => stage.stop()));
    await stores.dispose();
  }
}

async function measurePair(
  product: Stage,
  floor: Stage,
  agent: AgentInterface,
  { rounds, loadMs, warmUpMs }: BenchOptions,
): Promise<Omit<Cell, "ledger" | "runner" | "agent">> {
  const [ours, bare] = [tallyOf(product), tallyOf(floor)];
  const sides = [ours, bare];
  for (const { stage } of sides) for (const inFlight of [64, 1]) await stage.measure(agent, { inFlight, durationMs: warmUpMs });
  for (const side of sides) side.writesBefore = await side.stage.writes();
  for (let round = 0; round < rounds; round += 1) {
    for (const inFlight of LOADS) {
      for (const side of sides) {
        const { calls, ...sample } = await side.stage.measure(agent, { inFlight, durationMs: loadMs[inFlight] });
        side.samples[inFlight].push(sample);
        side.calls += calls;
      }
    }
  }
  return {
    product: ours.samples,
    floor: bare.samples,
    productWritesPerCall: await writesPerCall(ours),
    floorWritesPerCall: await writesPerCall(bare),
  };
}

/** What is counted of one side. */
interface Tally {
  readonly stage: Stage;
  readonly samples: ReturnType<typeof emptySamples>;
  calls: number;
  writesBefore: number;
}

const tallyOf = (stage: Stage): Tally => ({ stage, samples: emptySamples(), calls: 0, writesBefore: 0 });

async function writesPerCall({ stage, writesBefore, calls }: Tally): Promise<number> {
  return ((await stage.writes()) - writesBefore) / calls;
}
