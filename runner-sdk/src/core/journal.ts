/**
 * The runner's journal: what it was granted, started, finished and had acknowledged, kept across crashes.
 *
 * Owns the port; `journal-picture.ts` is the picture that every implementation keeps of its records.
 * Invariants:
 * - J1 `started` is durable before the handler's first line, `finished` before the receipt is first sent (I7).
 * - J2 A record shows in the picture when it is durable; a note shows at once and may be lost with the process, which at
 *   worst makes the runner report or send something again.
 * - J3 What is not acknowledged is never dropped for lack of room. Acknowledged records go after 24 h, or before when they are many.
 */
import type { Clock } from "./clock.js";
import type { EventLog } from "./log.js";
import type { GrantName, Receipt } from "./messages.js";

/** One thing that happened to a grant. Times are Unix milliseconds. */
export type JournalRecord =
  | ({
      readonly kind: "granted";
      readonly attempt: number;
      readonly tool: string;
      readonly version: string;
      readonly at: number;
    } & GrantName)
  | { readonly kind: "started"; readonly grantId: string; readonly at: number }
  | { readonly kind: "finished"; readonly receipt: Receipt; readonly at: number }
  /** `neverStarted`: the handler's first line was not reached and will not be. Otherwise the grant runs on, but no grant of this fence or an older one is taken. */
  | ({ readonly kind: "refused"; readonly neverStarted: boolean; readonly at: number } & GrantName)
  /** The broker knows what the newest record says. */
  | { readonly kind: "acknowledged"; readonly grantId: string; readonly at: number };

/** What the journal knows about one grant. */
export interface JournalEntry extends GrantName {
  readonly attempt: number;
  readonly tool: string;
  readonly version: string;
  readonly phase: "granted" | "started" | "finished";
  /** No grant of this call with this fence or an older one is taken. */
  readonly refused: boolean;
  /** The start was written by this process. */
  readonly startedHere: boolean;
  readonly startedAt: number;
  /** The newest receipt; null before the handler ended. */
  readonly receipt: Receipt | null;
  readonly acknowledged: boolean;
  /** When the newest record was made. */
  readonly at: number;
}

/** Reading side of a journal: what is durable, and what was noted. */
export interface JournalView {
  get(grantId: string): JournalEntry | undefined;
  /** Every grant of one call, oldest first. */
  ofCall(callId: string): readonly JournalEntry[];
  /** What the broker has not acknowledged, oldest first. */
  unacknowledged(): Iterable<JournalEntry>;
  /** The newest refused fence of a call; null when none. */
  refusedFence(callId: string): number | null;
  /** The newest fence of a grant that began and whose records were dropped: that one, or an older one, is not known says nothing. 0: none. */
  readonly forgottenFence: number;
}

/** A journal that this process holds. */
export interface OpenJournal {
  /** Names the journal: a report counts only from the one that took the grant (G1). */
  readonly journalId: string;
  readonly view: JournalView;
  /** Why its records do not outlive the process, although they are meant to; absent when they do. */
  readonly weakness?: string;
  /** Resolves when the record is durable. Rejects with a {@link JournalError}; the record may then be on disk or not, and may be appended again. */
  append(record: JournalRecord): Promise<void>;
  /** Writes without waiting: durable with the next append, or soon. */
  note(record: JournalRecord): void;
  /** Calls back with why it cannot be written when it finds that out by itself, and with null when it can again. */
  watch?(listener: (fault: string | null) => void): void;
  /** Writes what was noted and gives the journal back; both are under way when it returns. Idempotent. */
  close(): Promise<void>;
}

/** Whose journal it is: receipts of one are nothing to the broker, binding or subject of another. */
export interface JournalOwner {
  /** Address of the broker; "" where the transport has none. */
  readonly broker: string;
  readonly binding: string;
  /** "" on a backend. */
  readonly subject: string;
  /** The runner's id; "" when it is to be made from the journal. */
  readonly runnerId: string;
}

/** What a journal is opened with. */
export interface JournalOpening {
  readonly clock: Clock;
  /** Of no account to a journal that is one runner's by its making, as a file is. */
  readonly owner?: JournalOwner;
  readonly log?: EventLog;
}

/** A journal whose runner is gone, and that this process holds now. */
export interface OrphanJournal {
  /** Of the runner that is gone; "" when unknown. */
  readonly runnerId: string;
  readonly journal: OpenJournal;
  /** False: it was given back so long ago that no grant can be left which was sent to its runner and never read. */
  readonly mayBeAsked: boolean;
  /** Deletes it with all that it holds. */
  destroy(): Promise<void>;
}

/** A place where a journal is kept. */
export interface Journal {
  /** For logs: "memory", "file", … */
  readonly kind: string;
  /** Whether its records outlive the process. */
  readonly durable: boolean;
  /** Takes the journal for this process and reads it. @throws JournalError when another process has it or it cannot be read. */
  open(options: JournalOpening): Promise<OpenJournal>;
  /** Journals of the same owner whose runners are gone, as that becomes known, each open; until the signal aborts. Absent where there can be none. */
  orphans?(options: JournalOpening & { readonly signal: AbortSignal }): AsyncIterable<OrphanJournal>;
}
