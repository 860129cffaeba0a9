/** Chance that can be replayed: everything random of a chaos run comes from its seed. */

/** A stream of chance. */
export interface SeededRandom {
  /** In [0, 1). */
  next(): number;
  /** A whole number from `least` to `most`, both included. */
  between(least: number, most: number): number;
  /** One of `all`. Throws when there is none. */
  pick<T>(all: readonly T[]): T;
  /** True with this probability, 0 to 1. */
  chance(probability: number): boolean;
}

/**
 * The stream that belongs to `seed` and `name`. Streams of other names are independent, so that one more draw in one place changes
 * nothing in another.
 */
export function seededRandom(seed: number, name: string): SeededRandom {
  let state = hashOf(`${seed}/${name}`);
  // mulberry32: one 32-bit word of state, every value equally often.
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
  const between = (least: number, most: number): number => least + Math.floor(next() * (most - least + 1));
  return {
    next,
    between,
    pick: (all) => {
      if (all.length === 0) throw new RangeError("nothing to pick from");
      return all[between(0, all.length - 1)] as (typeof all)[number];
    },
    chance: (probability) => next() < probability,
  };
}

/** FNV-1a over the text's code units. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return hash | 0;
}
