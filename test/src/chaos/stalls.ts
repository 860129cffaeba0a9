/** How long nothing settled, although it could have. Pure. */

/** From, to, in ms. */
export type Span = readonly [from: number, to: number];

export interface StallFacts {
  /** When calls settled. */
  readonly settledAtMs: readonly number[];
  /** When calls were waited for. */
  readonly waiting: readonly Span[];
  /** When no path was healthy: then nothing can settle, and no time counts. */
  readonly unhealthy: readonly Span[];
}

/** The longest span in which calls were waiting, some path was healthy, and none settled; in ms, 0 when there is none. */
export function longestStall({ settledAtMs, waiting, unhealthy }: StallFacts): number {
  const counted = subtract(union(waiting), union(unhealthy));
  const settled = [...settledAtMs].sort((a, b) => a - b);
  let longest = 0;
  let next = 0;
  for (const [from, to] of counted) {
    while (next < settled.length && (settled[next] ?? 0) < from) next += 1;
    let since = from;
    for (; next < settled.length && (settled[next] ?? 0) <= to; next += 1) {
      longest = Math.max(longest, (settled[next] ?? since) - since);
      since = settled[next] ?? since;
    }
    longest = Math.max(longest, to - since);
  }
  return longest;
}

/** The spans joined where they touch, in order. */
export function union(spans: readonly Span[]): readonly Span[] {
  const joined: [number, number][] = [];
  for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
    const last = joined.at(-1);
    if (last !== undefined && from <= last[1]) last[1] = Math.max(last[1], to);
    else if (to > from) joined.push([from, to]);
  }
  return joined;
}

/** What of `spans` is in none of `others`. Both are joined. */
function subtract(spans: readonly Span[], others: readonly Span[]): readonly Span[] {
  return spans.flatMap((span) => {
    const left: Span[] = [];
    let from = span[0];
    for (const [start, end] of others) {
      if (end <= from || start >= span[1]) continue;
      if (start > from) left.push([from, start]);
      from = Math.max(from, end);
    }
    if (from < span[1]) left.push([from, span[1]]);
    return left;
  });
}
