/**
 * Keeps a journal to one process, with files alone: no lock of the platform outlives what it protects, and none is needed.
 *
 * The lock is the highest of the files `NAME.lock.N`. Taking it means making the next number, which `link` does for one process
 * only, with its content in place. Invariants:
 * - the highest number never goes down: it is removed only after a higher one exists, also when the lock is given back (the
 *   next number then says "released"); so a slow process that saw an old one cannot take what was taken since;
 * - a holder that is dead, or cannot be seen from here and gave no sign for a minute, is replaced; one that lives is not.
 */
import { randomBytes } from "node:crypto";
import { link, readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { JournalError } from "../core/errors.js";
import { livenessOf, ownIdentity, type ProcessIdentity } from "./process-identity.js";

const SIGN_INTERVAL_MS = 10_000;
const SIGN_MISSING_MS = 60_000;
const ROUNDS_MAX = 100;

/** A lock that this process holds. */
export interface JournalLock {
  /** Set when a sign of life found that another process had taken it. */
  readonly lost: boolean;
  /** Whether this process still holds it: false when another one took it for dead. */
  held(): Promise<boolean>;
  /** Gives it back. Idempotent. */
  release(): Promise<void>;
}

type LockContent = { readonly released: true } | { readonly released: false; readonly holder: ProcessIdentity };

/**
 * Takes the lock beside the journal at `path`. `beforeMake` is called between looking and taking: a place for tests to be slow.
 * @throws JournalError `journal_in_use` naming the holder.
 */
export async function takeJournalLock(path: string, beforeMake?: () => Promise<void>): Promise<JournalLock> {
  const files = lockFiles(path);
  const own = ownIdentity();
  await files.removeOldDrafts();
  for (let round = 0; round < ROUNDS_MAX; round++) {
    const highest = (await files.numbers()).at(-1) ?? 0;
    if (highest > 0) await refuseIfHeld(path, files.name(highest), own);
    const mine = highest + 1;
    await beforeMake?.();
    if (!(await files.make(mine, { released: false, holder: own }))) continue;
    const later = await files.numbers();
    if (later.at(-1) !== mine) {
      // Others went past this number while it was gone: it is not the lock.
      await files.remove(mine);
      continue;
    }
    await Promise.all(later.filter((number) => number < mine).map(files.remove));
    return holding(files, mine);
  }
  throw new JournalError("journal_in_use", `the lock of the journal ${path} changes hands all the time: give each process its own journal`);
}

function holding(files: ReturnType<typeof lockFiles>, mine: number): JournalLock {
  let lost = false;
  let releasing: Promise<void> | null = null;
  const held = async () => {
    if ((await files.numbers()).at(-1) !== mine) lost = true;
    return !lost;
  };
  const sign = setInterval(() => {
    const now = new Date();
    // A folder that cannot be reached now says nothing about the lock.
    void held()
      .then((mineStill) => (mineStill ? utimes(files.name(mine), now, now) : undefined))
      .catch(() => undefined);
  }, SIGN_INTERVAL_MS);
  sign.unref();
  return {
    get lost() {
      return lost;
    },
    held,
    release() {
      releasing ??= (async () => {
        clearInterval(sign);
        if (!(await held())) return;
        await files.make(mine + 1, { released: true });
        await files.remove(mine);
      })();
      return releasing;
    },
  };
}

async function refuseIfHeld(path: string, file: string, own: ProcessIdentity): Promise<void> {
  let content: LockContent | null;
  let signedAt: number;
  try {
    content = readContent(await readFile(file, "utf8"));
    signedAt = (await stat(file)).mtimeMs;
  } catch {
    // Removed meanwhile: a higher one exists, the next round sees it.
    return;
  }
  if (content?.released === true) return;
  const liveness = content === null ? "unknown" : livenessOf(content.holder, own);
  if (liveness === "dead" || (liveness === "unknown" && Date.now() - signedAt > SIGN_MISSING_MS)) return;
  const who =
    content === null
      ? "a process that cannot be named"
      : content.holder.pid === own.pid && liveness === "alive"
        ? `this process (pid ${own.pid})`
        : `process ${content.holder.pid}${content.holder.host === own.host ? "" : ` on ${content.holder.host}`}`;
  const wait = liveness === "unknown" ? `, or wait ${SIGN_MISSING_MS / 1_000} s if it is gone` : "";
  throw new JournalError(
    "journal_in_use",
    `the journal ${path} is used by ${who}: give each runner its own journal, or end that process first${wait}`,
  );
}

function readContent(text: string): LockContent | null {
  try {
    const content: unknown = JSON.parse(text);
    if (typeof content !== "object" || content === null || !("released" in content)) return null;
    if (content.released === true) return { released: true };
    const holder = "holder" in content ? (content.holder as Partial<ProcessIdentity> | null) : null;
    if (typeof holder?.pid !== "number" || typeof holder.host !== "string") return null;
    const { pid, host, started = null, boot = null, namespace = null } = holder;
    return { released: false, holder: { pid, host, started, boot, namespace } };
  } catch {
    return null;
  }
}

function lockFiles(path: string) {
  const folder = dirname(path);
  const prefix = `${basename(path)}.lock.`;
  const name = (number: number) => join(folder, `${prefix}${number}`);
  return {
    name,
    /** Numbers that exist, rising. */
    async numbers(): Promise<number[]> {
      const found = (await readdir(folder)).filter((file) => file.startsWith(prefix)).map((file) => file.slice(prefix.length));
      return found
        .filter((rest) => /^[1-9][0-9]{0,14}$/.test(rest))
        .map(Number)
        .sort((a, b) => a - b);
    },
    /** False when another process made this number. */
    async make(number: number, content: LockContent): Promise<boolean> {
      const draft = join(folder, `${prefix}draft-${randomBytes(8).toString("hex")}`);
      await writeFile(draft, `${JSON.stringify(content)}\n`, { flag: "wx", mode: 0o600 });
      try {
        await link(draft, name(number));
        return true;
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code === "EEXIST") return false;
        throw error;
      } finally {
        await rm(draft, { force: true });
      }
    },
    remove: (number: number) => rm(name(number), { force: true }),
    /** What a process left that ended in the middle of {@link make}. */
    async removeOldDrafts(): Promise<void> {
      for (const file of await readdir(folder)) {
        if (!file.startsWith(`${prefix}draft-`)) continue;
        const draft = join(folder, file);
        const found = await stat(draft).catch(() => null);
        if (found !== null && Date.now() - found.mtimeMs > SIGN_MISSING_MS) await rm(draft, { force: true });
      }
    },
  };
}
