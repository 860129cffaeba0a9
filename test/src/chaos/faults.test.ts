import { describe, expect, it } from "vitest";
import { describeFault, type Fault, faultName, PlanError, readPlan, writePlan } from "./faults.js";
import { FAULT_NAMES, planFaults } from "./plan-faults.js";

const options = { seed: 7, durationMs: 120_000, brokers: 3, natsServers: 3, runners: 6 };

describe("a plan of faults", () => {
  it("is the same for the same seed, and another for another", () => {
    expect(planFaults(options)).toEqual(planFaults(options));
    expect(planFaults(options)).not.toEqual(planFaults({ ...options, seed: 8 }));
  });

  it("holds every kind sooner or later, and all end before the load does", () => {
    const faults = Array.from({ length: 40 }, (_, seed) => planFaults({ ...options, seed })).flat();
    expect(new Set(faults.map(faultName))).toEqual(new Set(FAULT_NAMES));
    expect(Math.max(...faults.map(({ atMs, forMs }) => atMs + forMs))).toBeLessThanOrEqual(options.durationMs - 2_000);
  });

  it("does one thing at a time to a target, and rarely weakens two NATS servers at once", () => {
    let pairs = 0;
    let all = 0;
    for (let seed = 0; seed < 40; seed += 1) {
      const faults = planFaults({ ...options, seed });
      for (const [index, fault] of faults.entries()) {
        if (fault.target.startsWith("nats-")) all += 1;
        for (const other of faults.slice(0, index)) {
          if (other.atMs + other.forMs <= fault.atMs) continue;
          expect(other.target).not.toBe(fault.target);
          if (other.target.startsWith("nats-") && fault.target.startsWith("nats-")) pairs += 1;
        }
      }
    }
    expect(pairs).toBeGreaterThan(0);
    expect(pairs).toBeLessThan(all / 5);
  });

  it("is kept to the kinds that were asked for", () => {
    const faults = planFaults({ ...options, kinds: ["broker kill", "runner-broker"] });
    expect(new Set(faults.map((fault) => faultName(fault).replace(/^runner-broker.*/, "link")))).toEqual(new Set(["broker kill", "link"]));
    expect(planFaults({ ...options, kinds: ["moon"] })).toEqual([]);
  });

  it("comes back from its file, which can be shortened by lines", () => {
    const faults = planFaults(options);
    const text = writePlan(faults);
    expect(readPlan(text)).toEqual(faults);
    const lines = text.split("\n");
    expect(readPlan([...lines.slice(0, 1), ...lines.slice(2)].join("\n"))).toEqual(faults.slice(1));
    expect(faults.map(describeFault).join("\n")).toMatch(/^ +2\.0 s {2}\w+ /);
  });

  const good: Fault = { atMs: 1, forMs: 2, kind: "kill", target: "broker-1" };
  it.each([
    ["no JSON", "[", /not JSON/],
    ["no array", "{}", /not an array/],
    ["no object", "[1]", /fault 1 is not an object/],
    ["an unknown field", JSON.stringify([{ ...good, colour: 1 }]), /fault 1 has a field "colour"/],
    ["a time that is none", JSON.stringify([good, { ...good, atMs: -1 }]), /atMs of fault 2 is -1/],
    ["a length that is none", JSON.stringify([{ ...good, forMs: "1" }]), /forMs of fault 1 is "1"/],
    ["an unknown target", JSON.stringify([{ ...good, target: "moon-1" }]), /target of fault 1 is "moon-1"/],
    ["a link's fault of a process", JSON.stringify([{ ...good, kind: "hold" }]), /kind of fault 1, done to broker-1, is "hold"/],
    [
      "a process's fault of a link",
      JSON.stringify([{ ...good, target: "broker-nats:1" }]),
      /kind of fault 1, done to broker-nats:1, is "kill"/,
    ],
    ["a direction of a process", JSON.stringify([{ ...good, direction: "up" }]), /no direction/],
    [
      "an unknown direction",
      JSON.stringify([{ ...good, kind: "hold", target: "broker-nats:1:2", direction: "left" }]),
      /direction of fault 1/,
    ],
  ])("is refused with %s", (_what, text, message) => {
    expect(() => readPlan(text)).toThrow(PlanError);
    expect(() => readPlan(text)).toThrow(message);
  });
});
