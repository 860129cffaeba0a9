/**
 * What a call's entries say, told without the broker's own machine: a checker that asked the machine would believe its faults.
 *
 * Owns the independent reading of entries: states, grants, receipts, and what about them cannot be. An entry kind that is new
 * breaks the build here, until this reading says what it does.
 */
import type { CallState } from "@toolrunner/agent-sdk";
import type { CallEntry } from "@toolrunner/broker/internal";
import type { LedgerEntry, Violation, ViolationKind } from "./history.js";
import { valueDigest } from "./value-digest.js";

/** The call as it was from one version on. */
export interface Step {
  readonly version: number;
  readonly atMs: number;
  readonly state: CallState;
  /** SHA-256 of the value's JSON text; `blob` when the entry only names it; null when there is none. */
  readonly value: string | null;
  readonly code: string | null;
  /** Fence of the grant whose receipt gave the value. */
  readonly fence: number | null;
}

export interface ToldGrant {
  readonly grantId: string;
  readonly fence: number;
  readonly attempt: number;
  /** Both the tool and the handler say so. */
  readonly repeatable: boolean;
  readonly runnerId: string;
  /** It came back without its handler having begun, as the broker believes. */
  returned: string | null;
}

export interface ToldReceipt {
  readonly grantId: string;
  readonly fence: number;
  readonly digest: string;
  readonly version: number;
}

export interface Story {
  readonly call: string;
  readonly steps: readonly Step[];
  readonly grants: readonly ToldGrant[];
  /** Stored ones: those that took effect, and evidence. */
  readonly receipts: readonly ToldReceipt[];
  /** Where a person or a handler said that the call was not applied. */
  readonly notApplied: readonly { readonly version: number; readonly atMs: number }[];
  readonly reconciliations: number;
  readonly takeOvers: number;
  readonly faults: readonly Violation[];
}

/** What an agent is told where a receipt names no error of its own. */
const CODE_WITHOUT_ERROR = { succeeded: null, submitted: null, failed: "handler_error", cancelled: "call_cancelled" } as const;
const SETTLED: ReadonlySet<CallState> = new Set(["succeeded", "failed", "cancelled", "timed_out", "denied"]);

/** Whether nothing may happen to a call of this state any more. */
export function isSettled(state: CallState): boolean {
  return SETTLED.has(state);
}

/** @param entries those of one call, oldest first. */
export function tellStory(call: string, entries: readonly LedgerEntry[]): Story {
  const teller = new Teller(call);
  for (const entry of entries) teller.take(entry);
  return teller;
}

type Of<K extends CallEntry["kind"]> = Extract<CallEntry, { readonly kind: K }>;
type Accepted = Of<"accepted">;
type GrantFacts = Of<"granted">["grant"];
type Outcome = Pick<Step, "state"> & Partial<Pick<Step, "value" | "code" | "fence">>;

class Teller implements Story {
  readonly steps: Step[] = [];
  readonly grants: ToldGrant[] = [];
  readonly receipts: ToldReceipt[] = [];
  readonly notApplied: { readonly version: number; readonly atMs: number }[] = [];
  readonly faults: Violation[] = [];
  reconciliations = 0;
  takeOvers = 0;
  #last = 0;
  #accepted: Accepted | null = null;
  #begun = false;
  #cancelAsked = false;
  #returned = 0;
  /** The reconcile grant whose answer is awaited. */
  #question: string | null = null;

  constructor(readonly call: string) {}

  take({ version, previous, entryId, entry }: LedgerEntry): void {
    if (previous !== this.#last) {
      this.#fault("forked", `entry ${entryId} at ${version} follows ${previous}, the last one is ${this.#last}`);
      return;
    }
    this.#last = version;
    const before = this.steps.at(-1)?.state ?? null;
    if ((before === null) !== (entry.kind === "accepted")) {
      this.#fault("order_of_entries", `${entry.kind} at ${version} ${before === null ? "begins the call" : "comes again"}`);
      return;
    }
    if (before !== null && isSettled(before) && entry.kind !== "evidence") {
      this.#fault("settled_twice", `${entry.kind} at ${version} after ${before}`);
    }
    if (typeof entry.live?.startedAtMs === "number") this.#begun = true;
    const outcome = this.#outcome(entry, entryId, version, before);
    if (outcome === null) return;
    this.steps.push({ value: null, code: null, fence: null, ...outcome, version, atMs: entry.at });
  }

  /** Null: the state stays, and so does what is seen of the call. */
  #outcome(entry: CallEntry, entryId: string, version: number, before: CallState | null): Outcome | null {
    switch (entry.kind) {
      case "accepted":
        this.#accepted = entry;
        if (entry.confirmationExpiresAtMs !== null) return { state: "awaiting_confirmation" };
        return entry.grant === null ? { state: "queued" } : this.#granted(entry.grant, entryId, version, "queued");
      case "granted":
        return this.#granted(entry.grant, entryId, version, before);
      case "confirmed":
        return { state: "queued" };
      case "denied":
        return { state: "denied", code: entry.error.code };
      case "returned":
        return this.#cameBack(entry, version);
      case "receipt":
        return this.#receipt(entry, version);
      case "evidence":
        this.#keep(entry.receipt, version);
        return null;
      case "lease_lost":
        this.#mustBeNewest(entry.grantId, "lease_lost", version);
        return { state: entry.retryAtMs === null ? "needs_reconciliation" : "queued" };
      case "exhausted":
        return { state: "failed", code: entry.error.code };
      case "timed_out":
        if (before === "running" && this.grants.at(-1)?.repeatable === false) return { state: "needs_reconciliation" };
        return { state: "timed_out", code: entry.error.code };
      case "cancelled":
        return { state: "cancelled", code: entry.error.code };
      case "reconcile_granted":
        return this.#asked(entry, entryId, version, before);
      case "reconcile_unanswered":
        this.#mustBeAsked(entry.grantId, "reconcile_unanswered", version);
        this.#question = null;
        return null;
      case "reconciled":
        if (entry.askId !== undefined) this.#mustBeAsked(entry.askId, "reconciled", version);
        this.#question = null;
        return this.#reconciled(entry, version, before);
      case "cancel_requested":
        this.#cancelAsked = true;
        return null;
      case "updated":
        return null;
      case "adopted":
        this.takeOvers += 1;
        return null;
      case "waiting":
      case "cancel_answered":
        return null;
      default:
        return newKind(entry);
    }
  }

  /** A reconcile handler is asked about the newest grant; what ran until then is lost. */
  #asked(entry: Of<"reconcile_granted">, entryId: string, version: number, before: CallState | null): Outcome | null {
    this.#mustBeNewest(entry.startedGrantId, "reconcile_granted", version);
    if (before !== "running" && before !== "needs_reconciliation") {
      this.#fault("order_of_entries", `reconcile_granted at ${version} while ${before}`);
    }
    this.#question = entryId;
    return before === "needs_reconciliation" ? null : { state: "needs_reconciliation" };
  }

  /** Only the answer to the question that is open counts. */
  #mustBeAsked(askId: string, kind: string, version: number): void {
    if (this.#question !== askId) this.#fault("order_of_entries", `${kind} at ${version} is of ${askId}, asked is ${this.#question}`);
  }

  #granted(facts: GrantFacts, grantId: string, version: number, before: CallState | null): Outcome {
    const last = this.grants.at(-1);
    if (before !== "queued") {
      const kind = before === "running" ? "two_live_grants" : "order_of_entries";
      this.#fault(kind, `granted at ${version} while ${before}${last === undefined ? "" : `, the last grant being ${last.fence}`}`);
    }
    const counted = this.grants.length - this.#returned + 1;
    if (facts.attempt !== counted) this.#fault("attempt_order", `attempt ${facts.attempt} at ${version} is the ${counted}. that counts`);
    const most = this.#accepted?.request.maxAttempts ?? 0;
    if (counted > most) this.#fault("attempts_exceeded", `attempt ${counted} of ${most} at ${version}`);
    if (last !== undefined && !last.repeatable && last.returned === null && !this.notApplied.some((each) => each.version > last.fence)) {
      this.#fault("repeat_unsafe", `fence ${last.fence} was granted again at ${version}`);
    }
    const { holder } = facts;
    const toolSafe = this.#accepted?.request.readOnly === true || this.#accepted?.request.idempotent === true;
    this.grants.push({
      grantId,
      fence: version,
      attempt: facts.attempt,
      repeatable: toolSafe && (holder.handlerReadOnly || holder.handlerIdempotent),
      runnerId: holder.runnerId,
      returned: null,
    });
    this.#begun = false;
    this.#cancelAsked = false;
    return { state: "running" };
  }

  #cameBack(entry: Of<"returned">, version: number): Outcome {
    this.#mustBeNewest(entry.grantId, "returned", version);
    const grant = this.grants.at(-1);
    if (entry.reason === "forbidden") return { state: "denied", code: "forbidden" };
    if (grant?.repeatable !== true && this.#begun) return { state: "needs_reconciliation" };
    if (grant !== undefined) grant.returned = entry.reason;
    this.#returned += 1;
    return this.#cancelAsked ? { state: "cancelled", code: "call_cancelled" } : { state: "queued" };
  }

  #receipt(entry: Of<"receipt">, version: number): Outcome {
    const { receipt } = entry;
    this.#keep(receipt, version);
    if (receipt.grantId !== this.grants.at(-1)?.grantId) {
      this.#fault(
        "stale_settled",
        `the receipt of fence ${receipt.fence} took effect at ${version}, the newest is ${this.grants.at(-1)?.fence}`,
      );
    }
    if (entry.retryAtMs !== null) return { state: "queued" };
    const value = receipt.value === null ? null : receipt.value.kind === "blob" ? "blob" : valueDigest(receipt.value.json);
    if (receipt.outcome === "succeeded" && entry.fault !== null) return { state: "failed", value, code: entry.fault.code };
    return { state: receipt.outcome, value, code: receipt.error?.code ?? CODE_WITHOUT_ERROR[receipt.outcome], fence: receipt.fence };
  }

  #reconciled(entry: Of<"reconciled">, version: number, before: CallState | null): Outcome {
    this.reconciliations += 1;
    if (before !== "needs_reconciliation") this.#fault("order_of_entries", `reconciled at ${version} while ${before}`);
    if (entry.outcome === "not_applied") this.notApplied.push({ version, atMs: entry.at });
    if (entry.error !== null) return { state: "failed", code: entry.error.code };
    if (entry.cancelled === true) return { state: "cancelled", code: "call_cancelled" };
    if (entry.outcome === "not_applied") return { state: "queued" };
    return { state: "succeeded", value: entry.value?.kind === "inline" ? valueDigest(entry.value.json) : "blob" };
  }

  #keep(receipt: Of<"receipt">["receipt"], version: number): void {
    this.receipts.push({ grantId: receipt.grantId, fence: receipt.fence, digest: receipt.digest, version });
  }

  #mustBeNewest(grantId: string, what: string, version: number): void {
    if (grantId !== this.grants.at(-1)?.grantId)
      this.#fault("order_of_entries", `${what} at ${version} is about a grant that is not the newest`);
  }

  #fault(kind: ViolationKind, what: string): void {
    this.faults.push({ kind, call: this.call, what });
  }
}

function newKind(entry: never): never {
  throw new Error(`the checker does not know entries of kind ${(entry as CallEntry).kind}: say in ledger-story.ts what they do`);
}
