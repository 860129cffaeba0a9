/** The journal of a simulated runner: what outlives its processes. */
import type { GrantPhase, HeldGrant, Receipt } from "@toolrunner/proto";
import type { SimProcess } from "./world.test.kit.js";

export const NOT_STARTED: GrantPhase = 1;
export const RUNNING: GrantPhase = 2;
export const OUTCOME_UNKNOWN: GrantPhase = 3;
export const FINISHED: GrantPhase = 4;

export interface GrantName {
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
}

export interface JournalEntry extends GrantName {
  phase: "granted" | "started" | "finished";
  refused: boolean;
  acknowledged: boolean;
  receipt: Receipt | undefined;
  /** The broker asked what became of it, and was told that nobody knows. */
  toldUnknown: boolean;
  /** The same, said in a report or an answer. */
  saidUnknown: boolean;
  /** The process in which the handler began. */
  startedBy: SimProcess | undefined;
}

/** A grant that was just taken. */
export function freshEntry({ callId, grantId, fence }: GrantName): JournalEntry {
  return {
    callId,
    grantId,
    fence,
    phase: "granted",
    refused: false,
    acknowledged: false,
    receipt: undefined,
    toldUnknown: false,
    saidUnknown: false,
    startedBy: undefined,
  };
}

export class SimJournal {
  private readonly entries = new Map<string, JournalEntry>();

  get(grantId: string): JournalEntry | undefined {
    return this.entries.get(grantId);
  }

  set(grantId: string, entry: JournalEntry): void {
    this.entries.set(grantId, entry);
  }

  values(): IterableIterator<JournalEntry> {
    return this.entries.values();
  }

  /** Receipts that no broker acknowledged, and starts whose end nobody asked about. */
  get owed(): number {
    return [...this.entries.values()].filter((entry) => entry.phase !== "granted" && !entry.acknowledged && !entry.toldUnknown).length;
  }

  /** What is held besides the grants that are `live` in `process`. */
  reports(process: SimProcess, live: ReadonlyMap<string, unknown>, inHello: boolean): HeldGrant[] {
    const reports: HeldGrant[] = [];
    for (const entry of this.entries.values()) {
      if (entry.acknowledged || live.has(entry.grantId)) {
        continue;
      }
      const { callId, grantId, fence } = entry;
      const phase = phaseOf(entry, process);
      if (phase === OUTCOME_UNKNOWN && entry.toldUnknown && !inHello) {
        continue;
      }
      entry.saidUnknown ||= phase === OUTCOME_UNKNOWN;
      if (phase !== NOT_STARTED || (inHello && entry.refused)) {
        reports.push({ callId, grantId, fence, phase });
      }
    }
    return reports;
  }

  /** G1: the grant is refused, whether or not it ever came. */
  refuse({ callId, grantId, fence }: GrantName): void {
    const entry = this.entries.get(grantId);
    if (entry !== undefined) {
      entry.refused = true;
      return;
    }
    this.entries.set(grantId, { ...freshEntry({ callId, grantId, fence }), refused: true });
  }

  finish(receipt: Receipt): void {
    const { callId, grantId, fence } = receipt;
    const entry = this.entries.get(grantId);
    this.entries.set(grantId, {
      callId,
      grantId,
      fence,
      refused: entry?.refused ?? false,
      startedBy: entry?.startedBy,
      phase: "finished",
      acknowledged: false,
      toldUnknown: false,
      saidUnknown: entry?.saidUnknown ?? false,
      receipt,
    });
  }

  /** The newest fence of the call that was refused; -1: none. */
  refusedFence(callId: string): number {
    let newest = -1;
    for (const entry of this.entries.values()) {
      if (entry.callId === callId && entry.refused) {
        newest = Math.max(newest, entry.fence);
      }
    }
    return newest;
  }

  /** Nobody will ask any more what became of a grant without a receipt; false: nobody was told of such a one. */
  forget(grantId: string, process: SimProcess): boolean {
    const entry = this.entries.get(grantId);
    // The record of its end may have come after the word that it is unknown: then it is a receipt, which is owed.
    if (entry !== undefined && [OUTCOME_UNKNOWN, NOT_STARTED].includes(phaseOf(entry, process))) {
      entry.acknowledged = true;
      return true;
    }
    return entry?.saidUnknown ?? false;
  }

  /** The broker knows all about it. */
  mark(grantId: string): void {
    const entry = this.entries.get(grantId);
    if (entry !== undefined) {
      entry.acknowledged = true;
    }
  }
}

/** What the journal says of a grant to who asks in `process`. */
export function phaseOf(entry: JournalEntry, process: SimProcess): GrantPhase {
  if (entry.phase === "finished") {
    return FINISHED;
  }
  if (entry.phase === "granted") {
    return NOT_STARTED;
  }
  return entry.startedBy === process ? RUNNING : OUTCOME_UNKNOWN;
}
