/** Ends the parts of a broker one after the other, whatever one of them does. */
import { setTimeout as delay } from "node:timers/promises";
import type { Log } from "../domain/ports/log.js";

/** A part that has begun and has to end. */
export interface OpenPart {
  readonly part: string;
  readonly close: () => Promise<unknown> | unknown;
}

/** Each part gets at least this long, however late it is. */
const PART_MS_MIN = 50;

/**
 * Closes `parts` in their order. One that fails is logged; one that takes longer than what is left of `withinMs` goes on by
 * itself, so that it holds up neither the others nor the process. Never rejects.
 */
export async function closeInOrder(parts: readonly OpenPart[], withinMs: number, log: Log): Promise<void> {
  const endsAt = performance.now() + withinMs;
  for (const { part, close } of parts) {
    const waited = new AbortController();
    const late = delay(Math.max(PART_MS_MIN, endsAt - performance.now()), "late" as const, { signal: waited.signal, ref: true });
    const closed = Promise.resolve()
      .then(close)
      .then(
        () => "closed" as const,
        (error: unknown) => {
          log.warn("close_failed", { part, error: error instanceof Error ? error.message : String(error) });
          return "failed" as const;
        },
      );
    if ((await Promise.race([closed, late.catch(() => "closed" as const)])) === "late") {
      log.warn("close_late", { part });
    }
    waited.abort();
  }
}
