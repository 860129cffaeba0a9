/** What the driver of a call needs: its ports, and what it may cause in the rest of the wire. */
import type { CallRequest, CallState, Grant, ReconcileGrant } from "../domain/call/call-state.js";
import type { CallEntry } from "../domain/call/entries.js";
import type { FaultDetail } from "../domain/fault.js";
import type { Clock } from "../domain/ports/clock.js";
import type { CallLogContext, KnownState } from "./call-log.js";
import type { Figures } from "./figures.js";
import type { Placement } from "./placement.js";
import type { SessionRef } from "./session.js";
import type { TimerWheel } from "./timer-wheel.js";

/** A call's driver as the rest of the wire sees it that its effects reach. */
export interface DrivenCall {
  readonly callId: string;
  readonly known: KnownState;
  /** False once another broker drives the call. */
  readonly drives: boolean;
  readonly location: SessionRef | undefined;
  grant(placement: Placement): Promise<boolean>;
  /** A decision that nobody waits for; tried again until it is stored, or has become pointless. */
  later(what: string, decision: (state: CallState) => CallEntry | undefined): void;
}

/** What drivers need of the rest of the wire. */
export interface DriverEffects {
  /** Look for a runner, not before the queued state's `notBeforeMs`. Idempotent. */
  offer(driver: DrivenCall): void;
  /** Stop looking. */
  withdraw(driver: DrivenCall): void;
  /** Without a placement the grant may have been sent before, by a broker that is gone: sending is idempotent. */
  sendGrant(driver: DrivenCall, grant: Grant, placement: Placement | undefined): void;
  pushCancel(driver: DrivenCall, grant: Grant, reason: string): void;
  revoke(driver: DrivenCall, grant: Pick<Grant, "grantId" | "fence">, reason: string): void;
  /** Asks the reconcile handler of the call in needs_reconciliation. Idempotent. */
  sendReconcile(driver: DrivenCall, asked: ReconcileGrant): void;
  /** Looks for the handler anew, not before the state's `askAgainAtMs`. Idempotent. */
  reconcileAgain(driver: DrivenCall): void;
  /** G1: asks the runner's present session what became of the grant. Resolves to whether there is one to ask. */
  askHolder(driver: DrivenCall, grant: Grant): Promise<boolean>;
  /** The grant that ran is over, whatever the call came to. */
  grantEnded(driver: DrivenCall): void;
  settled(driver: DrivenCall): void;
  /** Another broker drives the call now. */
  handedOver(driver: DrivenCall): void;
}

export interface DriverContext extends CallLogContext {
  readonly brokerId: string;
  readonly clock: Clock;
  readonly figures: Figures;
  readonly timers: TimerWheel;
  readonly effects: DriverEffects;
  /** Faults of a result against the output schema of the call's pinned tool. */
  readonly resultFaults: (request: CallRequest, json: string) => Promise<readonly FaultDetail[]>;
}

/** What a decision comes to: an entry to append, if any, and what is answered once it is stored. */
export interface Decision<T> {
  readonly entry?: CallEntry | undefined;
  readonly answer: T;
}

/** This broker does not drive the call, or no longer: whoever asked has to ask again elsewhere. Nothing was stored. */
export class NotDriver extends Error {
  override readonly name = "NotDriver";
  constructor(readonly callId: string) {
    super(`call ${callId} is driven by another broker`);
  }
}
