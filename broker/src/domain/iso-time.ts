/** The largest distance from 1970 that a date can have. */
const DATE_MS_MAX = 8.64e15;

/** Unix milliseconds as RFC 3339. Total: what is no time a date can have becomes the nearest one, and what is no number 1970. */
export function isoTime(ms: number): string {
  const bounded = Math.max(-DATE_MS_MAX, Math.min(DATE_MS_MAX, ms));
  return new Date(Number.isNaN(bounded) ? 0 : bounded).toISOString();
}
