/** The load generator: a fixed number of calls in flight for a fixed time, each followed by the next. */

export interface LoadRequest {
  readonly inFlight: number;
  readonly durationMs: number;
}

export interface LoadResult {
  /** From the first call's start to the last one's end. */
  readonly elapsedMs: number;
  /** One for each call, in no order. */
  readonly latenciesMs: Float64Array;
}

/** Calls until the time is over, then waits for what is in flight. Rejects with the first call that fails. */
export async function runLoad(call: () => Promise<void>, { inFlight, durationMs }: LoadRequest): Promise<LoadResult> {
  const latencies: number[] = [];
  const begun = performance.now();
  const endsAt = begun + durationMs;
  let failed = false;
  const chain = async (): Promise<void> => {
    let now = begun;
    do {
      await call();
      const done = performance.now();
      latencies.push(done - now);
      now = done;
    } while (now < endsAt && !failed);
  };
  await Promise.all(
    Array.from({ length: inFlight }, () =>
      chain().catch((error: unknown) => {
        failed = true;
        throw error;
      }),
    ),
  );
  return { elapsedMs: performance.now() - begun, latenciesMs: Float64Array.from(latencies) };
}
