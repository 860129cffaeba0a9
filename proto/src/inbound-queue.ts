/**
 * Frames that arrived and were not read yet.
 *
 * Invariants:
 * - one reader; items come out in the order they went in, and all of them before the end;
 * - over the high mark `onPause` is called once, back under the low mark `onResume` once: the transport stops reading its
 *   connection, so a slow reader slows its peer instead of filling memory;
 * - after the end, or when the reader left its loop, items are dropped and the transport is never left paused.
 */

/** Marks and hooks of a queue. */
export interface InboundQueueOptions {
  /** Cost of unread items, in bytes, above which the transport is paused. Default 4 MiB. */
  readonly highBytes?: number | undefined;
  /** Called when the transport should stop, and go on, reading. */
  readonly onPause?: (() => void) | undefined;
  readonly onResume?: (() => void) | undefined;
}

/** An async-iterable queue with one reader. */
export interface InboundQueue<T> extends AsyncIterable<T> {
  /** `bytes` is the encoded size; each item costs {@link ITEM_OVERHEAD_BYTES} more, since tiny frames hold memory too. */
  push(item: T, bytes: number): void;
  /** No further items. `discard` drops what is unread; else it is still delivered. Idempotent. */
  end(options?: { readonly discard?: boolean }): void;
  /** Cost of what is unread, in bytes. */
  readonly unreadBytes: number;
}

/** Default of {@link InboundQueueOptions.highBytes}. */
export const INBOUND_HIGH_BYTES_DEFAULT = 4 * 1_048_576;
/** What an unread frame costs beside its bytes. */
export const ITEM_OVERHEAD_BYTES = 256;

/** Read entries are let go in batches of this many. */
const COMPACT_AT = 1_024;

interface Entry<T> {
  readonly item: T;
  readonly cost: number;
}

/** Makes an empty queue. Iterating it a second time throws a TypeError: each frame has one reader. */
export function createInboundQueue<T>(options: InboundQueueOptions = {}): InboundQueue<T> {
  return new Queue<T>(options);
}

type Waiting<T> = (result: IteratorResult<T, undefined>) => void;

/** A class, because there is one for each of ten thousand sessions: methods are shared, and it is its own iterator. */
class Queue<T> implements InboundQueue<T>, AsyncIterator<T, undefined> {
  readonly #options: InboundQueueOptions;
  readonly #highBytes: number;
  #entries: Entry<T>[] = [];
  #head = 0;
  #unreadBytes = 0;
  #paused = false;
  #ended = false;
  #taken = false;
  #waiting: Waiting<T>[] = [];

  constructor(options: InboundQueueOptions) {
    this.#options = options;
    this.#highBytes = options.highBytes ?? INBOUND_HIGH_BYTES_DEFAULT;
  }

  get unreadBytes(): number {
    return this.#unreadBytes;
  }

  push(item: T, bytes: number): void {
    if (this.#ended) return;
    const reader = this.#waiting.shift();
    if (reader !== undefined) {
      reader({ done: false, value: item });
      return;
    }
    const cost = bytes + ITEM_OVERHEAD_BYTES;
    this.#entries.push({ item, cost });
    this.#unreadBytes += cost;
    this.#settlePause();
  }

  end(how: { readonly discard?: boolean } = {}): void {
    if (how.discard) {
      this.#entries = [];
      this.#head = 0;
      this.#unreadBytes = 0;
    }
    this.#ended = true;
    this.#settlePause();
    for (const resolve of this.#waiting.splice(0)) resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): AsyncIterator<T, undefined> {
    if (this.#taken) throw new TypeError("the frames of a channel are read by one loop only");
    this.#taken = true;
    return this;
  }

  next(): Promise<IteratorResult<T, undefined>> {
    const entry = this.#take();
    if (entry !== undefined) return Promise.resolve({ done: false, value: entry.item });
    if (this.#ended) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  return(): Promise<IteratorResult<T, undefined>> {
    this.end({ discard: true });
    return Promise.resolve({ done: true, value: undefined });
  }

  #take(): Entry<T> | undefined {
    const entry = this.#entries[this.#head];
    if (entry === undefined) return undefined;
    this.#head += 1;
    if (this.#head === this.#entries.length) {
      this.#entries = [];
      this.#head = 0;
    } else if (this.#head >= COMPACT_AT) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
    this.#unreadBytes -= entry.cost;
    this.#settlePause();
    return entry;
  }

  #settlePause(): void {
    if (!this.#paused && !this.#ended && this.#unreadBytes > this.#highBytes) {
      this.#paused = true;
      this.#options.onPause?.();
    } else if (this.#paused && (this.#ended || this.#unreadBytes <= this.#highBytes / 2)) {
      this.#paused = false;
      this.#options.onResume?.();
    }
  }
}
