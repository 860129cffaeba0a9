/**
 * A runner id for each tab, kept over reloads.
 *
 * The id is in `sessionStorage`, which belongs to the tab; a duplicated tab gets a copy of it, so an id counts only while a lock of
 * its name is held. Invariants (R5):
 * - of two tabs with the same stored id one holds it, and the other takes a new one and stores that;
 * - a tab that reloads gets its own id again: the page before it gives the lock back while it is left;
 * - where there is neither storage nor a way to ask other tabs, the id is new with each load, and so nobody else's.
 */
import { randomId } from "../core/ids.js";
import { takeLock, webLocks } from "./web-lock.js";

const PREFIX = "toolrunner:runner:";
/** How long the page before, which is on its way out, may take to give an id back. */
const HAND_OVER_MS = 500;
/** How long other tabs may take to say that an id is theirs, where there are no locks. */
const OBJECTION_MS = 250;
const FORM = /^tab_[a-z2-7]{26}$/;

/** An id that this page holds. */
export interface TabId {
  readonly current: string;
  /** Lets others take it while the page is away. */
  pause(): void;
  /** Takes it again, or a new one when somebody else did. */
  resume(): Promise<void>;
  /** Gives it back for good. */
  release(): void;
}

/** Storage keys that runners of this realm use, so that two of them on one binding do not share an id. */
const keysInUse = new WeakMap<Storage, Set<string>>();

/** Holds the tab's id for a binding. Never rejects. */
export async function holdTabId(binding: string): Promise<TabId> {
  const storage = tabStorage();
  const inUse = storage === null ? new Set<string>() : (keysInUse.get(storage) ?? new Set());
  if (storage !== null) keysInUse.set(storage, inUse);
  let key = `${PREFIX}${binding}`;
  for (let number = 2; inUse.has(key); number += 1) key = `${PREFIX}${binding}:${number}`;
  inUse.add(key);
  const id = new HeldTabId(storage, key);
  await id.resume();
  return {
    get current() {
      return id.current;
    },
    pause: () => id.pause(),
    resume: () => id.resume(),
    release: () => {
      id.release();
      inUse.delete(key);
    },
  };
}

/** Takes the id of a tab that is gone; null when it is somebody's, or none of a tab, or there are no locks to tell. Never rejects. */
export async function borrowTabId(id: string): Promise<(() => void) | null> {
  const locks = webLocks();
  if (locks === null || !FORM.test(id)) return null;
  const lock = await takeLock(locks, `${PREFIX}${id}`, { waitMs: 0 }).catch(() => null);
  return lock === null ? null : () => lock.release();
}

class HeldTabId implements TabId {
  current = "";
  #giveBack: (() => void) | null = null;
  #released = false;

  constructor(
    private readonly storage: Storage | null,
    private readonly key: string,
  ) {}

  pause(): void {
    this.#giveBack?.();
    this.#giveBack = null;
  }

  async resume(): Promise<void> {
    const stored = this.current === "" ? this.#read() : this.current;
    const giveBack = stored === null ? null : await takeId(stored);
    this.current = giveBack === null || stored === null ? randomId("tab") : stored;
    this.#giveBack = giveBack ?? (await takeId(this.current));
    if (this.#released) return this.pause();
    try {
      this.storage?.setItem(this.key, this.current);
    } catch {
      // Full, or forbidden: the next load takes a new id.
    }
  }

  release(): void {
    this.#released = true;
    this.pause();
  }

  #read(): string | null {
    try {
      const stored = this.storage?.getItem(this.key) ?? null;
      return stored !== null && FORM.test(stored) ? stored : null;
    } catch {
      return null;
    }
  }
}

function tabStorage(): Storage | null {
  try {
    return sessionStorage;
  } catch {
    // A sandboxed page has none.
    return null;
  }
}

/** Takes an id for this page. The answer gives it back; null when another page has it. */
async function takeId(id: string): Promise<(() => void) | null> {
  // Absent where the page did not come over https or from this machine.
  const locks = webLocks();
  return locks === null ? askForId(id) : lockId(locks, id);
}

async function lockId(locks: LockManager, id: string): Promise<(() => void) | null> {
  try {
    const lock = await takeLock(locks, `${PREFIX}${id}`, { waitMs: HAND_OVER_MS });
    return lock === null ? null : () => lock.release();
  } catch {
    // There are no locks here: nobody can object.
    return () => {};
  }
}

/** Asks the other tabs of this origin; one that has the id, or asks for it at the same time, objects. */
function askForId(id: string): Promise<(() => void) | null> {
  let channel: BroadcastChannel;
  try {
    channel = new BroadcastChannel(`${PREFIX}ids`);
  } catch {
    return Promise.resolve(() => {});
  }
  return new Promise((resolve) => {
    let isHeld = false;
    const timer = setTimeout(() => {
      isHeld = true;
      resolve(() => channel.close());
    }, OBJECTION_MS);
    channel.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
      if (data === `asked ${id}`) channel.postMessage(`held ${id}`);
      else if (data === `held ${id}` && !isHeld) {
        clearTimeout(timer);
        channel.close();
        resolve(null);
      }
    });
    channel.postMessage(`asked ${id}`);
  });
}
