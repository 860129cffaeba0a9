/** Runs the measurements at scale, one after the other. */
import { readFile } from "node:fs/promises";
import type { LedgerKind } from "../processes/roles.js";
import { type IdleSessions, measureIdleSessions, type ScaleContext } from "./idle-sessions.js";
import { measureOpenCalls, type OpenCalls } from "./open-calls.js";
import { measureSettledCalls, type SettledCalls } from "./settled-calls.js";

/** Files that a broker or a fleet has open besides its connections. */
const OWN_FILES = 500;

/** What was found over each ledger. */
export interface ScaleFigures {
  readonly sessions: readonly IdleSessions[];
  readonly settled: readonly SettledCalls[];
  readonly open: readonly (OpenCalls & { readonly ledger: LedgerKind })[];
}

/** Measures over each of `ledgers`. */
export async function measureScale(ledgers: readonly LedgerKind[], given: ScaleContext): Promise<ScaleFigures> {
  const sessions: IdleSessions[] = [];
  const settled: SettledCalls[] = [];
  const open: (OpenCalls & { readonly ledger: LedgerKind })[] = [];
  const sessionsMax = (await openFilesMax()) - OWN_FILES;
  if (given.sessions > sessionsMax)
    given.say(`Only ${count(sessionsMax)} sessions: a process may not have more files open here (ulimit -Hn raises it).`);
  const context = { ...given, sessions: Math.min(given.sessions, sessionsMax) };
  for (const ledger of ledgers) {
    context.say(`▸ ${ledger}, ${count(context.sessions)} idle sessions`);
    sessions.push(await measureIdleSessions(ledger, context));
    context.say(`▸ ${ledger}, ${count(context.settled)} settled calls`);
    settled.push(await measureSettledCalls(ledger, context));
    context.say(`▸ ${ledger}, ${count(context.open)} open calls`);
    open.push({ ledger, ...(await measureOpenCalls(ledger, context)) });
  }
  return { sessions, settled, open };
}

/** Node raises its soft limit to the hard one by itself. */
async function openFilesMax(): Promise<number> {
  const limits = await readFile("/proc/self/limits", "utf8").catch(() => "");
  const [, soft] = /^Max open files\s+(\d+)/m.exec(limits) ?? [];
  return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft);
}

function count(number: number): string {
  return number.toLocaleString("en-US");
}
