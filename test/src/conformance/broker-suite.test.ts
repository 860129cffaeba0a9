import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { BROKER_CASES } from "./broker-cases.js";
import { runBrokerSuite } from "./broker-suite.js";

const long = process.env["TOOLRUNNER_LONG"] === "1";
const subject = (file: string, ...more: string[]) => ({
  program: process.execPath,
  args: [fileURLToPath(new URL(`../../conformance/${file}`, import.meta.url)), ...more],
});
const DEV = subject("dev-broker.mjs");
const SUITES = [
  { encoding: "json", only: undefined },
  { encoding: "binary", only: long ? undefined : ["call", "unknown-frame"] },
] as const;

/** Faults that a proxy plants, and a case that has to find each. */
const FAULTS = {
  "epoch-stands": "superseded",
  "closes-with-anything": "hello-first",
  "asks-for-nothing": "version",
  "no-lease": "welcome",
  "answers-alike": "call",
  "acknowledges-anything": "receipt-of-nothing",
  "fence-stands": "decline",
  "hears-no-decline": "decline",
  "grants-too-much": "claim",
  "starts-again": "outcome-unknown",
  "believes-any-journal": "other-journal",
  "never-revokes": "stale-grant",
  "loses-cancels": "cancel",
  "skips-unknown-frames": "unknown-frame",
  "hears-no-drain": "runner-drain",
} as const;

describe("the conformance suite of brokers (R10)", () => {
  it("has cases with ids of their own", () => {
    expect(new Set(BROKER_CASES.map(({ id }) => id)).size).toBe(BROKER_CASES.length);
  });

  it.each(SUITES)(
    "is passed by a development broker in $encoding",
    async ({ encoding, only }) => {
      const outcomes = await runBrokerSuite(DEV, encoding, only === undefined ? {} : { only });
      expect(outcomes.filter(({ outcome }) => outcome !== "passed")).toEqual([]);
      expect(outcomes.length).toBe((only ?? BROKER_CASES).length);
    },
    120_000,
  );

  it.runIf(long)(
    "finds each planted fault, by the case for it (in the long run: a broker is started for each)",
    async () => {
      const found: { readonly fault: string; readonly outcome: string | undefined }[] = [];
      for (const [fault, id] of Object.entries(FAULTS)) {
        const [outcome] = await runBrokerSuite(subject("faulty-broker.mjs", fault), "json", { only: [id] });
        found.push({ fault, outcome: outcome?.outcome });
      }
      expect(found).toEqual(Object.keys(FAULTS).map((fault) => ({ fault, outcome: "failed" })));
      const [sound] = await runBrokerSuite(subject("faulty-broker.mjs", "none"), "json", { only: ["call"] });
      expect(sound).toMatchObject({ outcome: "passed" });
    },
    300_000,
  );
});
