/** The place that a runner lives in, as far as its broker asks about it: a browser's tab can be seen or not, a process cannot. */
import type { InstanceFacts } from "./messages.js";

/** What can change while a runner lives. */
export type PlaceFacts = Pick<InstanceFacts, "visibility" | "focused">;

/** An id that nobody else of the same place uses while it is held. */
export interface HeldRunnerId {
  /** It may change while no session is up: when it could not be taken back after the page was away. */
  readonly current: string;
  /** Gives it back. Idempotent. */
  release(): void;
}

/** A place. Its functions never throw. */
export interface Place {
  /** What it is like now. */
  facts(): PlaceFacts;
  /** Calls back when the facts may have changed; the answer takes the listener off. */
  watch(listener: () => void): () => void;
  /** The id for a runner of this binding that was given none, the same after a reload; null where the place keeps none. */
  holdRunnerId(binding: string): Promise<HeldRunnerId | null>;
  /** Takes the id of a runner of the same place that is gone; null when that may be somebody's, or the place has no say in it. */
  borrowRunnerId(id: string): Promise<HeldRunnerId | null>;
  /** Resolves when the place is there, at once if it is; rejects when the signal aborts. */
  present(signal: AbortSignal): Promise<void>;
  /** Calls back when it is being put away: what is not under way when the listener returns may never be. The answer takes it off. */
  onLeave(listener: () => void): () => void;
  /** Calls back when it may have been cut off without noticing, as after a sleep, or may reach its broker again. The answer takes it off. */
  onWake(listener: () => void): () => void;
}
