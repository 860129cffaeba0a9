import { Registry } from "prom-client";
import { afterEach, describe, expect, it } from "vitest";
import { watchProcess } from "./process-metrics.js";
import { type ParsedMetrics, parseMetrics } from "./testing/parse-metrics.js";

const undo: (() => void)[] = [];
afterEach(() => {
  for (const step of undo.splice(0)) step();
});

function watched(): { readonly scrape: () => Promise<ParsedMetrics>; readonly stop: () => void } {
  const registry = new Registry();
  const stop = watchProcess(registry);
  undo.push(stop);
  return { stop, scrape: async () => parseMetrics(await registry.metrics()) };
}

const pass = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe("the metrics of the process (D5)", () => {
  it("show the process: memory, processor, event loop and collector", async () => {
    const { scrape } = watched();
    const before = await scrape();
    // The event loop is looked at every 50 ms: a standstill shows between two looks.
    await pass(120);
    standStill(120);
    await pass(120);
    const shown = await scrape();
    expect(shown.sum("process_resident_memory_bytes")).toBeGreaterThan(10_000_000);
    expect(shown.sum("nodejs_heap_size_total_bytes")).toBeGreaterThanOrEqual(shown.sum("nodejs_heap_size_used_bytes"));
    expect(shown.sum("process_cpu_seconds_total")).toBeGreaterThan(before.sum("process_cpu_seconds_total"));
    expect(shown.sum("nodejs_eventloop_active_seconds_total")).toBeGreaterThan(before.sum("nodejs_eventloop_active_seconds_total"));
    expect(shown.sum("nodejs_eventloop_lag_max_seconds")).toBeGreaterThan(0.03);
    expect(Math.abs(shown.sum("process_start_time_seconds") * 1_000 - Date.now())).toBeLessThan(3_600_000);
    await expect
      .poll(
        async () => {
          standStill(20);
          return (await scrape()).sum("nodejs_gc_duration_seconds_count", { kind: "minor" });
        },
        { timeout: 10_000 },
      )
      .toBeGreaterThan(0);
  });

  it("end all that watches the process when they are stopped", async () => {
    const { scrape, stop } = watched();
    stop();
    stop();
    await scrape();
    standStill(120);
    await pass(120);
    const shown = await scrape();
    expect(shown.sum("nodejs_eventloop_lag_max_seconds")).toBe(0);
    expect(shown.metrics.get("nodejs_gc_duration_seconds")?.samples).toEqual([]);
  });
});

/** Keeps the event loop for `ms`, and makes garbage. */
function standStill(ms: number): void {
  const until = performance.now() + ms;
  let made = 0;
  while (performance.now() < until) made += Array.from({ length: 10_000 }, (_, index) => ({ index })).length;
  expect(made).toBeGreaterThan(0);
}
