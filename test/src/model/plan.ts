/**
 * Plans of what happens to a site: as data, so that a failing one is printed, shrunk by fast-check and run again.
 * Numbers that pick something (a broker, a runner) are taken modulo how many there are at that moment.
 */
import fc from "fast-check";

/** One thing that happens. Times in ms. */
export type Operation =
  /** An agent calls a tool; the same key again is a repeat of the same request, wherever it goes. */
  | { readonly do: "call"; readonly tool: number; readonly subject: number; readonly key: number }
  /** The operator looks at what needs reconciliation, and says what is true. */
  | { readonly do: "reconcile" }
  /** Stands still, as by SIGSTOP. */
  | { readonly do: "stop_broker"; readonly broker: number; readonly forMs: number }
  | { readonly do: "kill_broker"; readonly broker: number; readonly againMs: number }
  | { readonly do: "deploy_broker"; readonly broker: number; readonly drainMs: number; readonly againMs: number }
  /** Bus and ledger are out of its reach. */
  | { readonly do: "cut_off_broker"; readonly broker: number; readonly forMs: number }
  | { readonly do: "cut_pair"; readonly broker: number; readonly other: number; readonly forMs: number }
  | { readonly do: "ledger_away"; readonly broker: number; readonly forMs: number }
  | { readonly do: "jump_broker"; readonly broker: number; readonly byMs: number }
  | { readonly do: "sever"; readonly runner: number }
  | { readonly do: "crash_runner"; readonly runner: number; readonly journal: "kept" | "lost" }
  | { readonly do: "freeze_runner"; readonly runner: number; readonly forMs: number }
  /** Its machine sleeps: its monotonic clock stands still, its wall clock does not. */
  | { readonly do: "sleep_runner"; readonly runner: number; readonly forMs: number }
  | { readonly do: "jump_runner"; readonly runner: number; readonly byMs: number };

export interface Plan {
  /** Of all small delays and choices. */
  readonly seed: number;
  readonly brokers: number;
  /** Slots of each runner of the backend binding, and of each tab of each of two subjects. */
  readonly shops: readonly number[];
  readonly tabs: readonly (readonly number[])[];
  readonly leaseMs: number;
  readonly goneAfterMs: number;
  readonly driverAnswerMs: number;
  readonly reservationMs: number;
  readonly bus: { readonly lost: number; readonly twice: number; readonly late: number; readonly lateMs: number };
  readonly ledger: { readonly slow: number; readonly slowMs: number; readonly lostAcks: number };
  readonly steps: readonly { readonly afterMs: number; readonly operation: Operation }[];
}

const NO_BUS_FAULTS: Plan["bus"] = { lost: 0, twice: 0, late: 0, lateMs: 0 };
const NO_LEDGER_FAULTS: Plan["ledger"] = { slow: 0, slowMs: 0, lostAcks: 0 };

/** `simple` is what a failure that needs nothing else shrinks to. */
function orElse<T>(simple: T, faulty: fc.Arbitrary<T>): fc.Arbitrary<T> {
  return fc.oneof({ withCrossShrink: true }, { weight: 1, arbitrary: fc.constant(simple) }, { weight: 3, arbitrary: fc.noShrink(faulty) });
}

const pick = fc.nat({ max: 11 });
const part = (max: number) => fc.oneof(fc.constant(0), fc.double({ min: 0, max, noNaN: true, noDefaultInfinity: true }));
const ms = (min: number, max: number) => fc.integer({ min, max });
const operation = <K extends Operation["do"]>(
  name: K,
  facts: { [P in Exclude<keyof Extract<Operation, { do: K }>, "do">]: fc.Arbitrary<Extract<Operation, { do: K }>[P]> },
) => fc.record({ do: fc.constant(name), ...facts }) as unknown as fc.Arbitrary<Operation>;

const operations = fc.oneof(
  { weight: 24, arbitrary: operation("call", { tool: pick, subject: fc.nat({ max: 1 }), key: fc.nat({ max: 60 }) }) },
  { weight: 3, arbitrary: operation("reconcile", {}) },
  { weight: 4, arbitrary: operation("stop_broker", { broker: pick, forMs: ms(20, 16_000) }) },
  { weight: 2, arbitrary: operation("kill_broker", { broker: pick, againMs: ms(0, 6_000) }) },
  { weight: 1, arbitrary: operation("deploy_broker", { broker: pick, drainMs: ms(0, 3_000), againMs: ms(0, 4_000) }) },
  { weight: 2, arbitrary: operation("cut_off_broker", { broker: pick, forMs: ms(50, 12_000) }) },
  { weight: 2, arbitrary: operation("cut_pair", { broker: pick, other: pick, forMs: ms(50, 12_000) }) },
  { weight: 2, arbitrary: operation("ledger_away", { broker: pick, forMs: ms(20, 8_000) }) },
  { weight: 1, arbitrary: operation("jump_broker", { broker: pick, byMs: ms(-3_000, 3_000) }) },
  { weight: 4, arbitrary: operation("sever", { runner: pick }) },
  {
    weight: 3,
    arbitrary: operation("crash_runner", {
      runner: pick,
      journal: fc.constantFrom("kept" as const, "kept" as const, "kept" as const, "lost" as const),
    }),
  },
  { weight: 4, arbitrary: operation("freeze_runner", { runner: pick, forMs: ms(20, 12_000) }) },
  { weight: 2, arbitrary: operation("sleep_runner", { runner: pick, forMs: ms(20, 20_000) }) },
  { weight: 1, arbitrary: operation("jump_runner", { runner: pick, byMs: ms(-10_000, 10_000) }) },
);

const slots = fc.integer({ min: 1, max: 3 });

/**
 * Plans of about half a minute of the site's time. What shrinks is which steps there are, and whether bus and ledger are at
 * fault at all: that is what makes a plan readable. Smaller numbers in what is left would only cost time.
 */
export const plans: fc.Arbitrary<Plan> = fc
  .record({
    site: fc.noShrink(
      fc.record({
        seed: fc.nat(),
        brokers: fc.integer({ min: 1, max: 3 }),
        shops: fc.array(slots, { minLength: 1, maxLength: 3 }),
        tabs: fc.tuple(fc.array(slots, { minLength: 1, maxLength: 2 }), fc.array(slots, { minLength: 1, maxLength: 1 })),
        leaseMs: fc.constantFrom(3_000, 5_000, 8_000),
        goneAfterMs: fc.constantFrom(2_000, 3_000, 6_000),
        driverAnswerMs: fc.constantFrom(250, 800, 1_600),
        reservationMs: fc.constantFrom(100, 600, 1_500),
      }),
    ),
    bus: orElse(NO_BUS_FAULTS, fc.record({ lost: part(0.15), twice: part(0.2), late: part(0.2), lateMs: ms(50, 8_000) })),
    ledger: orElse(NO_LEDGER_FAULTS, fc.record({ slow: part(0.1), slowMs: ms(50, 6_000), lostAcks: part(0.1) })),
    steps: fc.array(fc.noShrink(fc.record({ afterMs: ms(0, 1_500), operation: operations })), { minLength: 1, maxLength: 60, size: "max" }),
  })
  .map(({ site, bus, ledger, steps }) => ({ ...site, bus, ledger, steps }));
