/**
 * What a chaos run leaves behind, seen from the outside: what agents were told, what handlers wrote, which receipts runners saw
 * acknowledged, what an operator decided, and the ledger. All times are Unix milliseconds of the one machine.
 */
import type { CallState } from "@toolrunner/agent-sdk";
import type { CallEntry } from "@toolrunner/broker/internal";

/** One answer of a broker that names a call: with it the call is acknowledged. */
export interface Sight {
  readonly agent: string;
  /** Idempotency key of the request. */
  readonly key: string;
  readonly tool: string;
  readonly call: string;
  /** `turn`: while the agent works on it. `repeat`: the same request again, later. `final`: asked for when all is quiet. */
  readonly how: "turn" | "repeat" | "final";
  readonly askedAtMs: number;
  readonly atMs: number;
  readonly state: CallState;
  /** SHA-256 of the JSON text of result or handle; null when there is none. */
  readonly value: string | null;
  /** Code of the error; null when there is none. */
  readonly code: string | null;
}

/** An answer that repeating does not change. */
export interface Refusal {
  readonly agent: string;
  readonly key: string;
  readonly atMs: number;
  readonly code: string;
  readonly message: string;
}

/** A handler's first line. */
export interface HandlerStart {
  readonly runner: string;
  readonly tool: string;
  readonly call: string;
  readonly grant: string;
  readonly attempt: number;
  readonly fence: number;
  readonly atMs: number;
}

/** A handler's last line. */
export interface HandlerEnd {
  readonly runner: string;
  readonly call: string;
  readonly fence: number;
  readonly atMs: number;
  /** `returned`, `submitted` or `threw`; `settled` is the later outcome of a submission. */
  readonly how: "returned" | "submitted" | "threw" | "settled";
  /** As {@link Sight.value}; null when it threw. */
  readonly value: string | null;
}

/** A receipt that a runner saw acknowledged. */
export interface AcknowledgedReceipt {
  readonly runner: string;
  readonly call: string;
  readonly grant: string;
  readonly fence: number;
  readonly digest: string;
  readonly atMs: number;
}

/** What an operator decided about a call in `needs_reconciliation`, when it was asked for. */
export interface Decision {
  readonly call: string;
  readonly outcome: "applied" | "not_applied" | "abandon";
  readonly askedAtMs: number;
}

/** An entry as the stream has it. */
export interface LedgerEntry {
  readonly call: string;
  readonly version: number;
  readonly previous: number;
  readonly entryId: string;
  readonly entry: CallEntry;
}

/** A log line of a broker, or the end of a process, that must not be. */
export interface Alarm {
  readonly process: string;
  readonly event: string;
  readonly call: string | null;
}

export interface History {
  readonly sights: readonly Sight[];
  readonly refusals: readonly Refusal[];
  readonly starts: readonly HandlerStart[];
  readonly ends: readonly HandlerEnd[];
  readonly acknowledged: readonly AcknowledgedReceipt[];
  readonly decisions: readonly Decision[];
  /** In the order of their versions. */
  readonly entries: readonly LedgerEntry[];
  readonly alarms: readonly Alarm[];
}

/** Something that the invariants rule out. */
export interface Violation {
  readonly kind: ViolationKind;
  /** Null when it is about no call. */
  readonly call: string | null;
  /** What was seen, with ids and numbers only. */
  readonly what: string;
}

/** Everything that the checker looks for, with the rule that it breaks. */
export const VIOLATIONS = {
  call_lost: "I1: an acknowledged call is not in the ledger",
  call_open: "I1: when all is quiet, a call is neither settled nor waits for reconciliation",
  key_of_two_calls: "X2: one key was answered with two calls",
  refused: "I1: a request was refused that only outages should have stopped",
  answer_changed: "I6: a turn that had its answer was answered otherwise",
  answer_unknown: "I6: an agent was told what the ledger never said",
  outcome_differs: "I6: what an agent sees in the end is not the ledger's outcome",
  started_twice: "I3: what is not safe to repeat was started twice",
  grant_started_twice: "I2: one grant was started twice",
  start_without_grant: "I2: a start names a fence or an attempt that the ledger never granted",
  start_after_newer: "I2, G3: an older grant was started after a newer one",
  start_of_returned: "G1: a grant was started that was taken for never started",
  start_after_not_applied: "G3: a call was started under an old grant after somebody truthfully said that it was not applied",
  two_live_grants: "I2: a call was granted while a grant was live",
  attempt_order: "I2: attempts do not count the grants",
  attempts_exceeded: "X7: a call was granted more often than it may",
  repeat_unsafe: "I3: what is not safe to repeat was granted again without anybody's word",
  receipt_lost: "I4: an acknowledged receipt is not in the ledger",
  receipt_unfounded: "I4: the ledger has a result that no handler gave",
  settled_twice: "I4: something happened to a call after it had settled",
  stale_settled: "I5: a receipt of an older grant changed the call",
  forked: "L1: an entry does not follow the one before it",
  order_of_entries: "G: an entry cannot follow from the call's state",
  alarm: "a process logged what must not be, or ended by itself",
} as const;

export type ViolationKind = keyof typeof VIOLATIONS;
