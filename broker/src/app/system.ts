/** The real clock, ids and randomness of a process. */
import { randomFillSync } from "node:crypto";
import { performance } from "node:perf_hooks";
import { ID_CHARACTERS, idText } from "../domain/id-text.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";

const POOL_BYTES = 4_096;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule(delayMs, task) {
    if (delayMs <= 0) {
      // A timer of 0 that is due again when its turn ends runs before the sockets are looked at.
      const immediate = setImmediate(task);
      return { cancel: () => clearImmediate(immediate) };
    }
    const timer = setTimeout(task, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
};

/** Ids from the operating system's randomness, drawn in pools: one system call for many ids. */
export function createSystemIds(): IdSource {
  const pool = Buffer.alloc(POOL_BYTES);
  let used = POOL_BYTES;
  return {
    next(prefix) {
      if (used + ID_CHARACTERS > POOL_BYTES) {
        randomFillSync(pool);
        used = 0;
      }
      const id = idText(prefix, pool, used);
      used += ID_CHARACTERS;
      return id;
    },
    random: Math.random,
  };
}
