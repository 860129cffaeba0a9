/** Runs the product under load and tells where the main threads of broker, runner and agent spent the time. */
import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { openStores } from "../measure.js";
import type { BenchOptions } from "../options.js";
import type { RoleProcess } from "../processes/role-process.js";
import type { LedgerKind, MeasuredRole, RunnerTransport } from "../processes/roles.js";
import { startStage } from "../stage.js";
import { figure, renderTable } from "../table.js";
import { type CpuProfile, type SelfTime, sumProfile } from "./read-profile.js";
import { sourcePlaces } from "./source-places.js";

const IN_FLIGHT = 64;
const WARM_UP_MS = 8_000;
const PROFILED_MS = 8_000;
const FUNCTIONS_SHOWN = 40;
const FILES_SHOWN = 25;
const PARTS_SHOWN = 25;

/** Profiles each interface of agents and returns what was found; the profiles stay in `profileDir`. */
export async function profileProduct(
  ledger: LedgerKind,
  runner: RunnerTransport,
  options: BenchOptions & { readonly profileDir: string; readonly natsServer: string | undefined },
): Promise<string> {
  await mkdir(options.profileDir, { recursive: true });
  const stores = await openStores(ledger, options.natsServer);
  try {
    const stage = await startStage("product", runner, { ledger: await stores.placeFor("product"), index: options.index });
    const texts: string[] = [];
    try {
      for (const agent of options.agents) {
        await stage.measure(agent, { inFlight: IN_FLIGHT, durationMs: WARM_UP_MS });
        const sampled: readonly RoleProcess<MeasuredRole>[] = [stage.broker, stage.runner, stage.agent];
        for (const each of sampled) await each.ask("profileStart");
        const sample = await stage.measure(agent, { inFlight: IN_FLIGHT, durationMs: PROFILED_MS });
        const costMs = [sample.brokerCpuMsPerCall, sample.runnerCpuMsPerCall, sample.agentCpuMsPerCall];
        for (const [index, role] of ["broker", "runner", "agent"].entries()) {
          const file = resolve(join(options.profileDir, `${ledger}-${runner}-${agent}-${role}.cpuprofile`));
          await sampled[index]?.ask("profileStop", file);
          texts.push(
            `${ledger}, ${runner} runner, ${agent} agent: ${sample.calls} calls, ${figure((costMs[index] ?? 0) * 1_000)} µs of the ${role}'s processor time each\n${await described(file, sample.calls)}`,
          );
        }
      }
    } finally {
      await stage.stop();
    }
    return texts.join("\n\n");
  } finally {
    await stores.dispose();
  }
}

/** The sums of a profile as tables, in microseconds per call. */
async function described(file: string, calls: number): Promise<string> {
  const sums = sumProfile(JSON.parse(await readFile(file, "utf8")) as CpuProfile, sourcePlaces());
  const shown = (title: string, times: readonly SelfTime[], count: number): string =>
    renderTable(
      ["µs/call", "%", title],
      times
        .slice(0, count)
        .map(({ name, selfMs }) => [((selfMs * 1_000) / calls).toFixed(1), ((selfMs / sums.busyMs) * 100).toFixed(1), `  ${name}`]),
      0,
    ).replaceAll(/^(\s*\S+\s+\S+)\s{2,}(\S.*)$/gm, "$1  $2");
  return [
    `main thread: busy ${((sums.busyMs / (sums.busyMs + sums.idleMs)) * 100).toFixed(0)} %, ${figure((sums.busyMs * 1_000) / calls)} µs a call (sampled)`,
    shown("part", sums.parts, PARTS_SHOWN),
    shown("file", sums.files, FILES_SHOWN),
    shown("function", sums.functions, FUNCTIONS_SHOWN),
  ].join("\n\n");
}
