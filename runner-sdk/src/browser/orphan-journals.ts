/**
 * Finds journals whose tabs are gone, and takes them over for this one.
 *
 * Invariants (R5, G1):
 * - one page of an owner looks after orphans at a time; the next one does when it is gone;
 * - a journal counts as an orphan when its lock was free for a while: a tab that is reloaded takes its own again;
 * - nothing of it is read or written before its lock is held, and whoever holds it may speak for it.
 */
import { type Clock, pause } from "../core/clock.js";
import { messageOf } from "../core/errors.js";
import type { OrphanJournal } from "../core/journal.js";
import type { EventLog } from "../core/log.js";
import type { HeldSlot } from "./journal-slots.js";
import { StoredJournal } from "./stored-journal.js";
import { takeLock } from "./web-lock.js";

/** How long a page that is being reloaded may take to come back to its journal. */
const RELOAD_MS = 3_000;

/** Longer than any lease that a broker is likely to be set to. */
const ASKED_WITHIN_MS = 300_000;

export interface OrphanSearch {
  readonly locks: LockManager;
  /** What the names of the owner's journals begin with. */
  readonly prefix: string;
  readonly clock: Clock;
  readonly log: EventLog | undefined;
  readonly signal: AbortSignal;
}

/** Tells whoever looks after orphans of this owner of a journal that is held now, and will be one. */
export function announceJournal(prefix: string, name: string): void {
  try {
    const channel = new BroadcastChannel(prefix);
    channel.postMessage(name);
    channel.close();
  } catch {
    // It is found by its name later, when the list of databases is read.
  }
}

/** Orphans as they become known, until the signal aborts. Each is held and open, and the caller's to give back. */
export async function* findOrphans(search: OrphanSearch): AsyncGenerator<OrphanJournal> {
  const { locks, prefix, signal } = search;
  const office = await takeLock(locks, `${prefix}adopter`, { signal });
  if (office === null) return;
  const found: HeldSlot[] = [];
  let wake: () => void = () => {};
  const known = new Set<string>();
  const watch = (name: unknown) => {
    if (typeof name !== "string" || !name.startsWith(prefix) || known.has(name)) return;
    known.add(name);
    waitForOrphan(search, name)
      .then((orphan) => {
        if (orphan === null) return;
        if (signal.aborted) return orphan.lock.release();
        found.push(orphan);
        wake();
      })
      .catch((error: unknown) => search.log?.warn("orphan_not_opened", { message: messageOf(error) }));
  };
  const stopListening = listen(prefix, watch);
  const end = () => {
    stopListening();
    office.release();
    for (const { lock } of found.splice(0)) lock.release();
    wake();
  };
  signal.addEventListener("abort", end);
  try {
    for (const name of await databaseNames()) watch(name);
    while (!signal.aborted) {
      const next = found.shift();
      if (next === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        continue;
      }
      const orphan = await openOrphan(search, next);
      if (orphan !== null) yield orphan;
    }
  } finally {
    signal.removeEventListener("abort", end);
    end();
  }
}

async function waitForOrphan({ locks, clock, signal }: OrphanSearch, name: string): Promise<HeldSlot | null> {
  while (!signal.aborted) {
    const free = await takeLock(locks, name, { signal });
    if (free === null) return null;
    free.release();
    await pause(clock, RELOAD_MS, signal);
    if (signal.aborted) return null;
    const lock = await takeLock(locks, name, { waitMs: 0 });
    if (lock !== null) return { name, lock };
  }
  return null;
}

async function openOrphan({ clock, log, signal }: OrphanSearch, slot: HeldSlot): Promise<OrphanJournal | null> {
  let journal: StoredJournal;
  try {
    journal = await StoredJournal.open(slot, { clock, log, runnerId: "" });
  } catch (error) {
    // Of a newer SDK, or not to be read: the next page may fare better.
    slot.lock.release();
    log?.warn("orphan_not_opened", { message: messageOf(error) });
    return null;
  }
  if (signal.aborted) {
    await journal.close();
    return null;
  }
  const { runnerId, leftAt } = journal;
  const mayBeAsked = leftAt === null || clock.now() - leftAt < ASKED_WITHIN_MS;
  return { runnerId, journal, mayBeAsked, destroy: () => journal.destroy() };
}

function listen(prefix: string, heard: (name: unknown) => void): () => void {
  try {
    const channel = new BroadcastChannel(prefix);
    channel.onmessage = ({ data }: MessageEvent<unknown>) => heard(data);
    return () => channel.close();
  } catch {
    return () => {};
  }
}

/** Absent in some browsers: what was there before this page is found by the tab that it belongs to alone. */
async function databaseNames(): Promise<readonly string[]> {
  if (typeof indexedDB.databases !== "function") return [];
  try {
    return (await indexedDB.databases()).flatMap(({ name }) => name ?? []);
  } catch {
    return [];
  }
}
