/** One connected runner as this broker sees it: its claim, its handlers, and the grants it was sent. */
import type { BrokerFrame, FrameChannel, HandlerDeclaration, RunnerFrame } from "@toolrunner/proto";
import type { BindingKind } from "../domain/ports/catalog.js";

/** Names one session for other brokers. */
export interface SessionRef {
  readonly brokerId: string;
  readonly application: string;
  readonly binding: string;
  readonly runnerId: string;
  readonly sessionEpoch: number;
}

/** A grant that was sent on this session or that the runner reported. */
export interface SessionGrant {
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
  /** Where the driver was last reached; undefined: find it by the ledger. */
  driver: string | undefined;
  /** The handler ended: the receipt came, its disposition did not yet. */
  finished: boolean;
  /** The first ping whose answer must list the grant: it was sent after the grant. */
  readonly listedFromPing: number;
}

export interface Session {
  readonly ref: SessionRef;
  readonly channel: FrameChannel<RunnerFrame, BrokerFrame>;
  readonly bindingKind: BindingKind;
  /** The subject that calls must name; null on a backend. */
  readonly subject: string | null;
  readonly keyId: string;
  readonly journalId: string;
  readonly sdk: string;
  readonly connectedAtMs: number;
  /** By {@link handlerKey}. */
  readonly handlers: ReadonlyMap<string, HandlerDeclaration>;
  readonly grants: Map<string, SessionGrant>;
  slots: number;
  reserved: number;
  visible: boolean;
  focused: boolean;
  draining: boolean;
  closed: boolean;
  /** Number of the newest ping that was sent. */
  pingNumber: number;
  /** Number of the newest ping that was answered. */
  pongNumber: number;
  /** Declines in a row, and until when (monotonic) the runner is left alone for them (B3). */
  declines: number;
  leftAloneUntilMs: number;
  /** Called once the definitions of the runner's tools are merged, or will not come. Idempotent. */
  awaitsDefinitions: (() => void) | undefined;
}

/** Grants whose handler may still take up a slot. */
export function slotsInUse(session: Session): number {
  let used = session.reserved;
  for (const grant of session.grants.values()) {
    if (!grant.finished) {
      used += 1;
    }
  }
  return used;
}

export function freeSlots(session: Session): number {
  return session.closed || session.draining ? 0 : session.slots - slotsInUse(session);
}
