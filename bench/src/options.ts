/** What is measured, for how long: from the command line. */
import { parseArgs } from "node:util";
import type { AgentInterface, LedgerKind, RunnerTransport } from "./processes/roles.js";

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
  --profile DIR        instead: samples where the broker spends its time, 64 in flight`;

const LEDGERS = ["sqlite", "jetstream"] as const;
const RUNNERS = ["websocket", "grpc"] as const;
const AGENTS = ["grpc", "http"] as const;
const FULL = { rounds: 5, loadMs: { 1: 1_000, 64: 800, 256: 800 }, warmUpMs: 700 } as const;
const QUICK = { rounds: 3, loadMs: { 1: 150, 64: 150, 256: 150 }, warmUpMs: 250 } as const;
const ROUNDS_MAX = 1_000;

/** Throws {@link UsageError}. */
export function parseOptions(args: readonly string[]): BenchOptions {
  const { values } = parsed(args);
  const only = (values.only ?? []).map((part) => oneOf(part, [...LEDGERS, ...RUNNERS], "--only"));
  const length = values.quick === true ? QUICK : FULL;
  return {
    ledgers: narrowed(LEDGERS, only),
    runners: narrowed(RUNNERS, only),
    agents: values.agent === undefined ? AGENTS : [oneOf(values.agent, AGENTS, "--agent")],
    rounds: values.rounds === undefined ? length.rounds : roundsIn(values.rounds),
    loadMs: length.loadMs,
    warmUpMs: length.warmUpMs,
    natsLine: values.nats === undefined ? "2.10" : oneOf(values.nats, ["2.9", "2.10"] as const, "--nats"),
    index: values["no-index"] !== true,
    jsonFile: values.json,
    profileDir: values.profile,
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

function roundsIn(text: string): number {
  const rounds = Number(text);
  if (!Number.isInteger(rounds) || rounds < 1 || rounds > ROUNDS_MAX)
    throw new UsageError(`--rounds takes a whole number from 1 to ${ROUNDS_MAX}, not "${text}".`);
  return rounds;
}
