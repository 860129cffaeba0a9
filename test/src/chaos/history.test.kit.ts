/** A small clean history to plant faults into: one call of each kind that matters, told by all sides alike. */
import type { CallEntry } from "@toolrunner/broker/internal";
import type { AcknowledgedReceipt, HandlerEnd, HandlerStart, History, LedgerEntry, Sight } from "./history.js";
import { digestOf } from "./value-digest.js";

/** Arrays that a test may change. */
export type Mutable<T> = { -readonly [K in keyof T]: T[K] extends readonly (infer U)[] ? U[] : T[K] };

type Of<K extends CallEntry["kind"]> = Extract<CallEntry, { readonly kind: K }>;
type Request = Of<"accepted">["request"];

const BEGAN_MS = 1_800_000_000_000;

/** Writes histories as a run would have, one thing after the other: each step takes 10 ms. */
export class Scribe {
  readonly history: Mutable<History> = {
    sights: [],
    refusals: [],
    starts: [],
    ends: [],
    acknowledged: [],
    decisions: [],
    entries: [],
    alarms: [],
  };
  #now = BEGAN_MS;
  #version = 0;
  readonly #last = new Map<string, number>();

  get nowMs(): number {
    this.#now += 10;
    return this.#now;
  }

  entry(call: string, entry: CallEntry): LedgerEntry {
    this.#version += 1;
    const written = { call, version: this.#version, previous: this.#last.get(call) ?? 0, entryId: `entry_${this.#version}`, entry };
    this.#last.set(call, written.version);
    this.history.entries.push(written);
    return written;
  }

  accepted(call: string, request: Partial<Request> = {}): LedgerEntry {
    const all = { readOnly: false, idempotent: false, maxAttempts: 3, tool: "charge", ...request } as Request;
    return this.entry(call, {
      kind: "accepted",
      at: this.nowMs,
      request: all,
      argumentsJson: "{}",
      driver: "broker_1",
      deadlineAtMs: null,
      confirmationExpiresAtMs: null,
      grant: null,
    });
  }

  granted(call: string, attempt = 1, handlerIdempotent = false): LedgerEntry {
    const holder = {
      runnerId: "runner-1",
      sessionEpoch: 1,
      journalId: "jrn_1",
      brokerId: "broker_1",
      handlerReadOnly: false,
      handlerIdempotent,
      handlerCancellable: false,
    };
    return this.entry(call, { kind: "granted", at: this.nowMs, driver: "broker_1", grant: { attempt, holder } });
  }

  started(grant: LedgerEntry, attempt = 1): HandlerStart {
    const start = {
      runner: "runner-1",
      tool: "charge",
      call: grant.call,
      grant: grant.entryId,
      attempt,
      fence: grant.version,
      atMs: this.nowMs,
    };
    this.history.starts.push(start);
    return start;
  }

  ended(grant: LedgerEntry, value: unknown = { paid: true }): HandlerEnd {
    const end = {
      runner: "runner-1",
      call: grant.call,
      fence: grant.version,
      atMs: this.nowMs,
      how: "returned" as const,
      value: digestOf(value),
    };
    this.history.ends.push(end);
    return end;
  }

  receipt(grant: LedgerEntry, value: unknown = { paid: true }, more: Partial<Of<"receipt">> = {}): LedgerEntry {
    return this.entry(grant.call, { ...receiptOf(grant, value, this.nowMs), ...more });
  }

  acknowledged(grant: LedgerEntry): AcknowledgedReceipt {
    const { call, entryId, version } = grant;
    const line = { runner: "runner-1", call, grant: entryId, fence: version, digest: `digest of ${entryId}`, atMs: this.nowMs };
    this.history.acknowledged.push(line);
    return line;
  }

  sees(call: string, state: Sight["state"], value: unknown = undefined, how: Sight["how"] = "turn", code: string | null = null): Sight {
    const sight = {
      agent: "agent-1",
      key: `key of ${call}`,
      tool: "charge",
      call,
      how,
      askedAtMs: this.nowMs,
      atMs: this.nowMs,
      state,
      value: value === undefined ? null : digestOf(value),
      code,
    };
    this.history.sights.push(sight);
    return sight;
  }
}

function receiptOf(grant: LedgerEntry, value: unknown, at: number): Of<"receipt"> {
  const json = JSON.stringify(value);
  return {
    kind: "receipt",
    at,
    receipt: {
      grantId: grant.entryId,
      attempt: 1,
      fence: grant.version,
      runnerId: "runner-1",
      digest: `digest of ${grant.entryId}`,
      startedAtMs: at,
      outcome: "succeeded",
      value: { kind: "inline", json, bytes: json.length },
      error: null,
    },
    fault: null,
    retryAtMs: null,
    submissionExpiresAtMs: null,
  };
}

/** A call that is accepted, granted, run, acknowledged and answered, as it should be. Answers its grant. */
export function plainCall(scribe: Scribe, call: string): LedgerEntry {
  scribe.accepted(call);
  scribe.sees(call, "queued");
  const grant = scribe.granted(call);
  scribe.started(grant);
  scribe.ended(grant);
  scribe.receipt(grant);
  scribe.acknowledged(grant);
  scribe.sees(call, "succeeded", { paid: true });
  return grant;
}

/** A repeatable call whose first grant lost its lease, and whose second one settled it; the first one's receipt is evidence. */
export function repeatedCall(scribe: Scribe, call: string): readonly [LedgerEntry, LedgerEntry] {
  scribe.accepted(call, { idempotent: true });
  const first = scribe.granted(call, 1, true);
  scribe.started(first);
  scribe.entry(call, leaseLost(first, scribe.nowMs, scribe.nowMs));
  const second = scribe.granted(call, 2, true);
  scribe.started(second, 2);
  scribe.ended(second);
  scribe.receipt(second);
  scribe.acknowledged(second);
  scribe.ended(first);
  const { receipt } = receiptOf(first, { paid: true }, scribe.nowMs);
  scribe.entry(call, { kind: "evidence", at: scribe.nowMs, receipt });
  scribe.acknowledged(first);
  scribe.sees(call, "succeeded", { paid: true });
  return [first, second];
}

/** A call whose outcome nobody knew, until somebody said that it was not applied. Answers both grants. */
export function reconciledCall(scribe: Scribe, call: string): readonly [LedgerEntry, LedgerEntry] {
  scribe.accepted(call);
  const first = scribe.granted(call);
  scribe.entry(call, leaseLost(first, scribe.nowMs, null));
  scribe.sees(call, "needs_reconciliation");
  scribe.history.decisions.push({ call, outcome: "not_applied", askedAtMs: scribe.nowMs });
  scribe.entry(call, {
    kind: "reconciled",
    at: scribe.nowMs,
    outcome: "not_applied",
    by: "operator",
    note: null,
    value: null,
    error: null,
  });
  const second = scribe.granted(call, 2);
  scribe.started(second, 2);
  scribe.ended(second);
  scribe.receipt(second);
  scribe.acknowledged(second);
  scribe.sees(call, "succeeded", { paid: true }, "final");
  return [first, second];
}

export function leaseLost(grant: LedgerEntry, at: number, retryAtMs: number | null): Of<"lease_lost"> {
  return { kind: "lease_lost", at, grantId: grant.entryId, cause: "lease", message: "", retryAtMs };
}
