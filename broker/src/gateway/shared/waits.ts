/**
 * Waits for calls, and their end.
 *
 * A wait ends when its operation does, when the caller has gone, or when the broker drains: then it is answered at once
 * with what is known. No wait outlives its caller, and none begins while the broker drains.
 */

import type { WaitSignal } from "../../wire/operations.js";

/** Somebody whose connection may break while an operation runs. */
export interface Caller {
  /** Calls `listener` once when nobody can be answered any more. Returns the way to take it back. */
  onGone(listener: () => void): () => void;
}

/** The open waits of one gateway. */
export interface Waits {
  readonly draining: boolean;
  /** Ends all waits; new ones end as soon as they begin. Idempotent. */
  beginDrain(): void;
  /** Calls `listener` once, when the drain begins; at once when it has. Returns the way to take it back. */
  onDrain(listener: () => void): () => void;
  /** Runs `operation` with a signal that aborts when the caller has gone or the drain begins. */
  run<T>(caller: Caller, operation: (signal: WaitSignal) => Promise<T>): Promise<T>;
  /** The same for something that is used up in pieces: call `close` when it is done with. */
  open(caller: Caller): { readonly signal: WaitSignal; close(): void };
}

/** There is one for each call: an `AbortController` would cost ten times as much. */
class OpenWait implements WaitSignal {
  aborted = false;
  #listeners: (() => void)[] = [];

  addEventListener(_type: "abort", listener: () => void): void {
    if (!this.aborted) this.#listeners.push(listener);
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    this.#listeners = this.#listeners.filter((each) => each !== listener);
  }

  abort(): void {
    if (this.aborted) return;
    this.aborted = true;
    const told = this.#listeners;
    this.#listeners = [];
    for (const listener of told) listener();
  }
}

/** Makes the waits of a gateway. */
export function createWaits(): Waits {
  const openWaits = new Set<OpenWait>();
  const listeners = new Set<() => void>();
  let draining = false;

  function open(caller: Caller): { readonly signal: WaitSignal; close(): void } {
    const signal = new OpenWait();
    if (draining) signal.abort();
    openWaits.add(signal);
    const forget = caller.onGone(() => signal.abort());
    return {
      signal,
      close() {
        forget();
        openWaits.delete(signal);
      },
    };
  }

  return {
    get draining() {
      return draining;
    },
    beginDrain() {
      draining = true;
      for (const wait of openWaits) wait.abort();
      const told = [...listeners];
      listeners.clear();
      for (const listener of told) listener();
    },
    onDrain(listener) {
      if (draining) listener();
      else listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    open,
    async run(caller, operation) {
      const wait = open(caller);
      try {
        return await operation(wait.signal);
      } finally {
        wait.close();
      }
    },
  };
}
