/** What is measured, for how long: from the command line. */
import { parseArgs } from "node:util";
import type { AgentInterface, LedgerKind, RunnerTransport } from "./processes/roles.js";
import { SCALE_FULL, SCALE_QUICK, type ScaleSizes } from "./scale/scale-options.js";

export type NatsLine = "2.9" | "2.10";

/** Calls in flight of the three loads. */
export const LOADS = [1, 64, 256] as const;
export type InFlight = (typeof LOADS)[number];

export interface BenchOptions {
  readonly ledgers: readonly LedgerKind[];
  readonly runners: readonly RunnerTransport[];
  readonly agents: readonly AgentInterface[];
  readonly rounds: number;
  /** How long each load of a round lasts. */
  readonly loadMs: Readonly<Record<InFlight, number>>;
  /** How long each load runs before the first round. */
  readonly warmUpMs: number;
  readonly natsLine: NatsLine;
  readonly index: boolean;
  /** Where all figures are written as JSON. */
  readonly jsonFile: string | undefined;
  /** Where profiles are written; the product is then run under a profiler and nothing is compared. */
  readonly profileDir: string | undefined;
  /** Many sessions, settled calls and open calls; undefined: the product beside its floor instead. */
  readonly scale: ScaleSizes | undefined;
}

/** A command line that cannot be followed. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

export const USAGE = `npm run bench -- [options]
  --quick              small counts, under a minute
  --only PART          sqlite, jetstream, websocket or grpc (the runner's transport); may be given several times
  --agent INTERFACE    grpc or http; default both
  --rounds N           rounds whose median counts; default 5, 3 with --quick
  --nats LINE          2.10 (2.10.27, default) or 2.9 (2.9.10)
  --no-index           the broker keeps no index of calls
  --json FILE          also writes all figures to FILE
  --scale              instead: what 10,000 idle sessions, 300,000 settled and 20,000 open calls cost, about 12 minutes;
                       with --quick a tenth of each, about 3
  --sessions N, --settled N, --open N
                       other numbers for --scale
  --profile DIR        instead: samples where broker, runner and agent spend their time, 64 in flight`;

const LEDGERS = ["sqlite", "jetstream"] as const;
const RUNNERS = ["websocket", "grpc"] as const;
const AGENTS = ["grpc", "http"] as const;
const FULL = { rounds: 5, loadMs: { 1: 1_000, 64: 800, 256: 800 }, warmUpMs: 700 } as const;
const QUICK = { rounds: 3, loadMs: { 1: 150, 64: 150, 256: 150 }, warmUpMs: 250 } as const;
const ROUNDS_MAX = 1_000;
const SIZE_MAX = 10_000_000;
const SCALE_NUMBERS = ["sessions", "settled", "open"] as const;

/** Throws {@link UsageError}. */
export function parseOptions(args: readonly string[]): BenchOptions {
  const { values } = parsed(args);
  const only = (values.only ?? []).map((part) => oneOf(part, [...LEDGERS, ...RUNNERS], "--only"));
  const length = values.quick === true ? QUICK : FULL;
  return {
    ledgers: narrowed(LEDGERS, only),
    runners: narrowed(RUNNERS, only),
    agents: values.agent === undefined ? AGENTS : [oneOf(values.agent, AGENTS, "--agent")],
    rounds: values.rounds === undefined ? length.rounds : wholeNumber(values.rounds, "--rounds", 1, ROUNDS_MAX),
    loadMs: length.loadMs,
    warmUpMs: length.warmUpMs,
    natsLine: values.nats === undefined ? "2.10" : oneOf(values.nats, ["2.9", "2.10"] as const, "--nats"),
    index: values["no-index"] !== true,
    jsonFile: values.json,
    profileDir: values.profile,
    scale: scaleIn(values),
  };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        quick: { type: "boolean" },
        only: { type: "string", multiple: true },
        agent: { type: "string" },
        rounds: { type: "string" },
        nats: { type: "string" },
        "no-index": { type: "boolean" },
        json: { type: "string" },
        profile: { type: "string" },
        scale: { type: "boolean" },
        sessions: { type: "string" },
        settled: { type: "string" },
        open: { type: "string" },
      },
    });
  } catch (cause) {
    throw new UsageError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

function oneOf<T extends string>(text: string, all: readonly T[], option: string): T {
  const found = all.find((each) => each === text);
  if (found === undefined) throw new UsageError(`${option} takes ${all.join(", ")}, not "${text}".`);
  return found;
}

/** Those that are named, or all when none of this kind is. */
function narrowed<T extends string>(all: readonly T[], only: readonly string[]): readonly T[] {
  const named = all.filter((each) => only.includes(each));
  return named.length === 0 ? all : named;
}

function scaleIn(values: ReturnType<typeof parsed>["values"]): ScaleSizes | undefined {
  if (values.scale !== true) {
    const stray = SCALE_NUMBERS.find((option) => values[option] !== undefined);
    if (stray !== undefined) throw new UsageError(`--${stray} goes with --scale.`);
    return undefined;
  }
  const full = values.quick === true ? SCALE_QUICK : SCALE_FULL;
  const sizeIn = (option: (typeof SCALE_NUMBERS)[number], min: number): number => {
    const text = values[option];
    return text === undefined ? full[option] : wholeNumber(text, `--${option}`, min, SIZE_MAX);
  };
  const open = sizeIn("open", 2 * full.laneStep);
  // Each round, and what warms up, takes a step of the lane away.
  const roundsMax = Math.floor(open / full.laneStep) - 1;
  return {
    ...full,
    sessions: sizeIn("sessions", full.fewSessions),
    settled: sizeIn("settled", full.fewSettled),
    open,
    rounds: values.rounds === undefined ? Math.min(full.rounds, roundsMax) : wholeNumber(values.rounds, "--rounds", 1, roundsMax),
  };
}

function wholeNumber(text: string, option: string, min: number, max: number): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < min || number > max)
    throw new UsageError(`${option} takes a whole number from ${min} to ${max}, not "${text}".`);
  return number;
}
