/** From samples to figures, and from figures to ratios and verdicts. */
import { type InFlight, LOADS } from "./options.js";
import type { AgentInterface, LedgerKind, RunnerTransport } from "./processes/roles.js";
import { median } from "./statistics.js";

/** One load of one round on one side. */
export interface Sample {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly callsPerSecond: number;
  /** Processor time of the broker's process. */
  readonly brokerCpuMsPerCall: number;
}

/** With what the other two processes spent. */
export interface StageSample extends Sample {
  readonly agentCpuMsPerCall: number;
  readonly runnerCpuMsPerCall: number;
}

/** The samples of one side, in the order of the rounds. */
export type Samples = Readonly<Record<InFlight, readonly StageSample[]>>;

/** What was measured of one combination. */
export interface Cell {
  readonly ledger: LedgerKind;
  readonly runner: RunnerTransport;
  readonly agent: AgentInterface;
  readonly product: Samples;
  readonly floor: Samples;
  readonly productWritesPerCall: number;
  readonly floorWritesPerCall: number;
}

/** One column of the table. */
export interface Measure {
  readonly name: string;
  readonly inFlight: InFlight;
  readonly field: keyof Sample;
  /** What product ÷ floor should be; absent: it is shown only. */
  readonly aim?: { readonly atMost: number } | { readonly atLeast: number };
}

export const P50_AIM = { atMost: 1.5 } as const;
export const P99_AIM = { atMost: 2 } as const;
export const THROUGHPUT_AIM = { atLeast: 0.7 } as const;
export const CPU_AIM = { atMost: 1.5 } as const;

export const MEASURES: readonly Measure[] = [
  { name: "p50 ms", inFlight: 1, field: "p50Ms", aim: P50_AIM },
  { name: "p99 ms", inFlight: 1, field: "p99Ms", aim: P99_AIM },
  { name: "calls/s 1", inFlight: 1, field: "callsPerSecond" },
  { name: "calls/s 64", inFlight: 64, field: "callsPerSecond", aim: THROUGHPUT_AIM },
  { name: "calls/s 256", inFlight: 256, field: "callsPerSecond", aim: THROUGHPUT_AIM },
  { name: "cpu ms 1", inFlight: 1, field: "brokerCpuMsPerCall" },
  { name: "cpu ms 64", inFlight: 64, field: "brokerCpuMsPerCall", aim: CPU_AIM },
  { name: "cpu ms 256", inFlight: 256, field: "brokerCpuMsPerCall", aim: CPU_AIM },
];

export interface Comparison {
  readonly measure: Measure;
  readonly product: number;
  readonly floor: number;
  /** Median of the rounds' own ratios, so that both sides of each ratio saw the same machine. */
  readonly ratio: number;
  /** Absent: there is no aim. */
  readonly holds?: boolean;
}

/** All measures of a cell. Throws when the sides have not the same number of rounds. */
export function compare(cell: Cell): readonly Comparison[] {
  return MEASURES.map((measure) => {
    const product = cell.product[measure.inFlight].map((sample) => sample[measure.field]);
    const floor = cell.floor[measure.inFlight].map((sample) => sample[measure.field]);
    if (product.length !== floor.length) throw new RangeError(`${product.length} rounds of the product, ${floor.length} of the floor`);
    const ratio = median(product.map((value, round) => value / (floor[round] as number)));
    const comparison = { measure, product: median(product), floor: median(floor), ratio };
    return measure.aim === undefined ? comparison : { ...comparison, holds: meets(ratio, measure.aim) };
  });
}

export function meets(ratio: number, aim: { readonly atMost: number } | { readonly atLeast: number }): boolean {
  return "atMost" in aim ? ratio <= aim.atMost : ratio >= aim.atLeast;
}

/** No samples yet. */
export function emptySamples(): Record<InFlight, StageSample[]> {
  return Object.fromEntries(LOADS.map((inFlight): [InFlight, StageSample[]] => [inFlight, []])) as Record<InFlight, StageSample[]>;
}
