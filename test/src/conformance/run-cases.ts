/**
 * Runs cases one after another or side by side and reports them.
 *
 * Invariant: a case ends in exactly one of passed, failed with a reason, skipped with a reason.
 */

/** Thrown by a case that a subject says it cannot take: its reason is printed. */
export class Skipped extends Error {}

export interface ConformanceCase<Stage> {
  /** Stable: for `--only`. */
  readonly id: string;
  /** What holds, as a sentence. */
  readonly what: string;
  /** The section of docs/protocol.md that says so. */
  readonly section: string;
  run(stage: Stage): Promise<void>;
}

export interface CaseOutcome {
  readonly id: string;
  readonly what: string;
  readonly section: string;
  readonly outcome: "passed" | "failed" | "skipped";
  /** Why it failed or was skipped. */
  readonly reason?: string;
}

/** @param open makes the stage of one case; `close` is called whatever came of it. */
export async function runCases<Stage extends { close(): Promise<void> }>(
  cases: readonly ConformanceCase<Stage>[],
  open: (one: ConformanceCase<Stage>) => Promise<Stage>,
  options: { readonly atOnce: number; readonly onOutcome?: (outcome: CaseOutcome) => void },
): Promise<CaseOutcome[]> {
  const outcomes: CaseOutcome[] = [];
  const waiting = [...cases];
  const work = async (): Promise<void> => {
    for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) {
      const outcome = await runCase(one, open);
      outcomes.push(outcome);
      options.onOutcome?.(outcome);
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, options.atOnce) }, work));
  const order = new Map(cases.map(({ id }, index) => [id, index]));
  return outcomes.sort((a, b) => (order.get(a.id) ?? 0) - (order.get(b.id) ?? 0));
}

async function runCase<Stage extends { close(): Promise<void> }>(
  one: ConformanceCase<Stage>,
  open: (one: ConformanceCase<Stage>) => Promise<Stage>,
): Promise<CaseOutcome> {
  const { id, what, section } = one;
  let stage: Stage | undefined;
  try {
    stage = await open(one);
    await one.run(stage);
    return { id, what, section, outcome: "passed" };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { id, what, section, outcome: error instanceof Skipped ? "skipped" : "failed", reason };
  } finally {
    await stage?.close();
  }
}

/** @throws with `message` unless `holds`. */
export function must(holds: boolean, message: string): asserts holds {
  if (!holds) throw new Error(message);
}

/** @throws when they differ as JSON. */
export function mustEqual(actual: unknown, expected: unknown, what: string): void {
  const [found, wanted] = [JSON.stringify(actual), JSON.stringify(expected)];
  must(found === wanted, `${what}: expected ${wanted}, got ${found}`);
}

/** Time in which something that must not happen would have happened. */
export const QUIET_MS = 400;

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
