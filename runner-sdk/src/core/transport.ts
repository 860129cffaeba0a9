/** How a runner reaches its broker. */
import type { Sha256 } from "./digest.js";
import type { Journal } from "./journal.js";
import type { Place } from "./place.js";
import type { RunnerChannel } from "./wire.js";

/** Makes one channel for each attempt. */
export interface Transport {
  /** For logs, such as "grpc". */
  readonly name: string;
  /** Whether `connect` hands the credential over itself (in `authorization`); otherwise the hello carries it. */
  readonly carriesCredential: boolean;
  /** The platform's own SHA-256, where it answers at once. */
  readonly sha256?: Sha256;
  /** Where it connects to; absent where there is nothing to name. */
  readonly address?: string;
  /** The journal of a runner that was given none. */
  readonly journal?: Journal;
  /** Sends a body of receipts (`POST …/flush`) in a request that outlives this place; absent where nothing can. What comes of it is not heard. */
  flush?(body: string): void;
  /** The place that it dials from, where that has something to say, as a page has. */
  readonly place?: Place;
  /**
   * Makes a channel, or rejects: with a `ConnectError` where the redial rule is known, with anything else for "try again".
   * When the signal aborts it gives up and rejects.
   */
  connect(options: { readonly credential: string; readonly signal: AbortSignal }): Promise<RunnerChannel>;
}
