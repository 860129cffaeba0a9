/**
 * Large values that no call names: a value is stored before the entry that names it, and between the two anything may die (L7).
 *
 * Invariants:
 * - A value goes only after it was seen unnamed for the whole time, and once more a sweep later: an entry that waits for a ledger which was away
 *   for that long comes in between.
 * - It goes only from the place where it was seen: who stores it again in the meantime keeps it.
 * - Each value is looked at once, and again only while nothing names it.
 */
import { namesBlob } from "../domain/call/retention.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Ledger } from "../domain/ports/ledger.js";
import { entriesOf } from "./call-removal.js";

interface Unnamed {
  readonly place: number;
  /** Monotonic. */
  readonly sinceMs: number;
  /** Was seen once after its time. */
  isDue: boolean;
}

export interface UnnamedValuesContext {
  readonly ledger: Pick<Ledger, "read" | "blobs">;
  readonly clock: Pick<Clock, "monotonic">;
  /** How long a value may be without a name. */
  readonly graceMs: number;
  /** Told before each look at a call; resolves when the next one may come. */
  readonly pace: () => Promise<void>;
}

export class UnnamedValues {
  /** Places before this one were looked at. */
  private next = 0;
  private readonly unnamed = new Map<string, Unnamed>();

  constructor(private readonly context: UnnamedValuesContext) {}

  /** Values that nothing named when they were last looked at. */
  get size(): number {
    return this.unnamed.size;
  }

  /** Looks at what is new, and at what was unnamed. Resolves to how many values it removed. `signal` ends it between two of them. */
  async sweep(signal: AbortSignal): Promise<number> {
    await this.lookAtNew(signal);
    let removed = 0;
    for (const [name, seen] of [...this.unnamed]) {
      if (signal.aborted) {
        break;
      }
      if (this.context.clock.monotonic() - seen.sinceMs < this.context.graceMs) {
        continue;
      }
      if (await this.isNamed(name)) {
        this.unnamed.delete(name);
      } else if (!seen.isDue) {
        seen.isDue = true;
      } else {
        this.unnamed.delete(name);
        removed += (await this.context.ledger.blobs.remove({ name, place: seen.place })) ? 1 : 0;
      }
    }
    return removed;
  }

  private async lookAtNew(signal: AbortSignal): Promise<void> {
    let last: { readonly name: string; readonly place: number } | undefined;
    for await (const blob of this.context.ledger.blobs.places(this.next, signal)) {
      // The parts of one value come one after the other.
      if (last !== undefined && last.name !== blob.name) {
        await this.lookAt(last);
      }
      last = blob;
      this.next = blob.place + 1;
      if (signal.aborted) {
        return;
      }
    }
    if (last !== undefined) {
      await this.lookAt(last);
    }
  }

  private async lookAt({ name, place }: { readonly name: string; readonly place: number }): Promise<void> {
    if (await this.isNamed(name)) {
      this.unnamed.delete(name);
    } else {
      this.unnamed.set(name, { place, sinceMs: this.context.clock.monotonic(), isDue: false });
    }
  }

  private async isNamed(name: string): Promise<boolean> {
    await this.context.pace();
    return namesBlob(await entriesOf(this.context.ledger, name.slice(0, name.indexOf("/"))), name);
  }
}
