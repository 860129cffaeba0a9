/** For this package's tests: a place that the test changes, leaves and comes back to. */
import type { HeldRunnerId, Place, PlaceFacts } from "./core/place.js";

/** A place that the test changes, and what was asked of it. */
export function createPlace(id: string | null = null) {
  let facts: PlaceFacts = { visibility: "hidden", focused: false };
  const watchers = new Set<() => void>();
  const leaving = new Set<() => void>();
  const waking = new Set<() => void>();
  const released: string[] = [];
  const held: HeldRunnerId | null = id === null ? null : { current: id, release: () => void released.push(id) };
  let back: Promise<void> | null = null;
  let comesBack: () => void = () => {};
  const among = (set: Set<() => void>) => (listener: () => void) => {
    set.add(listener);
    return () => void set.delete(listener);
  };
  const place: Place = {
    facts: () => facts,
    watch: among(watchers),
    holdRunnerId: async () => held,
    borrowRunnerId: async (wanted) => (wanted.startsWith("tab_") ? { current: wanted, release: () => void released.push(wanted) } : null),
    async present(signal) {
      while (back !== null) {
        const waited = back;
        await new Promise<void>((resolve, reject) => {
          if (signal.aborted) reject(new Error("given up"));
          signal.addEventListener("abort", () => reject(new Error("given up")));
          void waited.then(resolve);
        });
      }
    },
    onLeave: among(leaving),
    onWake: among(waking),
  };
  return {
    place,
    watchers,
    released,
    /** Who listens to anything of it. */
    listeners: () => watchers.size + leaving.size + waking.size,
    /** `silently`: no event tells of it. */
    become(next: PlaceFacts, silently = false) {
      facts = next;
      if (!silently) for (const watcher of [...watchers]) watcher();
    },
    leave() {
      back ??= new Promise((resolve) => {
        comesBack = resolve;
      });
      for (const listener of [...leaving]) listener();
    },
    comeBack() {
      back = null;
      comesBack();
      for (const listener of [...waking]) listener();
    },
    wake() {
      for (const listener of [...waking]) listener();
    },
  };
}
