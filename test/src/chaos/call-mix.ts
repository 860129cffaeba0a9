/** The tools of a run, and which calls agents make of them: all from the seed. */
import { seededRandom } from "./seeded-random.js";

/** What a handler is told to do. */
export interface WorkArguments {
  readonly ms: number;
  /** Attempts that fail, retryably. */
  readonly fails: number;
  /** Of padding in the result. */
  readonly bytes: number;
  /** Of a submission: how long after the handle the final receipt follows. */
  readonly settleMs: number;
}

export interface ToolPlan {
  readonly behaviour: "read_only" | "write";
  readonly idempotent: boolean;
  readonly cancellable: boolean;
  readonly submission: boolean;
  readonly timeoutSeconds: number;
  /** Whether its handler ends when its signal aborts. */
  readonly stops: boolean;
  /** How often it is called, beside the others. */
  readonly weight: number;
  readonly ms: readonly [least: number, most: number];
}

const plain: ToolPlan = {
  behaviour: "write",
  idempotent: false,
  cancellable: false,
  submission: false,
  timeoutSeconds: 90,
  stops: false,
  weight: 4,
  ms: [5, 300],
};

/** The tools, by name. */
export const TOOLS = {
  look: { ...plain, behaviour: "read_only", weight: 6, ms: [0, 100] },
  book: { ...plain, idempotent: true, stops: true },
  charge: { ...plain, weight: 8 },
  watch: { ...plain, cancellable: true, stops: true, weight: 2, ms: [500, 6_000] },
  slow: { ...plain, idempotent: true, stops: true, cancellable: true, weight: 1, ms: [3_000, 20_000] },
  ship: { ...plain, submission: true, weight: 2 },
  flaky: { ...plain, idempotent: true, weight: 2 },
  dump: { ...plain, behaviour: "read_only", weight: 1 },
  brief: { ...plain, timeoutSeconds: 5, weight: 1, ms: [100, 4_000] },
} as const satisfies Record<string, ToolPlan>;

export type ToolName = keyof typeof TOOLS;

/** One call that an agent is going to make. */
export interface PlannedCall {
  readonly tool: ToolName;
  readonly key: string;
  readonly args: WorkArguments;
  readonly transport: "http" | "grpc";
  /** Index of the broker that is asked first. */
  readonly broker: number;
  /** When it is cancelled after its acknowledgement; null: never. */
  readonly cancelAfterMs: number | null;
  readonly cancelMode: "kill" | "skip" | "killnowait";
  /** Whether the same request is sent again after its answer. */
  readonly repeats: boolean;
}

export interface MixOptions {
  readonly seed: number;
  readonly brokers: number;
  /** Tools to call. Default: all. */
  readonly tools?: readonly ToolName[];
}

/** The tools that take no time, for high rates. */
export const QUICK_TOOLS: readonly ToolName[] = ["look", "book", "charge"];
const QUICK_MS = 20;

/** Call number `index` of agent `agent`. */
export function planCall({ seed, brokers, tools }: MixOptions, agent: number, index: number): PlannedCall {
  const random = seededRandom(seed, `call ${agent} ${index}`);
  const names = tools ?? (Object.keys(TOOLS) as ToolName[]);
  const tool = random.pick(names.flatMap((name) => Array.from({ length: TOOLS[name].weight }, () => name)));
  const plan: ToolPlan = TOOLS[tool];
  const ms = tools === undefined ? random.between(...plan.ms) : random.between(0, QUICK_MS);
  return {
    tool,
    key: `run-${seed}-${agent}-${index}`,
    args: {
      ms,
      fails: tool === "flaky" ? random.between(0, 3) : 0,
      bytes: tool === "dump" ? random.between(100_000, 900_000) : random.between(0, 400),
      settleMs: random.between(300, 6_000),
    },
    transport: random.chance(0.5) ? "http" : "grpc",
    broker: random.between(0, brokers - 1),
    cancelAfterMs: plan.cancellable && random.chance(0.5) ? random.between(0, plan.ms[1]) : null,
    cancelMode: random.pick(["kill", "skip", "killnowait"] as const),
    repeats: tools === undefined && random.chance(0.3),
  };
}
