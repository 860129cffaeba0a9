import { describe, expect, it } from "vitest";
import type { Fault } from "./faults.js";
import { unhealthySpans } from "./health.js";

const size = { brokers: 2, natsServers: 3, runners: 1 };
const fault = (kind: Fault["kind"], target: string, fromMs: number, toMs: number) => ({
  fault: { atMs: 0, forMs: 0, kind, target },
  fromMs,
  toMs,
});

describe("a fleet is out of order", () => {
  it("while all brokers are, and a second longer", () => {
    expect(unhealthySpans([fault("kill", "broker-1", 0, 5_000), fault("stop", "broker-2", 3_000, 9_000)], size)).toEqual([[3_000, 6_000]]);
    expect(unhealthySpans([fault("kill", "broker-1", 0, 5_000)], size)).toEqual([]);
  });

  it("while NATS has no majority, or no runner is reached", () => {
    expect(unhealthySpans([fault("kill", "nats-1", 0, 5_000), fault("hold", "nats-nats:3", 4_000, 5_000)], size)).toEqual([[4_000, 6_000]]);
    expect(unhealthySpans([fault("cut", "runner-broker:1", 1_000, 2_000)], size)).toEqual([[1_000, 3_000]]);
  });

  it("not while links are slow", () => {
    expect(unhealthySpans([fault("delay", "runner-broker:1", 0, 9_000), fault("split", "runner-broker:1", 0, 9_000)], size)).toEqual([]);
  });
});
