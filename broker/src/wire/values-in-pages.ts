/**
 * Large values that somebody reads page by page: kept for a moment, so that each page does not cost the whole value again.
 *
 * Invariants: what is kept is bounded in bytes, the value that was read longest ago goes first; readers of one value share one read; a
 * read that failed is forgotten. A value never changes under its name, and one that retention removed meanwhile may be read to its end.
 */

/** Bytes of values that are kept: a few of the largest. */
const KEPT_BYTES_MAX = 64 * 1_048_576;

interface Kept {
  readonly bytes: number;
  readonly value: Promise<Buffer>;
}

/** See the module's header. */
export class ValuesInPages {
  /** The one that was read last at the end. */
  private readonly kept = new Map<string, Kept>();
  private bytes = 0;

  /** `load` gets a value from where it is stored. */
  constructor(private readonly load: (name: string) => Promise<Buffer>) {}

  /** Bytes that are kept. */
  get size(): number {
    return this.bytes;
  }

  /** The value of this name, which has `bytes` bytes. Rejects as `load` does. */
  get(name: string, bytes: number): Promise<Buffer> {
    const known = this.kept.get(name);
    if (known !== undefined) {
      this.kept.delete(name);
      this.kept.set(name, known);
      return known.value;
    }
    const value = this.load(name);
    const made: Kept = { bytes, value };
    this.kept.set(name, made);
    this.bytes += bytes;
    value.catch(() => this.forget(name, made));
    for (const [oldest, each] of this.kept) {
      if (this.bytes <= KEPT_BYTES_MAX) {
        break;
      }
      this.forget(oldest, each);
    }
    return value;
  }

  private forget(name: string, each: Kept): void {
    if (this.kept.get(name) === each) {
      this.kept.delete(name);
      this.bytes -= each.bytes;
    }
  }
}
