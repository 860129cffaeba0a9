/** Whether this broker can serve, for load balancers: `/readyz` and the gRPC health service. */

/** Something that keeps the broker from serving. */
export interface HealthProblem {
  /** The part: `ledger`, `bus`, `catalog`. */
  readonly part: string;
  /** What is wrong and what to do; shown without a key, so it names no secret. */
  readonly message: string;
}

/** Asked anew for each probe. */
export interface HealthSource {
  /** Empty: ready to serve. */
  check(): Promise<readonly HealthProblem[]>;
}

/** A probe that takes longer counts as not ready. */
export const HEALTH_TIMEOUT_MS = 2_000;

/** What is wrong now; never rejects, and answers within {@link HEALTH_TIMEOUT_MS}. */
export async function problemsNow(health: HealthSource, draining: boolean): Promise<readonly HealthProblem[]> {
  const own: HealthProblem[] = draining ? [{ part: "broker", message: "It drains: use another broker." }] : [];
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<readonly HealthProblem[]>((resolve) => {
    timer = setTimeout(
      () => resolve([{ part: "health", message: `The check took longer than ${HEALTH_TIMEOUT_MS} ms.` }]),
      HEALTH_TIMEOUT_MS,
    );
  });
  try {
    return [...own, ...(await Promise.race([health.check(), late]))];
  } catch {
    return [...own, { part: "health", message: "The check failed; the broker's log says why." }];
  } finally {
    clearTimeout(timer);
  }
}
