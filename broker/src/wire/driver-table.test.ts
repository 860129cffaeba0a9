import { expect, it } from "vitest";
import type { CallDriver } from "./call-driver.js";
import { DriverTable } from "./driver-table.js";
import { Random, SimProcess, World } from "./schedule/world.test.kit.js";
import { createTimerWheel } from "./timer-wheel.js";

function table(settledMemoryMs = 1_000) {
  const world = new World(new Random(1));
  const { clock } = new SimProcess(world, "broker");
  let tasks = 0;
  const wheel = createTimerWheel(clock, (error) => {
    throw error;
  });
  const timers = {
    ...wheel,
    after(delayMs: number, task: () => void) {
      tasks += 1;
      return wheel.after(delayMs, task);
    },
  };
  return { world, own: new DriverTable({ timers, clock, figures: { settledMemoryMs } }), tasks: () => tasks };
}

// The table asks nothing of a driver but its call's id.
const driver = (callId: string) => ({ callId }) as CallDriver;

it("keeps a settled call for its moment, for who still waits for it", async () => {
  const { world, own } = table();
  const [one, two] = [driver("one"), driver("two")];
  own.add(one);
  own.add(two);
  own.settled(one);
  await world.run(600, () => false);
  own.settled(two);
  expect(own.get("one")).toBe(one);
  await world.run(1_100, () => false);
  expect([own.get("one"), own.get("two")]).toEqual([undefined, two]);
  await world.run(1_700, () => false);
  expect(own.size).toBe(0);
});

it("holds at most a thousand settled calls, and one task for all of them, however fast they settle", () => {
  const { own, tasks } = table();
  for (let index = 0; index < 5_000; index += 1) {
    const each = driver(`call_${index}`);
    own.add(each);
    own.settled(each);
    own.settled(each);
  }
  expect(own.size).toBe(1_000);
  expect(own.get("call_3999")).toBeUndefined();
  expect(own.get("call_4000")).toBeDefined();
  expect(tasks()).toBe(1);
});

it("keeps no settled call that it does not drive, and forgets no newer driver of the same call", async () => {
  const { world, own } = table();
  const [old, newer] = [driver("same"), driver("same")];
  own.add(newer);
  own.settled(old);
  own.remove(old);
  await world.run(3_000, () => false);
  expect(own.get("same")).toBe(newer);
});
