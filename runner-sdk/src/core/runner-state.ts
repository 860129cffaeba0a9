/** What a runner is doing, as a union that can be read and watched (R3). */

export type RunnerState =
  /** Making a session. */
  | { readonly kind: "connecting" }
  /** Serving. `fault` is set while something keeps it from taking calls, such as a journal that cannot be written. */
  | { readonly kind: "ready"; readonly fault: RunnerFault | null }
  /** Takes nothing new; what runs finishes and its receipts are delivered. */
  | { readonly kind: "draining" }
  /** The session was lost or not made; the next attempt is at `nextTryAt`. */
  | { readonly kind: "retrying"; readonly reason: string; readonly nextTryAt: Date }
  /** The broker refused the runner for good. */
  | { readonly kind: "refused"; readonly code: string; readonly message: string }
  | { readonly kind: "stopped" };

/** Something that keeps a connected runner from taking calls. */
export interface RunnerFault {
  readonly code: "journal_unwritable";
  readonly message: string;
}

/** Called with every new state. It may throw: the runner goes on. */
export type StateListener = (state: RunnerState) => void;

/** Holds a state and tells its listeners; `refused` and `stopped` are final. */
export interface StateHolder {
  readonly current: RunnerState;
  set(next: RunnerState): void;
  /** The answer takes the listener off again. */
  listen(listener: StateListener): () => void;
}

export function createStateHolder(initial: RunnerState): StateHolder {
  let current = initial;
  const listeners = new Set<StateListener>();
  return {
    get current() {
      return current;
    },
    set(next) {
      if (current.kind === "refused" || current.kind === "stopped") return;
      current = next;
      for (const listener of [...listeners]) {
        try {
          listener(next);
        } catch {
          // A listener's fault is its own.
        }
      }
    },
    listen(listener) {
      // A listener given twice is two listeners: each is taken off by itself.
      const own: StateListener = (state) => listener(state);
      listeners.add(own);
      return () => void listeners.delete(own);
    },
  };
}
