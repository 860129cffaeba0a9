/** What a run does: from the command line. */
import { parseArgs } from "node:util";
import { FAULT_NAMES } from "./plan-faults.js";

export interface ChaosOptions {
  /** `mixed`: faults of all kinds. `kill-each`: each broker and each NATS server is killed in turn. `soak`: no faults, memory is watched. */
  readonly mode: "mixed" | "kill-each" | "soak";
  readonly seed: number;
  readonly durationMs: number;
  /** Calls a second. */
  readonly rate: number;
  readonly agents: number;
  readonly runners: number;
  /** Parts of names of faults; undefined: all. */
  readonly faults: readonly string[] | undefined;
  /** A plan to carry out instead of the seed's. */
  readonly planFile: string | undefined;
  /** Where the report is written as JSON. */
  readonly jsonFile: string | undefined;
  /** Whether everything is kept without a violation, too. */
  readonly keeps: boolean;
}

/** A command line that cannot be followed. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

export const USAGE = `npm run chaos -- [options]
  --minutes N      how long there is load; default 2 (20 with --soak); the check comes on top
  --seed N         replays a run's plan and calls; default: a random one, which is printed
  --faults LIST    only these, by names or parts of them, separated by commas: "broker kill,runner-broker"
  --plan FILE      carries out the faults of FILE, such as a shortened plan.json of an earlier run
  --rate N         calls a second, at most; default 15 (500 with --kill-each)
  --agents N       default 16 (160 with --kill-each)
  --runners N      default 6
  --json FILE      also writes the report to FILE
  --keep           keeps logs, journals and history also when nothing was violated
  --kill-each      instead: each broker and each NATS server is killed in turn, under load
  --soak           instead: calls, cancels, runners that come and go, no faults; memory and handles are watched
kinds of faults: ${FAULT_NAMES.join(", ")}`;

const DEFAULTS = {
  mixed: { minutes: 2, rate: 15, agents: 16 },
  "kill-each": { minutes: 2, rate: 500, agents: 160 },
  soak: { minutes: 20, rate: 40, agents: 24 },
} as const;
/** Samples are taken every 10 s, and need to be enough for a trend. */
const SOAK_MINUTES_MIN = 2;
const SEED_MAX = 2_147_483_647;

/** @param random in [0, 1), for a seed when none is given. Throws {@link UsageError}. */
export function parseOptions(args: readonly string[], random: () => number = Math.random): ChaosOptions {
  const { values } = parsed(args);
  if (values["kill-each"] === true && values.soak === true) throw new UsageError("--kill-each and --soak are two different runs");
  const mode = values.soak === true ? "soak" : values["kill-each"] === true ? "kill-each" : "mixed";
  if (mode !== "mixed" && (values.plan !== undefined || values.faults !== undefined)) {
    throw new UsageError(`--plan and --faults do not go with --${mode}`);
  }
  if (values.plan !== undefined && values.faults !== undefined)
    throw new UsageError("--plan says which faults there are: leave --faults out");
  const defaults = DEFAULTS[mode];
  const faults = values.faults?.split(",").map((each) => each.trim());
  for (const part of faults ?? []) {
    if (part === "" || !FAULT_NAMES.some((name) => name.includes(part)))
      throw new UsageError(`--faults: ${JSON.stringify(part)} is part of no kind of fault`);
  }
  return {
    mode,
    seed: numberOf(values.seed, "--seed", 0, SEED_MAX, true) ?? Math.floor(random() * SEED_MAX),
    durationMs:
      (numberOf(values.minutes, "--minutes", mode === "soak" ? SOAK_MINUTES_MIN : 0.1, 1_440, false) ?? defaults.minutes) * 60_000,
    rate: numberOf(values.rate, "--rate", 1, 5_000, false) ?? defaults.rate,
    agents: numberOf(values.agents, "--agents", 1, 1_000, true) ?? defaults.agents,
    runners: numberOf(values.runners, "--runners", 1, 9, true) ?? 6,
    faults,
    planFile: values.plan,
    jsonFile: values.json,
    keeps: values.keep === true,
  };
}

function parsed(args: readonly string[]) {
  const text = { type: "string" } as const;
  const flag = { type: "boolean" } as const;
  try {
    return parseArgs({
      args: [...args],
      strict: true,
      options: {
        minutes: text,
        seed: text,
        faults: text,
        plan: text,
        rate: text,
        agents: text,
        runners: text,
        json: text,
        keep: flag,
        "kill-each": flag,
        soak: flag,
      },
    });
  } catch (cause) {
    throw new UsageError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

function numberOf(text: string | undefined, option: string, least: number, most: number, whole: boolean): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() !== "" && value >= least && value <= most && (!whole || Number.isInteger(value))) return value;
  throw new UsageError(`${option} is ${JSON.stringify(text)}: a${whole ? " whole" : ""} number from ${least} to ${most}`);
}
