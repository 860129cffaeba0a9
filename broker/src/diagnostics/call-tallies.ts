/**
 * From stored entries of calls to numbers: what each entry says about the call's tool, its attempts, cancels and times.
 *
 * Times are between the broker's own moments. When a handler began is the runner's word, and its clock may be wrong: it is
 * believed between the grant and the entry that brought it.
 */
import type { Registry } from "prom-client";
import { assertNever } from "../domain/assert-never.js";
import { type CallState, isSettledState } from "../domain/call/call-state.js";
import type { PlacedEntry } from "../domain/call/entries.js";
import type { CallEvent } from "../domain/call/transition.js";
import type { AppendEnd, CallMeter } from "../domain/ports/meter.js";
import { METRICS } from "./definitions.js";
import { distributions, exposeValue, tallies, tally } from "./families.js";
import { addTo, OTHER, type ToolBook, type ToolTallies } from "./tool-tallies.js";

type Moved = Exclude<CallState, { readonly kind: "requested" }>;

/** Makes the meter of calls. `errorCodes` are shown by name; a runner may say anything. */
export function createCallMeter(registry: Registry, book: ToolBook, errorCodes: ReadonlySet<string>): CallMeter {
  const errors = tallies(registry, METRICS.callErrors);
  const returns = tallies(registry, METRICS.returns);
  const reconciliationsClosed = tallies(registry, METRICS.reconciliationsClosed);
  const cancels = tallies(registry, METRICS.cancels);
  const adopted = tally(registry, METRICS.adopted);
  const removedCalls = tally(registry, METRICS.removedCalls);
  const removedValues = tally(registry, METRICS.removedValues);
  const appends = distributions(registry, METRICS.appends);
  const ends = { stored: appends.of("stored"), conflict: appends.of("conflict"), unknown: appends.of("unknown") } satisfies Record<
    AppendEnd,
    unknown
  >;
  const reads = distributions(registry, METRICS.reads);
  const readsOf = { call: reads.of("call"), news: reads.of("news") };
  let pending = 0;
  exposeValue(registry, METRICS.appendsPending, () => pending);

  function count(tool: ToolTallies, before: CallState, entry: PlacedEntry, after: Moved): void {
    switch (entry.kind) {
      case "accepted":
        tool.accepted.add();
        if (entry.grant !== null) tool.attempts.add();
        break;
      case "granted":
        tool.attempts.add();
        break;
      case "returned":
        returns.of(entry.reason).add();
        break;
      case "receipt":
        observeRun(tool, before, entry, after);
        if (after.kind === "queued") addTo(tool.retries, "failure");
        else if (after.kind === "cancelled") cancels.of("stopped").add();
        break;
      case "lease_lost":
        addTo(tool.leasesLost, entry.cause);
        if (after.kind === "queued") addTo(tool.retries, entry.cause);
        break;
      case "cancel_requested":
        cancels.of("requested").add();
        break;
      case "cancel_answered":
        cancels.of(entry.level).add();
        break;
      case "cancelled":
        // One that was asked for before is counted already.
        if (before.kind !== "running" || before.cancel === null) cancels.of("at_once").add();
        break;
      case "reconciled":
        if (after.kind === "queued") addTo(tool.retries, entry.outcome);
        break;
      case "evidence":
        tool.lateReceipts.add();
        break;
      case "adopted":
        adopted.add();
        break;
      case "reconcile_granted":
        if (before.kind === "running") addTo(tool.leasesLost, "runner_restarted");
        break;
      case "reconcile_unanswered":
      case "updated":
      case "confirmed":
      case "denied":
      case "waiting":
      case "exhausted":
      case "timed_out":
        // What the state after it says is counted below.
        break;
      default:
        assertNever(entry);
    }
  }

  return {
    appendBegan() {
      pending += 1;
    },
    appendEnded(end, durationMs) {
      pending -= 1;
      ends[end].observe(durationMs / 1_000);
    },
    callRead(what, durationMs) {
      readsOf[what].observe(durationMs / 1_000);
    },
    removed(calls, values) {
      removedCalls.add(calls);
      removedValues.add(values);
    },
    entryStored(before, entry, after, events, earlier) {
      const { application, toolset, tool: name } = after.record.request;
      const tool = book.of(application, toolset, name);
      count(tool, before, entry, after);
      observeWait(tool, entry, after, events, earlier);
      if (after.kind === "needs_reconciliation") {
        if (before.kind !== "needs_reconciliation") tool.reconciliationsOpened.add();
      } else if (before.kind === "needs_reconciliation") {
        reconciliationsClosed.of(entry.kind === "reconciled" ? entry.outcome : "runner").add();
      }
      if (isSettledState(after) && !isSettledState(before)) {
        addTo(tool.settled, after.kind);
        tool.total.observe((after.settlement.atMs - after.record.request.createdAtMs) / 1_000);
        const { error } = after.settlement;
        if (error !== null) errors.of(errorCodes.has(error.code) ? error.code : OTHER).add();
      }
    },
  };
}

/** Of the first attempt whose handler began; the news of it comes with the entry after it. */
function observeWait(
  tool: ToolTallies,
  entry: PlacedEntry,
  after: Moved,
  events: readonly CallEvent[],
  earlier: readonly CallEvent[],
): void {
  const started = entry.kind === "accepted" ? undefined : events.find(({ event }) => event === "started");
  const grant = after.record.newestGrant;
  if (started === undefined || grant === null) {
    return;
  }
  // Told live, it is among the earlier ones already, under its own number.
  const isFirst = after.record.grantIds.length === 1 || !earlier.some(({ event, seq }) => event === "started" && seq !== started.seq);
  if (isFirst) {
    tool.wait.observe((between(grant.grantedAtMs, started.atMs, entry.at) - after.record.request.createdAtMs) / 1_000);
  }
}

function observeRun(tool: ToolTallies, before: CallState, entry: Extract<PlacedEntry, { kind: "receipt" }>, after: Moved): void {
  // The final receipt of a submission comes when the handler is long over.
  if (before.kind === "requested" || before.kind === "submitted" || before.record.newestGrant === null) {
    return;
  }
  const { grantedAtMs } = before.record.newestGrant;
  tool.run.observe((entry.at - between(grantedAtMs, after.record.startedAtMs ?? grantedAtMs, entry.at)) / 1_000);
}

function between(low: number, value: number, high: number): number {
  return Math.max(low, Math.min(value, high));
}
