import { describe, expect, it } from "vitest";
import { CallTimers } from "./call-timers.js";
import { manualClock } from "./manual-clock.test.kit.js";
import { createTimerWheel, type TimerWheel } from "./timer-wheel.js";

const LEASE_MS = 500;

function timersOf() {
  const clock = manualClock();
  const wheel = createTimerWheel(clock, (error) => {
    throw error;
  });
  let armed = 0;
  const counting: TimerWheel = {
    ...wheel,
    get stalledUntilMs() {
      return wheel.stalledUntilMs;
    },
    after(delayMs, task) {
      armed += 1;
      return wheel.after(delayMs, task);
    },
  };
  const over: number[] = [];
  const timers = new CallTimers(
    { clock, timers: counting, figures: { leaseMs: LEASE_MS, pingIntervalMs: 100, driverAnswerMs: 50 } },
    { onDeadline: () => undefined, onLease: () => over.push(clock.monotonic()) },
  );
  return { clock, timers, over, armed: () => armed };
}

describe("the lease of a call", () => {
  it("ends one lease after it was last renewed, and costs a task only now and then", () => {
    const { clock, timers, over, armed } = timersOf();
    timers.renewLease();
    for (let renewal = 0; renewal < 100; renewal += 1) {
      clock.advance(50);
      timers.renewLease();
    }
    expect(over).toEqual([]);
    expect(armed()).toBeLessThanOrEqual(15);
    const renewedAt = clock.monotonic();
    clock.advance(2 * LEASE_MS);
    expect(over).toHaveLength(1);
    expect((over[0] as number) - renewedAt).toBeGreaterThanOrEqual(LEASE_MS);
    expect((over[0] as number) - renewedAt).toBeLessThanOrEqual(LEASE_MS + 60);
  });

  it("ends earlier when it is renewed for less", () => {
    const { clock, timers, over } = timersOf();
    timers.renewLease(10_000);
    timers.renewLease(100);
    clock.advance(200);
    expect(over).toHaveLength(1);
    clock.advance(20_000);
    expect(over).toHaveLength(1);
  });

  it("does not end after it was taken away, and begins anew", () => {
    const { clock, timers, over } = timersOf();
    timers.renewLease();
    timers.endLease();
    clock.advance(3 * LEASE_MS);
    expect(over).toEqual([]);
    timers.renewLease();
    clock.advance(LEASE_MS + 60);
    expect(over).toHaveLength(1);
  });
});
