/** What a broker's process answers about its memory and its event loop. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { BrokerRole, MemoryUse, Stall } from "./roles.js";

/** The loop is looked at this often; what it was late beyond that is a stall. */
const LOOK_EVERY_MS = 5;
const US_PER_MS = 1_000;
const COLLECTIONS = 3;

/** The part of a server's role that tells how it fares. */
export function processHealth(): Pick<BrokerRole, "memory" | "watchStalls" | "longestStall"> {
  let watch: StallWatch | undefined;
  return {
    async memory(): Promise<MemoryUse> {
      const collect = collector();
      // What a collection lets go is often what lets go of something else: handles close a turn later.
      for (let count = 0; count < COLLECTIONS; count += 1) {
        collect();
        await nextTurn();
      }
      const { rss, heapUsed, external } = process.memoryUsage();
      return { residentBytes: rss, heapBytes: heapUsed + external };
    },
    watchStalls() {
      watch?.end();
      watch = watchStalls();
    },
    longestStall() {
      if (watch === undefined) throw new Error("stalls were not watched");
      return watch.end();
    },
  };
}

/** A watch of this process's event loop. */
export interface StallWatch {
  /** Ends it, with the longest stall since it began. */
  end(): Stall;
}

/** Begins a watch. */
export function watchStalls(): StallWatch {
  let wallMs = 0;
  let busyMs = 0;
  let last = performance.now();
  let lastCpuMs = cpuMs();
  const look = (): void => {
    const now = performance.now();
    const cpu = cpuMs();
    const lateMs = Math.max(0, now - last - LOOK_EVERY_MS);
    wallMs = Math.max(wallMs, lateMs);
    busyMs = Math.max(busyMs, Math.min(lateMs, cpu - lastCpuMs));
    last = now;
    lastCpuMs = cpu;
  };
  const timer = setInterval(look, LOOK_EVERY_MS);
  return {
    end() {
      clearInterval(timer);
      look();
      return { wallMs, busyMs };
    },
  };
}

function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / US_PER_MS;
}

/** A full garbage collection, also in a process that was started without `--expose-gc`. */
function collector(): () => void {
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc") as () => void;
}
