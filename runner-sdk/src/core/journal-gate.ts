/**
 * Stands between the runner and its journal: notices when the journal cannot be written, keeps trying, notices when it can again.
 *
 * Invariants: while there is a fault the runner takes nothing new; a record that must not be lost is written as soon as the
 * journal takes it, and `appendUntilWritten` answers true only when it is durable.
 */
import { backOffMs } from "./back-off.js";
import { type Clock, pause } from "./clock.js";
import { messageOf } from "./errors.js";
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
  /** Gives up what is still being tried, then closes the journal. */
  close(): Promise<void>;
}

/** Puts the gate before an open journal. `onFault` is told when a fault begins and, with null, when it ends. */
export function createJournalGate(
  journal: OpenJournal,
  deps: { readonly clock: Clock; readonly random: () => number; readonly log: EventLog; readonly onFault: (fault: string | null) => void },
): JournalGate {
  const closing = new AbortController();
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
    try {
      await journal.append(record);
    } catch (error) {
      if (!closing.signal.aborted) setFault(messageOf(error));
      throw error;
    }
    // Others that are still being tried clear the fault when their turn comes.
    if (trying === 0) setFault(null);
  }

  journal.watch?.((found) => {
    if (closing.signal.aborted) return;
    // What is still being tried clears the fault when it is written.
    if (found !== null || trying === 0) setFault(found);
  });

  return {
    journalId: journal.journalId,
    view: journal.view,
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
    note: (record) => journal.note(record),
    async close() {
      closing.abort();
      await journal.close();
    },
  };
}
