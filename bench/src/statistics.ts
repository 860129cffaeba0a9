/** The figures of a set of measurements. */

/** The middle value, or the mean of the two in the middle. Throws for an empty set. */
export function median(values: ArrayLike<number>): number {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new RangeError("an empty set has no median");
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

/** The smallest value that is not exceeded by at least `share` (above 0, up to 1) of all. Throws for an empty set. */
export function percentile(values: ArrayLike<number>, share: number): number {
  if (!(share > 0 && share <= 1)) throw new RangeError(`${share} is not a share above 0, up to 1`);
  const sorted = Float64Array.from(values).sort();
  const value = sorted[Math.ceil(sorted.length * share) - 1];
  if (value === undefined) throw new RangeError("an empty set has no percentile");
  return value;
}
