/** What a run prints at its end, and writes as JSON: figures, and each violation with all that happened to its call. */
import type { History, LedgerEntry, Violation } from "./history.js";
import { VIOLATIONS } from "./history.js";
import { describeCurve, type ResourceCurve } from "./resources.js";

export interface ChaosReport {
  readonly seed: number;
  readonly seconds: number;
  /** Carried out, by kind. */
  readonly faults: Readonly<Record<string, number>>;
  readonly calls: number;
  readonly settled: Readonly<Record<string, number>>;
  /** Requests of agents that were sent again. */
  readonly requestsRepeated: number;
  /** Calls with more than one attempt. */
  readonly callsRepeated: number;
  readonly reconciliations: number;
  readonly takeOvers: number;
  readonly receiptsAcknowledged: number;
  /** Longest time without a settlement while calls waited and some path was healthy. */
  readonly longestStallMs: number;
  readonly longestCallMs: number;
  /** From the last fault's end until every call had settled. */
  readonly quietAfterMs: number;
  /** Of runs that kill each server in turn: how long nothing settled around each kill. */
  readonly gaps: readonly { readonly target: string; readonly gapMs: number }[];
  /** Of a soak: memory and handles of each broker and runner. */
  readonly resources: readonly ResourceCurve[];
  readonly violations: readonly ReportedViolation[];
  /** Where logs, journals, plan and history are kept; null when they were removed. */
  readonly folder: string | null;
}

/** Whether the run found nothing wrong. */
export function isClean(report: ChaosReport): boolean {
  return report.violations.length === 0 && report.resources.every(({ trend }) => trend.isFlat);
}

export interface ReportedViolation extends Violation {
  readonly rule: string;
  /** Of the call, in the order of time; ids and numbers only. */
  readonly history: readonly string[];
}

/** With the call's history. */
export function reportViolation(violation: Violation, history: History): ReportedViolation {
  return { ...violation, rule: VIOLATIONS[violation.kind], history: violation.call === null ? [] : callHistory(violation.call, history) };
}

/** One line for each thing that is known about a call. */
export function callHistory(call: string, history: History): readonly string[] {
  const own = <T extends { readonly call: string | null }>(all: readonly T[]): readonly T[] => all.filter((one) => one.call === call);
  const lines: (readonly [atMs: number, text: string])[] = [
    ...own(history.sights).map((sight) => {
      const { agent, how, tool, state, code, value, askedAtMs, atMs } = sight;
      return [atMs, `${agent} (${how}, ${tool}) is told ${state} ${code ?? value ?? ""}, asked ${atMs - askedAtMs} ms before`] as const;
    }),
    ...own(history.starts).map(({ runner, attempt, fence, grant, atMs }) => {
      return [atMs, `${runner} starts attempt ${attempt}, fence ${fence}, ${grant}`] as const;
    }),
    ...own(history.ends).map(({ runner, fence, how, value, atMs }) => [atMs, `${runner} fence ${fence} ${how} ${value ?? ""}`] as const),
    ...own(history.acknowledged).map(({ runner, fence, digest, atMs }) => {
      return [atMs, `${runner} sees the receipt of fence ${fence} acknowledged, ${digest.slice(0, 12)}`] as const;
    }),
    ...own(history.decisions).map(({ outcome, askedAtMs }) => [askedAtMs, `operator says ${outcome}`] as const),
    ...own(history.entries).map((entry) => [entry.entry.at, `ledger ${describeEntry(entry)}`] as const),
  ];
  return lines.sort((a, b) => a[0] - b[0]).map(([atMs, text]) => `${new Date(atMs).toISOString().slice(11, 23)} ${text.trim()}`);
}

/** Fields of entries that are ids or numbers; what an entry holds besides may be a payload. */
const SHOWN = ["attempt", "grantId", "reason", "outcome", "level", "cause", "driver", "from", "by", "retryAtMs", "letRun"] as const;

function describeEntry({ version, previous, entryId, entry }: LedgerEntry): string {
  const facts: string[] = [];
  const add = (from: object): void => {
    for (const field of SHOWN) {
      const value = (from as Readonly<Record<string, unknown>>)[field];
      if (value !== undefined && value !== null && field !== "reason") facts.push(`${field}=${String(value)}`);
    }
  };
  add(entry);
  if (entry.kind === "returned") facts.push(`reason=${entry.reason}`);
  if ("grant" in entry && entry.grant !== null) {
    add(entry.grant);
    facts.push(
      `runner=${entry.grant.holder.runnerId}`,
      `epoch=${entry.grant.holder.sessionEpoch}`,
      `journal=${entry.grant.holder.journalId}`,
    );
  }
  if ("receipt" in entry) {
    add(entry.receipt);
    facts.push(`fence=${entry.receipt.fence}`, `digest=${entry.receipt.digest.slice(0, 12)}`);
  }
  if ("error" in entry && entry.error !== null) facts.push(`code=${entry.error.code}`);
  if (typeof entry.live?.startedAtMs === "number") facts.push("begun");
  return `${previous}→${version} ${entry.kind} ${entryId} ${facts.join(" ")}`;
}

/** The report for people. */
export function printReport(report: ChaosReport): readonly string[] {
  const counts = (all: Readonly<Record<string, number>>): string =>
    Object.entries(all)
      .sort(([, a], [, b]) => b - a)
      .map(([name, count]) => `${count} ${name}`)
      .join(", ");
  const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
  const total = Object.values(report.faults).reduce((sum, count) => sum + count, 0);
  const lines = [
    `seed                ${report.seed}`,
    `faults              ${total}${total === 0 ? "" : `: ${counts(report.faults)}`}`,
    `calls               ${report.calls} in ${report.seconds} s: ${counts(report.settled)}`,
    `repeats             ${report.callsRepeated} calls with more than one attempt, ${report.requestsRepeated} requests sent again`,
    `reconciliations     ${report.reconciliations}`,
    `take-overs          ${report.takeOvers}`,
    `receipts            ${report.receiptsAcknowledged} acknowledged`,
    `longest stall       ${seconds(report.longestStallMs)} without a settlement, with calls waiting and a healthy path`,
    `longest call        ${seconds(report.longestCallMs)}`,
    `quiet               ${seconds(report.quietAfterMs)} after the last fault`,
    ...report.gaps.map(({ target, gapMs }) => `gap, ${target.padEnd(15)}${seconds(gapMs)} without a settlement when it was killed`),
    ...report.resources.map(describeCurve),
    `violations          ${report.violations.length}`,
  ];
  for (const { kind, call, what, rule, history } of report.violations.slice(0, SHOWN_MAX)) {
    lines.push("", `VIOLATION ${kind}${call === null ? "" : ` of ${call}`}: ${what}`, `  ${rule}`, ...history.map((line) => `  ${line}`));
  }
  if (report.violations.length > SHOWN_MAX) lines.push("", `and ${report.violations.length - SHOWN_MAX} more`);
  if (report.folder !== null) lines.push("", `everything is kept in ${report.folder}`);
  return lines;
}

const SHOWN_MAX = 10;
