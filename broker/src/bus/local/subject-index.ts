/** Finds the listeners of a subject: exact ones and those on a trailing `*` or `>`, in the order in which they came. */
export interface SubjectIndex<T> {
  add(subject: string, entry: T): () => void;
  /** The entries whose subject matches, oldest first. */
  match(subject: string): T[];
}

interface Slot<T> {
  readonly order: number;
  readonly entry: T;
}

/**
 * An index over three maps, so that a publish costs as many look-ups as its subject has tokens,
 * however many listeners there are.
 */
export function createSubjectIndex<T>(): SubjectIndex<T> {
  const slots = new Map<string, Set<Slot<T>>>();
  let order = 0;

  const collect = (key: string, into: Slot<T>[]): void => {
    const found = slots.get(key);
    if (found !== undefined) into.push(...found);
  };

  return {
    add(subject, entry) {
      const slot: Slot<T> = { order: order++, entry };
      const set = slots.get(subject) ?? new Set();
      slots.set(subject, set.add(slot));
      return () => {
        set.delete(slot);
        if (set.size === 0 && slots.get(subject) === set) slots.delete(subject);
      };
    },
    match(subject) {
      const found: Slot<T>[] = [];
      collect(subject, found);
      const lastDot = subject.lastIndexOf(".");
      collect(`${subject.slice(0, lastDot + 1)}*`, found);
      for (let dot = lastDot; dot !== -1; dot = dot === 0 ? -1 : subject.lastIndexOf(".", dot - 1)) {
        collect(`${subject.slice(0, dot + 1)}>`, found);
      }
      collect(">", found);
      return found.sort((left, right) => left.order - right.order).map((slot) => slot.entry);
    },
  };
}
