import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { RUNNER_CASES, runRunnerSuite } from "./runner-suite.js";
import type { Wire } from "./scripted-broker.js";

const long = process.env["TOOLRUNNER_LONG"] === "1";
const subject = (file: string, ...more: string[]) => ({
  program: process.execPath,
  args: [fileURLToPath(new URL(`../../conformance/${file}`, import.meta.url)), ...more],
});
const SDK = subject("sdk-runner.mjs");
/** Over one wire all cases; over the others those that touch frames most, the rest in the long run. */
const FRAME_CASES = ["golden-frames", "hello", "definitions", "call", "unknown-frame", "pong", "cancel"];
const WIRES: readonly { readonly wire: Wire; readonly only: readonly string[] | undefined }[] = [
  { wire: "websocket-binary", only: undefined },
  { wire: "websocket-json", only: long ? undefined : FRAME_CASES },
  { wire: "grpc", only: long ? undefined : FRAME_CASES },
];

/** Faults of the plain runner, and a case that has to find each. */
const FAULTS = {
  "takes-any-epoch": "epoch",
  "takes-too-many": "claim",
  "runs-twice": "twice",
  "never-repeats": "unacknowledged-settled",
  "changes-digests": "unacknowledged-settled",
  "ignores-acknowledgements": "unacknowledged-settled",
  "sends-too-much": "too-large",
  "skips-unknown-frames": "unknown-frame",
  "ignores-cancel": "cancel",
  "runs-on-after-revoke": "revoke-running",
  "forgets-refusals": "revoke-unknown",
  "forgets-refused": "killed-after-refusal",
  "forgets-started": "killed-while-running",
  "forgets-finished": "killed-after-finish",
  "reports-nothing": "pong",
  "ignores-leases": "lease-lost",
  "renews-blindly": "lease-not-kept",
  "starts-late": "lease-over",
  "redials-for-ever": "superseded",
  "claims-on": "drain",
  "leaves-at-once": "broker-drain",
} as const;

describe("the conformance suite of runners (R10)", () => {
  it("has cases with ids of their own", () => {
    expect(new Set(RUNNER_CASES.map(({ id }) => id)).size).toBe(RUNNER_CASES.length);
    expect(RUNNER_CASES.length).toBeGreaterThan(30);
  });

  it.each(WIRES)(
    "is passed by the SDK over $wire",
    async ({ wire, only }) => {
      const outcomes = await runRunnerSuite(SDK, wire, only === undefined ? {} : { only });
      expect(outcomes.filter(({ outcome }) => outcome === "failed")).toEqual([]);
      // Frames of an unknown kind need a transport on which bytes can be sent that no codec made.
      expect(outcomes.filter(({ outcome }) => outcome === "skipped").map(({ id }) => id)).toEqual(wire === "grpc" ? ["unknown-frame"] : []);
    },
    120_000,
  );

  it("is passed by a runner of one file that shares nothing with the SDK, which has no codec for bytes", async () => {
    const options = long ? {} : { only: [...FRAME_CASES, "twice", "lease-lost", "killed-while-running", "killed-after-finish", "drain"] };
    const outcomes = await runRunnerSuite(subject("plain-runner.mjs"), "websocket-json", options);
    expect(outcomes.filter(({ outcome }) => outcome === "failed")).toEqual([]);
    expect(outcomes.length).toBe(long ? RUNNER_CASES.length : options.only?.length);
    expect(outcomes.filter(({ outcome }) => outcome === "skipped").map(({ id }) => id)).toEqual(["golden-frames"]);
  }, 240_000);

  it("finds each fault that is planted in that runner, by the case for it", async () => {
    const waiting = Object.entries(FAULTS);
    const found: { readonly fault: string; readonly outcome: string | undefined; readonly reason: string | undefined }[] = [];
    const work = async (): Promise<void> => {
      for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) {
        const [fault, id] = one;
        const [outcome] = await runRunnerSuite(subject("plain-runner.mjs", "--fault", fault), "websocket-json", { only: [id] });
        found.push({ fault, outcome: outcome?.outcome, reason: outcome?.reason });
      }
    };
    await Promise.all(Array.from({ length: 4 }, work));
    expect(found.filter(({ outcome }) => outcome !== "failed")).toEqual([]);
    // Found by what it does, not by a subject that could not be started.
    expect(found.filter(({ reason = "" }) => /no session|could not be started/.test(reason))).toEqual([]);
    expect(found.length).toBe(Object.keys(FAULTS).length);
  }, 240_000);

  it("says what is wrong with a subject that cannot be started, writes what is not JSON, or says nothing", async () => {
    const reasonOf = async (program: string, ...args: string[]) => {
      const [outcome] = await runRunnerSuite({ program, args }, "websocket-json", { only: ["golden-frames"] });
      return outcome?.reason;
    };
    expect(await reasonOf("/nowhere/runner")).toContain("/nowhere/runner could not be started");
    expect(await reasonOf(process.execPath, "-e", "console.log('hello'); setInterval(() => {}, 1000)")).toContain(
      'a line on stdout that is not a JSON object with an "event": hello',
    );
    expect(await reasonOf(process.execPath, "-e", "process.exit(3)")).toContain('did not say "described" within 30000 ms: it ended');
  }, 60_000);
});
