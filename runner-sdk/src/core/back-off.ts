/** Growing, jittered delays between attempts. */

/** The interface's figures: 0.5 s × 2 up to 60 s, jitter 50 %. */
export const REDIAL_DELAYS = { baseMs: 500, maxMs: 60_000, jitter: 0.5 } as const;

/**
 * Delay before attempt `failures` (1 for the first after a failure): `base × 2^(failures − 1)`, at most `maxMs`, less up to
 * `jitter` of it by chance.
 */
export function backOffMs(
  failures: number,
  random: () => number,
  delays: { baseMs: number; maxMs: number; jitter: number } = REDIAL_DELAYS,
): number {
  const full = Math.min(delays.maxMs, delays.baseMs * 2 ** Math.min(30, Math.max(0, failures - 1)));
  return full * (1 - delays.jitter * random());
}
