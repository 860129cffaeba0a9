/** The same load where there is little of something, and where there is much of it. */
import type { Sample } from "../figures.js";
import type { LoadRequest } from "../load.js";
import type { LedgerKind } from "../processes/roles.js";
import type { LoadSample } from "../stage.js";
import { median } from "../statistics.js";

/** Samples of both sides, in the order of the rounds. */
export interface Contrast {
  readonly ledger: LedgerKind;
  /** What there is little and much of. */
  readonly what: string;
  readonly few: number;
  readonly many: number;
  readonly fewSamples: readonly Partial<Sample>[];
  readonly manySamples: readonly Partial<Sample>[];
}

/** What much ÷ little may be: the cost of a call does not grow, beyond what two runs on a busy machine differ by. */
export const GROWTH_AIM = { atMost: 1.2 } as const;

export interface ContrastFigure {
  readonly few: number;
  readonly many: number;
  /** Median of the rounds' own ratios. */
  readonly ratio: number;
}

/** Figures of one field; undefined: it was not measured. Throws when the sides have not the same number of rounds. */
export function contrastFigure(contrast: Contrast, field: keyof Sample): ContrastFigure | undefined {
  const few = valuesOf(contrast.fewSamples, field);
  const many = valuesOf(contrast.manySamples, field);
  if (few.length !== many.length) throw new RangeError(`${few.length} rounds with few ${contrast.what}, ${many.length} with many`);
  if (few.length === 0) return undefined;
  return { few: median(few), many: median(many), ratio: median(many.map((value, round) => value / (few[round] as number))) };
}

function valuesOf(samples: readonly Partial<Sample>[], field: keyof Sample): number[] {
  return samples.map((sample) => sample[field]).filter((value) => value !== undefined);
}

export interface Rounds {
  readonly rounds: number;
  readonly warmUpMs: number;
  readonly load: LoadRequest;
}

/** A side of a contrast: something that a load can be put on. */
export interface Loadable {
  measure(load: LoadRequest): Promise<LoadSample>;
}

/** Warms both sides up, then loads them in turn; who begins changes with each round. */
export async function inTurns(
  few: Loadable,
  many: Loadable,
  { rounds, warmUpMs, load }: Rounds,
): Promise<Pick<Contrast, "fewSamples" | "manySamples">> {
  const fewSamples: LoadSample[] = [];
  const manySamples: LoadSample[] = [];
  for (const side of [few, many]) await side.measure({ ...load, durationMs: warmUpMs });
  for (let round = 0; round < rounds; round += 1) {
    const loads = [async () => fewSamples.push(await few.measure(load)), async () => manySamples.push(await many.measure(load))];
    for (const each of round % 2 === 0 ? loads : loads.reverse()) await each();
  }
  return { fewSamples, manySamples };
}
