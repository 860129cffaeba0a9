/** Memory and handles of the processes of a run, sampled while it goes on. Linux only: read from /proc. */
import { readdirSync, readFileSync } from "node:fs";
import type { Member } from "./member.js";
import { chartOf, type FlatWithin, type Trend, trendOf } from "./trend.js";

export interface ResourceCurve {
  readonly process: string;
  readonly what: "resident MiB" | "handles";
  readonly samples: readonly number[];
  readonly chart: string;
  readonly trend: Trend;
}

export interface ResourceWatch {
  /** What was seen so far. Throws `RangeError` when it went on for too short a time. */
  curves(): readonly ResourceCurve[];
  stop(): void;
}

const EVERY_MS = 10_000;
const KIB_PER_MIB = 1_024;
/** Growth over the last three fifths of the run that counts as flat. */
export const FLAT_MEMORY: FlatWithin = { share: 0.1, more: 4 };
export const FLAT_HANDLES: FlatWithin = { share: 0, more: 4 };

/** Samples each member every 10 s, from now on. */
export function watchResources(members: readonly Member[]): ResourceWatch {
  const samples = members.map((member) => ({ member, memory: [] as number[], handles: [] as number[] }));
  const timer = setInterval(() => {
    for (const { member, memory, handles } of samples) {
      const { pid } = member;
      if (pid === undefined) continue;
      memory.push(residentMiB(pid));
      handles.push(readdirSync(`/proc/${pid}/fd`).length);
    }
  }, EVERY_MS);
  return {
    stop: () => clearInterval(timer),
    curves: () =>
      samples.flatMap(({ member, memory, handles }) => [
        {
          process: member.name,
          what: "resident MiB" as const,
          samples: memory,
          chart: chartOf(memory),
          trend: trendOf(memory, FLAT_MEMORY),
        },
        {
          process: member.name,
          what: "handles" as const,
          samples: handles,
          chart: chartOf(handles),
          trend: trendOf(handles, FLAT_HANDLES),
        },
      ]),
  };
}

function residentMiB(pid: number): number {
  const [, kib = "0"] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Math.round((Number(kib) / KIB_PER_MIB) * 10) / 10;
}

/** One line for people. */
export function describeCurve({ process, what, chart, samples, trend }: ResourceCurve): string {
  const [least, most] = [Math.min(...samples), Math.max(...samples)];
  const verdict = trend.isFlat ? "flat" : "GROWS";
  return `${process.padEnd(10)}${what.padEnd(13)}${chart}  ${least}–${most}, ${trend.growth >= 0 ? "+" : ""}${trend.growth.toFixed(1)} after warm-up: ${verdict}`;
}
