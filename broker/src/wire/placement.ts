/** A runner that was found and reserved for one grant, on this broker or on another. */
import type { GrantHolder } from "../domain/call/call-state.js";
import type { SessionRef } from "./session.js";

export interface Placement {
  readonly holder: GrantHolder;
  readonly session: SessionRef;
  /** Gives the reserved claim back; idempotent. */
  release(): void;
}
