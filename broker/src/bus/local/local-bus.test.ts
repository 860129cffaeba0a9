import { expect, it } from "vitest";
import type { Bus } from "../../domain/ports/bus.js";
import { describeBus } from "../testing/describe-bus.js";
import { createLocalBus, createLocalBusHub } from "./local-bus.js";

describeBus("local", async () => {
  const hub = createLocalBusHub();
  const buses: Bus[] = [];
  return {
    async connect() {
      const bus = hub.connect();
      buses.push(bus);
      return bus;
    },
    async close() {
      await Promise.all(buses.map((bus) => bus.close()));
    },
  };
});

it("buses of different hubs share nothing", async () => {
  const one = createLocalBus();
  const two = createLocalBus();
  two.respond("svc", async () => "x");
  await (await two.registry("brokers")).put("k", "v");
  await expect(one.request("svc", "", { timeoutMs: 50 })).rejects.toMatchObject({ code: "no_responder" });
  expect(await (await one.registry("brokers")).get("k")).toBeUndefined();
});

it("requests that many wait for end as soon as everybody who can has answered, without waiting for the time-out", async () => {
  const bus = createLocalBus();
  bus.respond("many", async () => "a");
  bus.respond("many", async () => undefined);
  const startedAt = performance.now();
  expect(await bus.requestMany("many", "", { timeoutMs: 60_000, max: 10 })).toEqual(["a"]);
  expect(performance.now() - startedAt).toBeLessThan(10_000);
});

it("times requests by the clock that it was given", async () => {
  const due: (() => void)[] = [];
  const bus = createLocalBusHub({
    clock: {
      schedule(_delayMs, task) {
        due.push(task);
        return { cancel: () => undefined };
      },
    },
  }).connect();
  bus.respond("silent", async () => undefined);
  const request = bus.request("silent", "", { timeoutMs: 60_000 });
  await Promise.resolve();
  expect(due).toHaveLength(1);
  due[0]?.();
  await expect(request).rejects.toMatchObject({ code: "timeout" });
});

it("a request that waits while the bus closes is refused as closed", async () => {
  const bus = createLocalBus();
  bus.respond("silent", async () => undefined);
  const request = bus.request("silent", "", { timeoutMs: 60_000 });
  await bus.close();
  await expect(request).rejects.toMatchObject({ code: "closed" });
});
