import { describe, expect, it } from "vitest";
import { manualClock } from "./manual-clock.test.kit.js";
import { createTimerWheel } from "./timer-wheel.js";

function fail(error: unknown): never {
  throw error;
}

describe("the timer wheel", () => {
  it("runs each task once, not before its time and at most two buckets late", () => {
    const clock = manualClock();
    const wheel = createTimerWheel(clock, fail);
    const ran: { readonly delay: number; readonly after: number }[] = [];
    const startedAt = clock.monotonic();
    for (const delay of [0, 1, 19, 20, 21, 99, 100, 1_000, 5_003]) {
      wheel.after(delay, () => ran.push({ delay, after: clock.monotonic() - startedAt }));
    }
    clock.advance(6_000);
    expect(ran.map(({ delay }) => delay)).toEqual([0, 1, 19, 20, 21, 99, 100, 1_000, 5_003]);
    for (const { delay, after } of ran) {
      expect(after).toBeGreaterThanOrEqual(delay);
      expect(after).toBeLessThanOrEqual(delay + 40);
    }
  });

  it("holds one timer of the clock for any number of tasks, and none when it is empty", () => {
    const clock = manualClock();
    const wheel = createTimerWheel(clock, fail);
    const tasks = Array.from({ length: 1_000 }, (_, index) => wheel.after(index, () => undefined));
    expect(clock.armed).toBe(1);
    for (const task of tasks) {
      task.cancel();
    }
    clock.advance(50);
    expect(clock.armed).toBe(0);
  });

  it("runs what is due after a stall of any length, in the order of its time", () => {
    const clock = manualClock();
    const wheel = createTimerWheel(clock, fail);
    const ran: number[] = [];
    for (const delay of [30_000, 50, 3_600_000, 28_800_000]) {
      wheel.after(delay, () => ran.push(delay));
    }
    clock.jump(28_800_000 + 40);
    clock.advance(100);
    expect(ran).toEqual([50, 30_000, 3_600_000, 28_800_000]);
  });

  it("tells of a stall before anything that is overdue, and lets the sockets be read in between (G3)", () => {
    const clock = manualClock();
    const wheel = createTimerWheel(clock, fail);
    const happened: string[] = [];
    wheel.onStall((stalledMs) => happened.push(`stall of ${stalledMs}`));
    wheel.after(500, () => happened.push("overdue"));
    clock.advance(100);
    expect(wheel.stalledUntilMs).toBeUndefined();
    clock.jump(10_000);
    expect(happened).toEqual([expect.stringMatching(/^stall of (9\d{3}|10000)$/)]);
    expect(wheel.stalledUntilMs).toBe(clock.monotonic());
    // What comes in now is read before the task runs.
    clock.advance(20);
    expect(happened).toHaveLength(1);
    clock.advance(60);
    expect(happened.slice(1)).toEqual(["overdue"]);
  });

  it("takes no short delay for a stall", () => {
    const clock = manualClock();
    const wheel = createTimerWheel(clock, fail);
    const happened: string[] = [];
    wheel.onStall(() => happened.push("stall"));
    wheel.after(10, () => happened.push("task"));
    clock.jump(900);
    expect(happened).toEqual(["task"]);
  });

  it("runs a task that a task adds, and does not run a cancelled one", () => {
    const clock = manualClock();
    const wheel = createTimerWheel(clock, fail);
    const ran: string[] = [];
    const cancelled = wheel.after(10, () => ran.push("cancelled"));
    wheel.after(10, () => {
      ran.push("first");
      wheel.after(0, () => ran.push("second"));
    });
    cancelled.cancel();
    cancelled.cancel();
    clock.advance(200);
    expect(ran).toEqual(["first", "second"]);
  });

  it("goes on after a task that throws", () => {
    const clock = manualClock();
    const errors: unknown[] = [];
    const wheel = createTimerWheel(clock, (error) => errors.push(error));
    const ran: string[] = [];
    wheel.after(10, () => {
      throw new Error("a task's own fault");
    });
    wheel.after(10, () => ran.push("same bucket"));
    wheel.after(100, () => ran.push("later"));
    clock.advance(240);
    expect(errors).toMatchObject([{ message: "a task's own fault" }]);
    expect(ran).toEqual(["same bucket", "later"]);
  });

  it("runs nothing after it was stopped", () => {
    const clock = manualClock();
    const wheel = createTimerWheel(clock, fail);
    const ran: string[] = [];
    wheel.after(10, () => ran.push("task"));
    wheel.stop();
    wheel.after(10, () => ran.push("late"));
    clock.advance(200);
    expect(ran).toEqual([]);
    expect(clock.armed).toBe(0);
  });
});
