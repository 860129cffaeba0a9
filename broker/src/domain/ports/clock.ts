/** Time, ids and randomness, injected so that tests decide them. */
export interface Clock {
  /** Wall clock, Unix milliseconds: the ledger's time and what people see. */
  now(): number;
  /** Monotonic milliseconds: for leases, back-off and waiting. */
  monotonic(): number;
  /** Calls `task` once after `delayMs` of monotonic time; with 0 in the next turn of the event loop, after what came in meanwhile. */
  schedule(delayMs: number, task: () => void): { cancel(): void };
}

export interface IdSource {
  /** `prefix_` and 26 characters of lower-case base 32, 130 bits at random. */
  next(prefix: string): string;
  /** In [0, 1). */
  random(): number;
}
