/**
 * The processes of one side: broker, runner and agent, and the place of its ledger.
 *
 * Invariant: when starting fails, what was started is ended.
 */

import type { Sample, StageSample } from "./figures.js";
import { ledgerWrites } from "./ledger-writes.js";
import type { LoadRequest } from "./load.js";
import { type RoleProcess, startRole } from "./processes/role-process.js";
import type { AgentInterface, AgentRole, BrokerRole, BrokerSetup, RunnerRole, RunnerTransport, Side } from "./processes/roles.js";
import { percentile } from "./statistics.js";

/** What a broker still does for the calls of a load after the last answer counts as theirs, for this long. */
const SETTLE_MS = 40;
const MS_PER_SECOND = 1_000;

/** A load, and how many calls it came to. */
export type LoadSample = Sample & { readonly calls: number };

export interface Stage {
  readonly broker: RoleProcess<BrokerRole>;
  readonly runner: RoleProcess<RunnerRole>;
  readonly agent: RoleProcess<AgentRole>;
  /** Runs one load. */
  measure(agent: AgentInterface, load: LoadRequest): Promise<StageSample & { readonly calls: number }>;
  /** Entries that the ledger has taken so far. */
  writes(): Promise<number>;
  stop(): Promise<void>;
}

export async function startStage(side: Side, transport: RunnerTransport, setup: BrokerSetup): Promise<Stage> {
  const broker = startRole<BrokerRole>(side, "broker");
  const runner = startRole<RunnerRole>(side, "runner");
  const agent = startRole<AgentRole>(side, "agent");
  const all = [agent, runner, broker];
  const endAll = async (): Promise<void> => {
    for (const each of all) await each.end();
  };
  try {
    const places = await broker.ask("start", setup);
    await agent.ask("connect", places);
    await runner.ask("start", { transport, places });
    await agent.ask("check");
  } catch (error) {
    await endAll();
    throw error;
  }
  return {
    broker,
    runner,
    agent,
    async measure(over, load) {
      const before = [await agent.ask("usage"), await runner.ask("usage")] as const;
      const sample = await measureLoad(broker, agent, over, load);
      const after = [await agent.ask("usage"), await runner.ask("usage")] as const;
      return {
        ...sample,
        agentCpuMsPerCall: (after[0].cpuMs - before[0].cpuMs) / sample.calls,
        runnerCpuMsPerCall: (after[1].cpuMs - before[1].cpuMs) / sample.calls,
      };
    },
    writes: () => ledgerWrites(side, setup.ledger),
    async stop() {
      try {
        await agent.ask("stop");
        await runner.ask("stop");
        await broker.ask("stop");
      } finally {
        await endAll();
      }
    },
  };
}

/** Runs one load and takes its figures. */
export async function measureLoad(
  broker: RoleProcess<BrokerRole>,
  agent: RoleProcess<AgentRole>,
  over: AgentInterface,
  load: LoadRequest,
): Promise<LoadSample> {
  const before = await broker.ask("usage");
  const { elapsedMs, latenciesMs } = await agent.ask("load", { agent: over, ...load });
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  const after = await broker.ask("usage");
  const calls = latenciesMs.length;
  return {
    calls,
    p50Ms: percentile(latenciesMs, 0.5),
    p99Ms: percentile(latenciesMs, 0.99),
    callsPerSecond: (calls / elapsedMs) * MS_PER_SECOND,
    brokerCpuMsPerCall: (after.cpuMs - before.cpuMs) / calls,
  };
}
