/**
 * The process itself, under the names that Prometheus and prom-client use. prom-client's own set is not taken: once begun it
 * watches the event loop and the garbage collector for ever, and a broker ends with everything that it began.
 */
import { monitorEventLoopDelay, PerformanceObserver, performance } from "node:perf_hooks";
import type { Registry } from "prom-client";
import { METRICS } from "./definitions.js";
import { distributions, exposeValue } from "./families.js";

/** Between two looks at the event loop. More of them would cost an idle broker what it does not do otherwise. */
const LOOP_LOOK_MS = 50;
const GC_KINDS: Readonly<Record<number, string>> = { 1: "minor", 4: "major", 8: "incremental", 16: "weak_callbacks" };

/** Begins to watch; the returned function ends it. */
export function watchProcess(registry: Registry): () => void {
  const delay = monitorEventLoopDelay({ resolution: LOOP_LOOK_MS });
  delay.enable();
  const pauses = distributions(registry, METRICS.gc);
  const collector = new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as readonly GcEntry[]) {
      pauses.of(GC_KINDS[entry.detail?.kind ?? 0] ?? "other").observe(entry.duration / 1_000);
    }
  });
  collector.observe({ entryTypes: ["gc"] });

  exposeValue(registry, METRICS.cpu, () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  exposeValue(registry, METRICS.startTime, () => performance.timeOrigin / 1_000);
  exposeValue(registry, METRICS.residentMemory, () => process.memoryUsage.rss());
  let memory = process.memoryUsage();
  exposeValue(registry, METRICS.heapUsed, () => {
    memory = process.memoryUsage();
    return memory.heapUsed;
  });
  exposeValue(registry, METRICS.heapTotal, () => memory.heapTotal);
  exposeValue(registry, METRICS.externalMemory, () => memory.external);
  // What a timer is late, beyond the time that it was set for.
  const late = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e9 - LOOP_LOOK_MS / 1_000);
  exposeValue(registry, METRICS.loopLagHalf, () => late(delay.percentile(50)));
  exposeValue(registry, METRICS.loopLagMost, () => late(delay.percentile(99)));
  exposeValue(registry, METRICS.loopLagMax, () => {
    const longest = late(delay.max);
    delay.reset();
    return longest;
  });
  exposeValue(registry, METRICS.loopActive, () => performance.eventLoopUtilization().active / 1_000);

  return () => {
    delay.disable();
    collector.disconnect();
  };
}

interface GcEntry {
  readonly duration: number;
  readonly detail?: { readonly kind?: number };
}
