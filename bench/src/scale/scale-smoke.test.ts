import { afterAll, describe, expect, it } from "vitest";
import { watchStalls } from "../processes/process-health.js";
import { contrastFigure } from "./contrast.js";
import { measureIdleSessions, type ScaleContext } from "./idle-sessions.js";
import { measureOpenCalls } from "./open-calls.js";
import { SCALE_QUICK } from "./scale-options.js";
import { measureSettledCalls } from "./settled-calls.js";

const said: string[] = [];
const TINY: ScaleContext = {
  ...SCALE_QUICK,
  sessions: 50,
  fewSessions: 5,
  settleMs: 100,
  idleMs: 600,
  settled: 200,
  fewSettled: 20,
  open: 80,
  fewOpen: 5,
  laneStep: 20,
  rounds: 1,
  loadMs: 100,
  warmUpMs: 100,
  restart: { afterMs: 100, loadMs: 1_500 },
  natsServer: undefined,
  index: true,
  say: (text) => said.push(text),
};
/** A loaded machine starts some thirty processes slowly. */
const WITHIN_MS = 180_000;

describe("the measurements at scale", () => {
  afterAll(() => expect(said).toEqual([]));

  it(
    "take the cost of idle sessions beside bare connections, and kill a broker without failing a call",
    async () => {
      const { bare, product, oneAtATime, restart } = await measureIdleSessions("sqlite", TINY);
      for (const cost of [bare, product]) {
        expect(cost.connections).toBe(50);
        expect(cost.cpuShare).toBeGreaterThan(0);
        expect(cost.connectMs).toBeGreaterThan(0);
      }
      expect(contrastFigure(oneAtATime, "p99Ms")?.ratio).toBeGreaterThan(0);
      expect(restart.failure).toBeUndefined();
      expect(restart.calls).toBeGreaterThan(0);
      // Each connection of the fleet was cut.
      expect(restart.endings["1006"]).toBeGreaterThanOrEqual(50);
    },
    WITHIN_MS,
  );

  it(
    "fill a ledger with settled calls that listings show",
    async () => {
      const { contrast, fillMs, indexedMs } = await measureSettledCalls("sqlite", TINY);
      expect(contrast).toMatchObject({ few: 20, many: 200 });
      expect(contrastFigure(contrast, "brokerCpuMsPerCall")?.ratio).toBeGreaterThan(0);
      expect(fillMs).toBeGreaterThan(0);
      expect(indexedMs).toBeGreaterThan(0);
    },
    WITHIN_MS,
  );

  it(
    "keep calls queued, waiting in their lane and running",
    async () => {
      const { queued, lane, running, grantMs } = await measureOpenCalls("sqlite", TINY);
      for (const contrast of [queued, lane, running]) expect(contrastFigure(contrast, "brokerCpuMsPerCall")?.ratio).toBeGreaterThan(0);
      expect(grantMs).toBeGreaterThan(0);
    },
    WITHIN_MS,
  );
});

describe("a watch of stalls", () => {
  it("tells how long the loop did not turn, and how much of that was computed", async () => {
    const computing = watchStalls();
    const until = performance.now() + 60;
    while (performance.now() < until);
    await new Promise((resolve) => setTimeout(resolve, 10));
    const { wallMs, busyMs } = computing.end();
    expect(wallMs).toBeGreaterThanOrEqual(50);
    expect(busyMs).toBeGreaterThan(5);
    expect(busyMs).toBeLessThanOrEqual(wallMs);
    const waiting = watchStalls();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 80);
    await new Promise((resolve) => setTimeout(resolve, 10));
    const slept = waiting.end();
    expect(slept.wallMs).toBeGreaterThanOrEqual(70);
    expect(slept.busyMs).toBeLessThan(slept.wallMs);
  });
});
