import { describe, expect, it } from "vitest";
import { natsBinary } from "./nats-process.js";
import { type BenchOptions, LOADS, parseOptions, UsageError } from "./options.js";

/** Time that the loads take, without starting and settling. */
const loadedMs = ({ ledgers, runners, agents, rounds, loadMs, warmUpMs }: BenchOptions): number => {
  const sides = ledgers.length * runners.length * agents.length * 2;
  return sides * (2 * warmUpMs + rounds * LOADS.reduce((sum: number, inFlight) => sum + loadMs[inFlight], 0));
};

describe("the options", () => {
  it("are by default everything, over 2.10, with the index", () => {
    expect(parseOptions([])).toMatchObject({
      ledgers: ["sqlite", "jetstream"],
      runners: ["websocket", "grpc"],
      agents: ["grpc", "http"],
      rounds: 5,
      natsLine: "2.10",
      index: true,
      jsonFile: undefined,
      profileDir: undefined,
    });
  });

  it("narrow ledgers and runners each by their own names", () => {
    expect(parseOptions(["--only", "sqlite"])).toMatchObject({ ledgers: ["sqlite"], runners: ["websocket", "grpc"] });
    expect(parseOptions(["--only", "grpc", "--only", "jetstream"])).toMatchObject({ ledgers: ["jetstream"], runners: ["grpc"] });
  });

  it("take the rest as given", () => {
    expect(
      parseOptions(["--agent", "http", "--rounds", "7", "--nats", "2.9", "--no-index", "--json", "a.json", "--profile", "p"]),
    ).toMatchObject({ agents: ["http"], rounds: 7, natsLine: "2.9", index: false, jsonFile: "a.json", profileDir: "p" });
  });

  it("load for under half a minute when quick, and under five minutes otherwise", () => {
    expect(loadedMs(parseOptions(["--quick"]))).toBeLessThan(31_000);
    expect(loadedMs(parseOptions([]))).toBeLessThan(245_000);
    expect(loadedMs(parseOptions(["--quick"]))).toBeLessThan(loadedMs(parseOptions([])) / 5);
  });

  it("measure at scale only when asked, with the numbers that are given", () => {
    expect(parseOptions([]).scale).toBeUndefined();
    expect(parseOptions(["--scale"]).scale).toMatchObject({ sessions: 10_000, settled: 300_000, open: 20_000, rounds: 7 });
    expect(parseOptions(["--scale", "--quick", "--open", "700"]).scale).toMatchObject({ sessions: 1_000, open: 700, rounds: 2 });
    expect(parseOptions(["--scale", "--settled", "5000", "--sessions", "50", "--rounds", "2"]).scale).toMatchObject({
      settled: 5_000,
      sessions: 50,
      rounds: 2,
    });
  });

  it.each([
    [["--only", "mysql"], "sqlite, jetstream, websocket, grpc"],
    [["--agent", "soap"], "grpc, http"],
    [["--rounds", "0"], "1 to 1000"],
    [["--rounds", "two"], "1 to 1000"],
    [["--settled", "5000"], "--scale"],
    [["--scale", "--sessions", "2"], "10 to"],
    [["--scale", "--open", "999"], "1000 to"],
    [["--scale", "--rounds", "40"], "1 to 39"],
    [["--nats", "3"], "2.9, 2.10"],
    [["--fast"], "--fast"],
    [["stray"], "stray"],
    [["--json"], "--json"],
  ])("%j are refused with what is meant", (args, hint) => {
    expect(() => parseOptions(args)).toThrow(UsageError);
    expect(() => parseOptions(args)).toThrow(hint);
  });
});

describe("the nats-server", () => {
  it("is the one of its line that the environment names, if any", () => {
    const environment = { TOOLRUNNER_NATS_SERVER_2_10: "/opt/nats", TOOLRUNNER_NATS_SERVER_2_9: "" };
    expect(natsBinary("2.10", environment)).toBe("/opt/nats");
    expect(natsBinary("2.9", environment)).toBeUndefined();
    expect(natsBinary("2.9", {})).toBeUndefined();
  });
});
