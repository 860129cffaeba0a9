/** One connected runner as this broker sees it: its claim, its handlers, and the grants it was sent. */
import { type BrokerFrame, type FrameChannel, type HandlerDeclaration, type RunnerFrame, Visibility } from "@toolrunner/proto";
import type { BindingKind } from "../domain/ports/catalog.js";
import type { SessionGrants } from "./session-grants.js";
import type { SessionWork } from "./session-work.js";

/** So many pings without an answer, and a runner is given nothing new until it answers. A third one closes it. */
const PINGS_UNANSWERED_QUIET = 2;

/** Names one session for other brokers. */
export interface SessionRef {
  readonly brokerId: string;
  readonly application: string;
  readonly binding: string;
  readonly runnerId: string;
  readonly sessionEpoch: number;
}

/** How well a runner can be seen: 2 visible, 1 nobody knows (a worker, a process), 0 hidden. The larger is placed first. */
export type Sight = 0 | 1 | 2;

/** What a runner said of itself, as a rank. */
export function sightOf(visibility: Visibility | undefined): Sight {
  return visibility === Visibility.VISIBLE ? 2 : visibility === Visibility.HIDDEN ? 0 : 1;
}

export interface Session {
  readonly ref: SessionRef;
  readonly channel: FrameChannel<RunnerFrame, BrokerFrame>;
  readonly bindingKind: BindingKind;
  /** The subject that calls must name; null on a backend. */
  readonly subject: string | null;
  /** Of the credential that it has now. */
  keyId: string;
  readonly journalId: string;
  readonly sdk: string;
  readonly connectedAtMs: number;
  /** By {@link handlerKey}. */
  readonly handlers: ReadonlyMap<string, HandlerDeclaration>;
  readonly grants: SessionGrants;
  /** What its frames started and is not over. */
  readonly work: SessionWork;
  slots: number;
  reserved: number;
  sight: Sight;
  focused: boolean;
  draining: boolean;
  /** Its credential expired: it keeps its grants, and gets none. */
  expired: boolean;
  /** It reads more slowly than it is sent to, and gets no grants until it has read. */
  congested: boolean;
  /** It announced receipts in its hello, and gets no grants before they came. */
  bringing: boolean;
  closed: boolean;
  /** Number of the newest ping that was sent. */
  pingNumber: number;
  /** Number of the newest ping that was answered. */
  pongNumber: number;
  /**
   * Number of the newest ping answer that the drivers of all grants in it heard of; 0: the hello; undefined: not even that.
   * Only such an answer renews leases on the runner's side, so that they end before the drivers' (G3).
   */
  relayedPong: number | undefined;
  /** News that it told of its grants. */
  newsCount: number;
  /** Declines in a row, and until when (monotonic) the runner is left alone for them (B3). */
  declines: number;
  leftAloneUntilMs: number;
  /** Called once the definitions of the runner's tools are merged, or will not come. Idempotent. */
  awaitsDefinitions: (() => void) | undefined;
}

/** Grants whose handler may still take up a slot, and claims that are reserved. */
export function slotsInUse(session: Session): number {
  return session.reserved + session.grants.unfinished;
}

export function freeSlots(session: Session): number {
  return mayTake(session) ? session.slots - slotsInUse(session) : 0;
}

/** Whether it is granted calls at all now. */
export function mayTake(session: Session): boolean {
  const { closed, draining, expired, congested, bringing } = session;
  return !(closed || draining || expired || congested || bringing || isSilent(session));
}

/** It leaves pings unanswered: it may stand still, and would only use up an attempt. */
function isSilent(session: Session): boolean {
  return session.pingNumber - session.pongNumber >= PINGS_UNANSWERED_QUIET;
}
