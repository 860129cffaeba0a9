/** The figures of a broker, each an option in milliseconds; defaults are the contract's. */
export interface Figures {
  /** Between two pings of a session. */
  readonly pingIntervalMs: number;
  /** A grant holds for this long after the last ping answer that lists it. */
  readonly leaseMs: number;
  /** A valid hello must come within this time. */
  readonly helloMs: number;
  /** Between two heartbeats of a broker. */
  readonly heartbeatMs: number;
  /** A broker without a heartbeat for this long is gone. */
  readonly goneAfterMs: number;
  /** A driver that does not answer a command within this time may be replaced. */
  readonly driverAnswerMs: number;
  /** An open offer is repeated after this time, with jitter. */
  readonly offerRepeatMs: number;
  /** An answered offer keeps its claim reserved for this long. */
  readonly reservationMs: number;
  /** A queued call that still waits after this time says so in its events. */
  readonly waitingNoticeMs: number;
  /** A person has this long to confirm a call. */
  readonly confirmationMs: number;
  /** A reconcile handler has this long to answer. */
  readonly reconcileMs: number;
  /** An agent's turn waits this long for the first answer of a reconcile handler that is asked. */
  readonly reconcileTurnMs: number;
  /** How long an agent's request waits for the ledger before it is told 503. */
  readonly ledgerAnswerMs: number;
  /** Settled calls stay in memory for this long, for those who wait for them. */
  readonly settledMemoryMs: number;
  /** Between two looks for calls whose retention is over. */
  readonly retentionSweepMs: number;
  /** Removing a call takes at least this long, so that it stays a small part of the ledger's work. */
  readonly retentionPaceMs: number;
  /** Large values that no call names are removed after this time. */
  readonly unnamedValueMs: number;
  /** The open calls that name this broker are compared with its memory this often; less often when that takes long. */
  readonly openCallCheckMs: number;
  /** A runner is asked for a new credential this long before its present one expires. */
  readonly credentialLeadMs: number;
  /** A session whose credential expired takes nothing new for this long, then it is closed. */
  readonly credentialGraceMs: number;
}

export const DEFAULT_FIGURES: Figures = {
  pingIntervalMs: 5_000,
  leaseMs: 15_000,
  helloMs: 5_000,
  heartbeatMs: 2_000,
  goneAfterMs: 6_000,
  driverAnswerMs: 2_000,
  offerRepeatMs: 2_000,
  reservationMs: 1_000,
  waitingNoticeMs: 250,
  confirmationMs: 600_000,
  reconcileMs: 30_000,
  reconcileTurnMs: 2_000,
  ledgerAnswerMs: 5_000,
  settledMemoryMs: 10_000,
  retentionSweepMs: 60_000,
  retentionPaceMs: 5,
  unnamedValueMs: 3_600_000,
  openCallCheckMs: 5_000,
  credentialLeadMs: 60_000,
  credentialGraceMs: 10_000,
};
