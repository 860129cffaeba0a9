/**
 * Tells a ledger that lost what it had acknowledged from a leader that does not know it yet.
 *
 * With replicas, whoever leads after a fail-over answers for a moment from before it, and so does a leader that was cut off from the
 * others and has not noticed. A ledger that was rolled back goes on saying less, or gives the lost versions out again.
 *
 * Invariant: a rollback is reported once, and an answer that was merely old never.
 */
import type { Version } from "../../domain/ports/ledger.js";

interface Suspicion {
  readonly from: Version;
  readonly to: Version;
  readonly sinceMonotonicMs: number;
  readonly sinceMs: number;
}

export interface RollbackWatchOptions {
  /** Longest that a leader may know less than was acknowledged; 0 where one server holds everything. */
  readonly staleForMs: number;
  /** When the entry of a version was stored, in Unix milliseconds; undefined when there is none. */
  readonly storedAt: (version: Version) => Promise<number | undefined>;
  readonly now: () => number;
  readonly monotonic: () => number;
}

/** What was lost: versions after `to`, up to `from`. */
export interface Rollback {
  readonly from: Version;
  readonly to: Version;
}

/** See the module's header. */
export class RollbackWatch {
  #suspicion: Suspicion | undefined;

  constructor(readonly options: RollbackWatchOptions) {}

  /** `newest` was answered where `heardOf` had been heard of. Resolves with what was lost, as soon as that is certain. */
  async compare(heardOf: Version, newest: Version): Promise<Rollback | undefined> {
    const { staleForMs, storedAt, now, monotonic } = this.options;
    if (newest < heardOf) {
      this.#suspicion ??= { from: heardOf, to: newest, sinceMonotonicMs: monotonic(), sinceMs: now() };
    }
    const suspicion = this.#suspicion;
    if (suspicion === undefined) return undefined;
    const { from, to, sinceMonotonicMs, sinceMs } = suspicion;
    if (newest < from && monotonic() - sinceMonotonicMs < staleForMs) return undefined;
    // What was there before is the one that was heard of; what came later got a version that was lost.
    const isLost = newest < from || ((await storedAt(from)) ?? 0) >= sinceMs;
    if (this.#suspicion === suspicion) this.#suspicion = undefined;
    return isLost ? { from, to } : undefined;
  }
}
