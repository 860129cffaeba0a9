/** Whether a series of samples is flat after its warm-up, and its curve as text. Pure. */

export interface Trend {
  /** Growth over the measured part, as the median of the slopes between all pairs of samples has it: single peaks count little. */
  readonly growth: number;
  /** Middle of the measured part. */
  readonly level: number;
  readonly isFlat: boolean;
}

export interface FlatWithin {
  /** Growth over the measured part that counts as flat: this share of the level… */
  readonly share: number;
  /** …and this much besides. */
  readonly more: number;
}

const WARM_UP_SHARE = 0.4;
const BARS = "▁▂▃▄▅▆▇█";
const CHART_WIDTH = 60;

/** @param samples taken at even times. Their first two fifths are warm-up. Throws `RangeError` when fewer than 5 are left. */
export function trendOf(samples: readonly number[], within: FlatWithin): Trend {
  const measured = samples.slice(Math.floor(samples.length * WARM_UP_SHARE));
  if (measured.length < 5) throw new RangeError(`${samples.length} samples are too few for a trend`);
  const slopes = measured.flatMap((later, to) => measured.slice(0, to).map((earlier, from) => (later - earlier) / (to - from)));
  const growth = middle(slopes) * (measured.length - 1);
  const level = middle(measured);
  return { growth, level, isFlat: growth <= level * within.share + within.more };
}

function middle(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(half)] ?? 0) + (sorted[Math.ceil(half)] ?? 0)) / 2;
}

/** The curve in one line, from its lowest to its highest sample; at most 60 characters. */
export function chartOf(samples: readonly number[]): string {
  const width = Math.min(CHART_WIDTH, samples.length);
  const points = Array.from({ length: width }, (_, index) => {
    const part = samples.slice(Math.floor((index * samples.length) / width), Math.floor(((index + 1) * samples.length) / width));
    return Math.max(...part);
  });
  const least = Math.min(...points);
  const span = Math.max(...points) - least || 1;
  return points.map((point) => BARS[Math.min(BARS.length - 1, Math.floor(((point - least) / span) * BARS.length))] ?? "").join("");
}
