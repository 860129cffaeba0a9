/** What an implementation hands to `describeLedger`, and the small tools of the suite. */
import { randomBytes } from "node:crypto";
import {
  type AppendOutcome,
  type IndexMark,
  type Ledger,
  LedgerError,
  type NewEntry,
  type TailedEntry,
  type Version,
} from "../../domain/ports/ledger.js";

/** A store that outlives the ledgers opened on it. Made once for a suite; tests share it and use call ids of their own. */
export interface LedgerHarness {
  /** Opens a ledger on the store, as a broker that starts does. */
  open(): Promise<Ledger>;
  /** Whether several ledgers may be open at once, as with many brokers. */
  readonly shared: boolean;
  /** Kills the store, or the process that owns it, with no warning while `ledger` is in use, and brings it back. Absent: not testable here. */
  crash?(): Promise<void>;
  /** Changes a stored blob behind the ledger's back. Absent: not testable here. */
  corruptBlob?(name: string): Promise<void>;
  dispose(): Promise<void>;
}

export type LedgerFactory = () => Promise<LedgerHarness>;

export interface DescribeLedgerOptions {
  /** Rounds of each race of twelve writers. Default 40; `TOOLRUNNER_LONG=1` makes it ten times as many. */
  readonly rounds?: number;
  /** Called beside some rounds of the races: a step-down, a kill. It need not wait for the writers. */
  readonly disturb?: (round: number) => Promise<void>;
  /** Limit of each test, milliseconds. Default 20,000; `TOOLRUNNER_LONG=1` makes it ten times as long. */
  readonly testTimeoutMs?: number;
}

/** Whether the long form of the suites was asked for with `TOOLRUNNER_LONG=1`. */
export function isLongRun(): boolean {
  return process.env.TOOLRUNNER_LONG === "1";
}

/** `prefix_` and 20 random characters of `[a-v0-9]`. */
export function freshId(prefix: string): string {
  let text = "";
  for (const byte of randomBytes(20)) text += (byte % 32).toString(32);
  return `${prefix}_${text}`;
}

/** An entry with a fresh id. */
export function entry(data: string, mark: IndexMark = "none"): NewEntry {
  return { entryId: freshId("ent"), data, mark };
}

/** The version of an entry that must be stored: `duplicate` says that of an append that was repeated while its store failed over (L2). */
export function versionOf(outcome: AppendOutcome): Version {
  if (outcome.kind === "conflict") throw new Error(`expected "appended", got ${JSON.stringify(outcome)}`);
  return outcome.version;
}

/** All that `source` yields. */
export async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of source) all.push(item);
  return all;
}

/** What `ledger` tails from `from` until `enough` says so. Fails after `timeoutMs` (default 15,000). */
export async function tailUntil(
  ledger: Ledger,
  from: Version,
  enough: (seen: readonly TailedEntry[]) => boolean,
  timeoutMs = 15_000,
): Promise<TailedEntry[]> {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), timeoutMs);
  const seen: TailedEntry[] = [];
  try {
    if (enough(seen)) return seen;
    for await (const stored of ledger.tail(from, abort.signal)) {
      seen.push(stored);
      if (enough(seen)) return seen;
    }
    throw new Error(`the tail from ${from} brought only ${seen.length} entries in ${timeoutMs} ms`);
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

/** Asks `holds` again and again until it says yes. Fails after `timeoutMs`, naming `what`. */
export async function eventually(what: string, holds: () => Promise<boolean>, timeoutMs = 15_000): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Matches a {@link LedgerError} of that code, for `toSatisfy`. */
export function isLedgerError(code: LedgerError["code"]): (error: unknown) => boolean {
  return (error) => error instanceof LedgerError && error.code === code;
}
