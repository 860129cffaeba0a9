/**
 * Stands between the runner and its journal: notices when the journal cannot be written, keeps trying, notices when it can again.
 *
 * Invariants: while there is a fault the runner takes nothing new; a record that must not be lost is written as soon as the
 * journal takes it, and `appendUntilWritten` answers true only when it is durable.
 */
import { backOffMs } from "./back-off.js";
import { type Clock, pause } from "./clock.js";
import { JournalError, messageOf } from "./errors.js";
import type { JournalRecord, JournalView, OpenJournal } from "./journal.js";
import type { EventLog } from "./log.js";

const RETRY_DELAYS = { baseMs: 250, maxMs: 15_000, jitter: 0.5 };

/** The journal as the runner uses it. */
export interface JournalGate {
  readonly journalId: string;
  readonly view: JournalView;
  /** Why the journal cannot be written; null while it can. */
  readonly fault: string | null;
  /** Durable when it resolves; rejects when the journal cannot be written now. */
  append(record: JournalRecord): Promise<void>;
  /** True when the record is durable; false when the gate was closed before. */
  appendUntilWritten(record: JournalRecord): Promise<boolean>;
  note(record: JournalRecord): void;
  /** Gives the journal back while the place of its runner is put away: until `resume`, nothing is written. Under way when it returns. */
  suspend(): void;
  /** Takes a journal again, which may be another one than before. At once when none was given back. @throws JournalError */
  resume(): Promise<void>;
  /** Gives up what is still being tried, then closes the journal. */
  close(): Promise<void>;
}

/** Puts the gate before an open journal. `onFault` is told when a fault begins and, with null, when it ends. */
export function createJournalGate(
  first: OpenJournal,
  deps: {
    readonly clock: Clock;
    readonly random: () => number;
    readonly log: EventLog;
    readonly onFault: (fault: string | null) => void;
    /** Opens it anew after it was suspended. */
    readonly reopen: () => Promise<OpenJournal>;
  },
): JournalGate {
  const closing = new AbortController();
  let journal = first;
  /** Counts the suspensions: what is opened for an older one is not wanted any more. */
  let suspensions = 0;
  let isSuspended = false;
  let fault: string | null = null;
  let trying = 0;

  function setFault(next: string | null): void {
    if (fault === next) return;
    const changed = (fault === null) !== (next === null);
    fault = next;
    if (!changed) return;
    if (next === null) deps.log.info("journal_recovered");
    else deps.log.error("journal_unwritable", { message: next });
    deps.onFault(fault);
  }

  async function append(record: JournalRecord): Promise<void> {
    if (isSuspended) throw new JournalError("journal_closed", "the journal was given back while the page is away");
    const asked = journal;
    try {
      await asked.append(record);
    } catch (error) {
      if (!closing.signal.aborted && asked === journal && !isSuspended) setFault(messageOf(error));
      throw error;
    }
    // Others that are still being tried clear the fault when their turn comes.
    if (trying === 0) setFault(null);
  }

  function watch(watched: OpenJournal): void {
    watched.watch?.((found) => {
      if (closing.signal.aborted || watched !== journal || isSuspended) return;
      // What is still being tried clears the fault when it is written.
      if (found !== null || trying === 0) setFault(found);
    });
  }
  watch(journal);

  return {
    get journalId() {
      return journal.journalId;
    },
    get view() {
      return journal.view;
    },
    get fault() {
      return fault;
    },
    append,
    async appendUntilWritten(record) {
      trying++;
      try {
        for (let failures = 0; !closing.signal.aborted; ) {
          try {
            await append(record);
            return true;
          } catch {
            failures++;
            await pause(deps.clock, backOffMs(failures, deps.random, RETRY_DELAYS), closing.signal);
          }
        }
        return false;
      } finally {
        trying--;
        if (trying === 0 && !closing.signal.aborted) setFault(null);
      }
    },
    note(record) {
      if (!isSuspended) journal.note(record);
    },
    suspend() {
      suspensions++;
      if (isSuspended || closing.signal.aborted) return;
      isSuspended = true;
      journal.close().catch((error: unknown) => deps.log.error("journal_not_closed", { message: messageOf(error) }));
    },
    async resume() {
      if (!isSuspended) return;
      const wanted = suspensions;
      const opened = await deps.reopen();
      if (wanted !== suspensions || closing.signal.aborted) {
        await opened.close();
        throw new JournalError("journal_closed", "the page was left again");
      }
      journal = opened;
      isSuspended = false;
      if (trying === 0) setFault(null);
      watch(opened);
    },
    async close() {
      closing.abort();
      if (!isSuspended) await journal.close();
    },
  };
}
