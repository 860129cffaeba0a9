/**
 * Where a page's journals are: each in a database of its own, whose name says whose it is, and each under a Web Lock of that name.
 *
 * Invariants (R5): a journal belongs to whoever holds its lock, and to nobody else; a tab that reloads finds its own again, by what
 * `sessionStorage` keeps for it; a duplicated tab, which begins with a copy of that, finds the lock taken and makes another.
 */
import { randomId } from "../core/ids.js";
import type { JournalOwner } from "../core/journal.js";
import { type HeldLock, takeLock } from "./web-lock.js";

/** How long the page before, which is on its way out, may take to give a journal back. */
const HAND_OVER_MS = 500;
/** Runners of one page and owner whose journals are found again. */
const REMEMBERED_MAX = 8;
const SLOT = /^[a-z2-7_]{1,64}$/;

/** A journal's database, and the lock under which it is used. */
export interface HeldSlot {
  /** Of the database and of the lock. */
  readonly name: string;
  readonly lock: HeldLock;
}

/** What the names of all journals of one owner begin with. `runnerId` does not count: it is the tab's. */
export function slotPrefix(name: string, { broker, binding, subject }: JournalOwner): string {
  return `toolrunner journal ${JSON.stringify([name, broker, binding, subject])} `;
}

/** Takes a journal for this page: one that it had before, else a new one. Rejects where the page may have no locks. */
export async function takeOwnSlot(locks: LockManager, prefix: string): Promise<HeldSlot> {
  const storage = tabStorage();
  const remembered = readSlots(storage, prefix);
  for (const waitMs of [0, HAND_OVER_MS]) {
    for (const slot of remembered) {
      const lock = await takeLock(locks, prefix + slot, { waitMs });
      if (lock !== null) return { name: prefix + slot, lock };
    }
  }
  const slot = randomId("slot");
  const lock = await takeLock(locks, prefix + slot, { waitMs: HAND_OVER_MS });
  if (lock === null) throw new Error("a lock that nobody else can know was not given");
  // Read again: another runner of this page may have made one meanwhile.
  rememberSlots(storage, prefix, [...readSlots(storage, prefix), slot].slice(-REMEMBERED_MAX));
  return { name: prefix + slot, lock };
}

function tabStorage(): Storage | null {
  try {
    return sessionStorage;
  } catch {
    // A sandboxed page and a worker have none.
    return null;
  }
}

function readSlots(storage: Storage | null, prefix: string): readonly string[] {
  try {
    const stored: unknown = JSON.parse(storage?.getItem(prefix) ?? "[]");
    if (!Array.isArray(stored)) return [];
    return stored.filter((slot): slot is string => typeof slot === "string" && SLOT.test(slot)).slice(0, REMEMBERED_MAX);
  } catch {
    return [];
  }
}

function rememberSlots(storage: Storage | null, prefix: string, slots: readonly string[]): void {
  try {
    storage?.setItem(prefix, JSON.stringify(slots));
  } catch {
    // Full, or forbidden: the next load takes a new journal, and this one is an orphan then.
  }
}
