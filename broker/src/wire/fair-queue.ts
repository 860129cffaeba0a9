/**
 * What waits for the same thing, in a fair order (X8): interactive before background; of equals, the subjects in turn; of one
 * subject, the oldest first.
 *
 * Invariants: pure, and every operation costs the same however much waits. A subject that was served goes behind the others
 * that wait, so between two turns of one that waits each other one is served once at most.
 */

export type Priority = "interactive" | "background";

export interface Waiting {
  readonly priority: Priority;
  /** Null: nobody's, which counts as one subject. */
  readonly subject: string | null;
}

/** By subject, whose turn is next first; of each the oldest first. */
type Tier<T> = Map<string | null, Set<T>>;

export class FairQueue<T> {
  private readonly tiers: Record<Priority, Tier<T>> = { interactive: new Map(), background: new Map() };
  private readonly places = new Map<T, Waiting>();

  get size(): number {
    return this.places.size;
  }

  /** In the order in which they would be served if nothing else came. */
  *[Symbol.iterator](): IterableIterator<T> {
    for (const tier of [this.tiers.interactive, this.tiers.background]) {
      const left = [...tier.values()].map((items) => [...items]);
      while (left.some((items) => items.length > 0)) {
        for (const items of left) {
          const first = items.shift();
          if (first !== undefined) {
            yield first;
          }
        }
      }
    }
  }

  has(item: T): boolean {
    return this.places.has(item);
  }

  /** To the end of its subject's; what waits already keeps its place. */
  add(item: T, { priority, subject }: Waiting): void {
    if (this.places.has(item)) {
      return;
    }
    this.places.set(item, { priority, subject });
    const tier = this.tiers[priority];
    const items = tier.get(subject);
    if (items === undefined) {
      tier.set(subject, new Set([item]));
    } else {
      items.add(item);
    }
  }

  /** Who is served next; undefined: nothing waits. */
  get next(): T | undefined {
    for (const tier of [this.tiers.interactive, this.tiers.background]) {
      const items = tier.values().next().value;
      if (items !== undefined) {
        return items.values().next().value;
      }
    }
    return undefined;
  }

  /** It is served: the other subjects come before its own again. */
  serve(item: T): void {
    const place = this.places.get(item);
    if (place === undefined) {
      return;
    }
    this.remove(item);
    const tier = this.tiers[place.priority];
    const others = tier.get(place.subject);
    if (others !== undefined) {
      tier.delete(place.subject);
      tier.set(place.subject, others);
    }
  }

  /** It waits no longer, and was not served. */
  remove(item: T): void {
    const place = this.places.get(item);
    if (place === undefined) {
      return;
    }
    this.places.delete(item);
    const tier = this.tiers[place.priority];
    const items = tier.get(place.subject);
    items?.delete(item);
    if (items?.size === 0) {
      tier.delete(place.subject);
    }
  }
}
