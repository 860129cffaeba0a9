import { describe, expect, it } from "vitest";
import { parseOptions, UsageError } from "./options.js";

describe("options of a chaos run", () => {
  it("have defaults for each kind of run, and a random seed", () => {
    expect(parseOptions([], () => 0.5)).toMatchObject({ mode: "mixed", durationMs: 120_000, rate: 15, runners: 6, seed: 1_073_741_823 });
    expect(parseOptions(["--kill-each"])).toMatchObject({ mode: "kill-each", rate: 500 });
    expect(parseOptions(["--soak"])).toMatchObject({ mode: "soak", durationMs: 1_200_000 });
  });

  it("are taken from the command line", () => {
    const args = ["--minutes", "0.5", "--seed", "7", "--faults", "broker kill, nats", "--rate", "3", "--json", "r.json", "--keep"];
    expect(parseOptions(args)).toMatchObject({
      seed: 7,
      durationMs: 30_000,
      faults: ["broker kill", "nats"],
      rate: 3,
      jsonFile: "r.json",
      keeps: true,
    });
  });

  it.each([
    [["--minutes", "0"], /--minutes is "0"/],
    [["--soak", "--minutes", "1"], /--minutes is "1": a number from 2/],
    [["--minutes", ""], /--minutes is ""/],
    [["--seed", "1.5"], /--seed is "1.5": a whole number/],
    [["--rate", "many"], /--rate is "many"/],
    [["--runners", "10"], /--runners is "10"/],
    [["--faults", "moon"], /"moon" is part of no kind/],
    [["--faults", "broker,"], /"" is part of no kind/],
    [["--plan", "a", "--faults", "nats"], /leave --faults out/],
    [["--soak", "--plan", "a"], /do not go with --soak/],
    [["--soak", "--kill-each"], /two different runs/],
    [["--colour"], /colour/],
    [["extra"], /extra/],
  ])("are refused when they are wrong: %j", (args, message) => {
    expect(() => parseOptions(args)).toThrow(UsageError);
    expect(() => parseOptions(args)).toThrow(message);
  });
});
