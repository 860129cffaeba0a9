/**
 * The journal of pages and workers: in IndexedDB, one for each tab, guarded by a Web Lock.
 *
 * Invariants: nobody reads or writes a journal whose lock it does not hold (G2); where a browser has no IndexedDB for this page, or
 * no locks, the runner has a journal in memory and says why; a database of a newer SDK is left alone.
 */
import { JournalError } from "../core/errors.js";
import type { Journal, JournalOpening, JournalOwner, OpenJournal } from "../core/journal.js";
import type { EventLog } from "../core/log.js";
import { memoryJournal } from "../core/memory-journal.js";
import { type HeldSlot, slotPrefix, takeOwnSlot } from "./journal-slots.js";
import { isNewer, storeFault } from "./journal-store.js";
import { announceJournal, findOrphans } from "./orphan-journals.js";
import { StoredJournal } from "./stored-journal.js";
import { webLocks } from "./web-lock.js";

/** Databases of a newer SDK that are stepped over before it is said that there is none to be had. */
const NEWER_MAX = 8;
const NOBODY: JournalOwner = { broker: "", binding: "", subject: "", runnerId: "" };
/** How browsers say that this page may have no IndexedDB. */
const FORBIDDEN = new Set(["SecurityError", "InvalidStateError", "NotSupportedError"]);

/**
 * A journal in IndexedDB: what a page or worker has when it is given none. It protects results from a reload, a crash and the end of
 * the browser, as far as the browser keeps what it stored. Each tab has its own, and one for each broker, binding and subject; `name`
 * keeps apart what is more than that. Runners may share the object: each opening takes a journal of its own.
 *
 * On an insecure origin, and where a browser has no IndexedDB for the page, it is a journal in memory, and the log says so.
 */
export function indexedDbJournal(name = ""): Journal {
  const memory = new MemoryJournals();
  return {
    kind: "indexed_db",
    durable: true,
    async open(opening) {
      try {
        const locks = webLocks();
        if (locks === null) return await memory.open(opening, "this origin is not secure (https, or this machine), so it has no Web Locks");
        if (typeof indexedDB === "undefined") return await memory.open(opening, "this browser has no IndexedDB here");
        const journal = await openOwn(locks, name, opening);
        void askToPersist(opening.log);
        return journal;
      } catch (error) {
        if (error instanceof DOMException && FORBIDDEN.has(error.name)) {
          return memory.open(opening, `this browser lets the page keep nothing (${error.name}), as in some private modes`);
        }
        throw storeFault(error);
      }
    },
    async *orphans({ clock, log, owner = NOBODY, signal }) {
      const locks = webLocks();
      if (locks === null || typeof indexedDB === "undefined") return;
      yield* findOrphans({ locks, prefix: slotPrefix(name, owner), clock, log, signal });
    },
  };
}

/** Journals in memory, for where there is nothing better. A runner that was away finds its own again. */
class MemoryJournals {
  readonly #idle = new Map<string, Journal[]>();

  async open(opening: JournalOpening, weakness: string): Promise<OpenJournal> {
    const key = slotPrefix("", opening.owner ?? NOBODY);
    const idle = this.#idle.get(key) ?? [];
    this.#idle.set(key, idle);
    const journal = idle.pop() ?? memoryJournal();
    const opened = await journal.open(opening);
    let isClosed = false;
    return {
      ...opened,
      weakness,
      async close() {
        if (isClosed) return;
        isClosed = true;
        // Under way when this first waits: the page may come back at once.
        const closing = opened.close();
        idle.push(journal);
        await closing;
      },
    };
  }
}

async function openOwn(locks: LockManager, name: string, { clock, log, owner = NOBODY }: JournalOpening): Promise<OpenJournal> {
  const prefix = slotPrefix(name, owner);
  const newer: HeldSlot[] = [];
  try {
    while (newer.length < NEWER_MAX) {
      const slot = await takeOwnSlot(locks, prefix);
      try {
        const journal = await StoredJournal.open(slot, { clock, log, runnerId: owner.runnerId });
        announceJournal(prefix, slot.name);
        return journal;
      } catch (error) {
        if (!isNewer(error)) {
          slot.lock.release();
          throw error;
        }
        // Held until another was found, so that it is not taken again.
        newer.push(slot);
        log?.warn("journal_of_newer_sdk", {
          message: "a journal of this tab is from a newer SDK: it is left alone, and another one is used",
        });
      }
    }
  } finally {
    for (const { lock } of newer) lock.release();
  }
  throw new JournalError("journal_unwritable", "the journals of this tab are from a newer SDK: load the page anew");
}

/** Asks that the browser does not clear what is stored when it needs room; a refusal is told. */
async function askToPersist(log: EventLog | undefined): Promise<void> {
  const refused = (message: string) => log?.warn("storage_not_persistent", { message });
  try {
    const storage = navigator.storage as StorageManager | undefined;
    if (storage === undefined) return refused("this browser cannot be asked to keep this origin's storage");
    if (await storage.persisted()) return;
    // A worker can only look.
    const asked = (storage.persist as (() => Promise<boolean>) | undefined) !== undefined && (await storage.persist());
    if (!asked) refused("the browser may clear this origin's storage when it needs room, and with it results that are not delivered");
  } catch {
    refused("the browser does not say whether it keeps this origin's storage");
  }
}
