/** A journal that goes with the process. */
import { JournalError } from "./errors.js";
import { randomId } from "./ids.js";
import type { Journal, JournalRecord } from "./journal.js";
import { JournalPicture } from "./journal-picture.js";

/**
 * A journal in memory: a restart loses results that were not yet acknowledged and makes the outcome of what ran unknown.
 * For tests, and for places without storage. Can be opened once at a time; what it holds stays for the next opening.
 */
export function memoryJournal(): Journal {
  const journalId = randomId("jrn");
  let picture: JournalPicture | null = null;
  let open = false;
  return {
    kind: "memory",
    durable: false,
    async open({ clock }) {
      if (open) throw new JournalError("journal_in_use", "this memory journal is used by another runner: give each runner its own");
      open = true;
      picture = picture === null ? new JournalPicture(clock) : picture.reopened(clock);
      const current = picture;
      const append = (record: JournalRecord): Promise<void> => {
        if (!open) return Promise.reject(new JournalError("journal_closed", "the journal was closed"));
        current.apply(record);
        return Promise.resolve();
      };
      return {
        journalId,
        view: current,
        append,
        note: (record) => void append(record).catch(() => undefined),
        close: async () => {
          open = false;
        },
      };
    },
  };
}
