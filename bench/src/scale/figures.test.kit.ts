/** Figures at scale for tests. */
import { sampleOf } from "../cells.test.kit.js";
import type { Contrast } from "./contrast.js";
import type { IdleCost } from "./idle-sessions.js";
import type { ScaleFigures } from "./scale.js";

const stall = { wallMs: 40, busyMs: 12 };
const cost: IdleCost = {
  connections: 10_000,
  connectMs: 4_000,
  connectStall: stall,
  residentBytes: 10_240,
  heapBytes: 4_096,
  cpuShare: 0.05,
  stall,
};

export const contrastOf = (what: string, ratio = 1): Contrast => ({
  ledger: "sqlite",
  what,
  few: 10,
  many: 20_000,
  fewSamples: [sampleOf()],
  manySamples: [sampleOf({ brokerCpuMsPerCall: 0.1 * ratio, p99Ms: 2 * ratio })],
});

/** All aims hold, unless `given` says otherwise. */
export function scaleFiguresOf(
  given: { readonly sessionBytes?: number; readonly growth?: number; readonly failure?: string } = {},
): ScaleFigures {
  const { growth = 1, failure } = given;
  return {
    sessions: [
      {
        ledger: "sqlite",
        bare: cost,
        product: { ...cost, residentBytes: given.sessionBytes ?? 20_480 },
        oneAtATime: contrastOf("sessions, 1 call at a time", growth),
        inFlight64: contrastOf("sessions, 64 calls in flight"),
        restart: { reconnectMs: 7_000, startMs: 900, stall, calls: 1_234, failure, endings: { "1006": 10_000 } },
      },
    ],
    settled: [{ contrast: contrastOf("settled calls stored", growth), fillMs: 30_000, indexedMs: 20_000 }],
    open: [
      {
        ledger: "sqlite",
        queued: contrastOf("queued calls"),
        lane: contrastOf("calls in the same lane"),
        running: contrastOf("running calls"),
        grantStall: stall,
        runningStall: stall,
        grantMs: 5_000,
      },
    ],
  };
}
