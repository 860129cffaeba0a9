/**
 * What observations are counted in: plain numbers, which become samples only when somebody scrapes. A child of a prom-client
 * counter costs some 400 ns for each observation, one of its histograms 550 ns; these cost a few (see `meter-cost.test.ts`).
 */

/** A number that only rises. */
export class Tally {
  total = 0;

  /** Adds one, or `count`. */
  add(count = 1): void {
    this.total += count;
  }
}

/** How often values fell into each bucket. Bounds rise; a value on a bound belongs to its bucket. */
export class Distribution {
  /** One count for each bound, and one for what is above all of them. Not cumulated. */
  readonly counts: Float64Array;
  sum = 0;

  constructor(readonly bounds: readonly number[]) {
    this.counts = new Float64Array(bounds.length + 1);
  }

  /** Counts a value; one below 0, which only disagreeing clocks give, counts as 0. */
  observe(value: number): void {
    const seen = Math.max(0, value);
    const { bounds, counts } = this;
    let bucket = 0;
    while (bucket < bounds.length && seen > (bounds[bucket] ?? 0)) {
      bucket += 1;
    }
    counts[bucket] = (counts[bucket] ?? 0) + 1;
    this.sum += seen;
  }

  get count(): number {
    return this.counts.reduce((all, count) => all + count, 0);
  }
}

/** Steps for times of calls, in seconds: from what the fast path takes to the longest time-out, a day. */
export const CALL_BOUNDS: readonly number[] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400];
/** Steps for requests, in seconds: the longest wait of an agent is 60 s. */
export const REQUEST_BOUNDS: readonly number[] = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
/** Steps for the ledger, in seconds: what takes longer than 5 s is away. */
export const LEDGER_BOUNDS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30,
];
/** Steps for pauses of the garbage collector, in seconds. */
export const PAUSE_BOUNDS: readonly number[] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1];
