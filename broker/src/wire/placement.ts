/** A runner that was found and reserved for one grant, on this broker or on another. */
import type { GrantHolder } from "../domain/call/call-state.js";
import type { SessionRef } from "./session.js";

/** In place of an offer's id: the claim is reserved in this very process. */
export const LOCAL_CLAIM = "local";

export interface Placement {
  readonly holder: GrantHolder;
  readonly session: SessionRef;
  /** The answered offer that the grant takes up, or {@link LOCAL_CLAIM}. */
  readonly offerId: string;
  /** Gives the reserved claim back; idempotent. */
  release(): void;
}
