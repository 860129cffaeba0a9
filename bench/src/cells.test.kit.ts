/** Cells for tests, from the figures of each round. */
import type { Cell, Samples, StageSample } from "./figures.js";

export function sampleOf(given: Partial<StageSample> = {}): StageSample {
  return {
    p50Ms: 1,
    p99Ms: 2,
    callsPerSecond: 1_000,
    brokerCpuMsPerCall: 0.1,
    agentCpuMsPerCall: 0.03,
    runnerCpuMsPerCall: 0.02,
    ...given,
  };
}

/** The same samples at every load. */
export function samplesOf(rounds: readonly Partial<StageSample>[]): Samples {
  const samples = rounds.map(sampleOf);
  return { 1: samples, 64: samples, 256: samples };
}

export function cellOf(product: readonly Partial<StageSample>[], floor: readonly Partial<StageSample>[], more: Partial<Cell> = {}): Cell {
  return {
    ledger: "sqlite",
    runner: "websocket",
    agent: "grpc",
    product: samplesOf(product),
    floor: samplesOf(floor),
    productWritesPerCall: 2,
    floorWritesPerCall: 2,
    ...more,
  };
}
