/** The port of a place that a browser may put away and show again. */
import type { Place } from "../core/place.js";

/** A place whose page may be put away, as browsers do with the page that one goes back to. */
export interface BrowserPlace extends Place {
  /** Resolves when the page is there, at once if it is; rejects when the signal aborts. */
  present(signal: AbortSignal): Promise<void>;
  /** Calls back when the page is being left; the answer takes the listener off. */
  onLeave(listener: () => void): () => void;
}
