/**
 * Holds a history against the invariants. A pure function: it asks nothing but the history, and believes nobody in it alone.
 *
 * Each rule looks at what two sides wrote independently of each other: agents and ledger, handlers and ledger, runners and ledger.
 */
import { checkAgents } from "./check-agents.js";
import { groupBy } from "./group-by.js";
import type { HandlerEnd, HandlerStart, History, LedgerEntry, Violation, ViolationKind } from "./history.js";
import { isSettled, type Story, tellStory } from "./ledger-story.js";

/** Every violation that is in the history; none when it is clean. */
export function checkHistory(history: History): readonly Violation[] {
  const stories = storiesOf(history.entries);
  const violations: Violation[] = [...stories.values()].flatMap(({ faults }) => faults);
  for (const alarm of history.alarms) violations.push({ kind: "alarm", call: alarm.call, what: `${alarm.process}: ${alarm.event}` });
  for (const story of stories.values()) {
    const state = story.steps.at(-1)?.state;
    if (state !== undefined && !isSettled(state) && state !== "needs_reconciliation") {
      violations.push({ kind: "call_open", call: story.call, what: `is ${state} since version ${story.steps.at(-1)?.version}` });
    }
  }
  const ends = groupBy(history.ends, ({ call }) => call);
  violations.push(...checkStarts(history, stories), ...checkReceipts(history, stories, ends), ...checkAgents(history, stories, ends));
  return violations;
}

/** The stories of all calls of a ledger. */
export function storiesOf(entries: readonly LedgerEntry[]): ReadonlyMap<string, Story> {
  return new Map([...groupBy(entries, ({ call }) => call)].map(([call, own]) => [call, tellStory(call, own)]));
}

function checkStarts(history: History, stories: ReadonlyMap<string, Story>): Violation[] {
  const violations: Violation[] = [];
  for (const [call, starts] of groupBy(history.starts, (start) => start.call)) {
    const add = (kind: ViolationKind, what: string): void => void violations.push({ kind, call, what });
    const story = stories.get(call);
    for (const start of starts) {
      const grant = story?.grants.find(({ grantId }) => grantId === start.grant);
      if (grant === undefined || grant.fence !== start.fence || grant.attempt !== start.attempt) {
        add("start_without_grant", `${start.runner} started attempt ${start.attempt}, fence ${start.fence}`);
      } else if (grant.returned !== null) {
        add("start_of_returned", `${start.runner} started fence ${start.fence}, which came back as ${grant.returned}`);
      }
    }
    for (const [grant, same] of groupBy(starts, (start) => start.grant)) {
      if (same.length > 1) add("grant_started_twice", `grant ${grant} was started by ${same.map(({ runner }) => runner).join(", ")}`);
    }
    checkOrder(starts, add);
    if (story !== undefined) checkRepeats(history, story, starts, add);
  }
  return violations;
}

type Add = (kind: ViolationKind, what: string) => void;

function checkOrder(starts: readonly HandlerStart[], add: Add): void {
  const byTime = [...starts].sort((a, b) => a.atMs - b.atMs || a.fence - b.fence);
  for (const [index, start] of byTime.entries()) {
    const before = byTime[index - 1];
    if (before !== undefined && before.fence > start.fence) {
      add(
        "start_after_newer",
        `${start.runner} started fence ${start.fence} ${start.atMs - before.atMs} ms after fence ${before.fence} was`,
      );
    }
  }
}

/** Between two starts of what is not safe to repeat somebody has to have said that the first was not applied. */
function checkRepeats(history: History, story: Story, starts: readonly HandlerStart[], add: Add): void {
  const byFence = [...starts].sort((a, b) => a.fence - b.fence);
  for (const [index, start] of byFence.entries()) {
    const before = byFence[index - 1];
    if (before === undefined || before.fence === start.fence) continue;
    const wasSafe = story.grants.find(({ fence }) => fence === before.fence)?.repeatable === true;
    const word = story.notApplied.find(({ version }) => version > before.fence && version < start.fence);
    if (!wasSafe && word === undefined)
      add("started_twice", `fence ${before.fence} by ${before.runner}, fence ${start.fence} by ${start.runner}`);
  }
  for (const decision of history.decisions) {
    if (decision.call !== story.call || decision.outcome !== "not_applied") continue;
    const newest = story.notApplied.findLast(({ atMs }) => atMs >= decision.askedAtMs);
    const late = newest && starts.find((start) => start.fence < newest.version && start.atMs > newest.atMs);
    if (newest && late)
      add("start_after_not_applied", `fence ${late.fence} by ${late.runner}, ${late.atMs - newest.atMs} ms after the word`);
  }
}

function checkReceipts(
  history: History,
  stories: ReadonlyMap<string, Story>,
  ends: ReadonlyMap<string, readonly HandlerEnd[]>,
): Violation[] {
  const violations: Violation[] = [];
  for (const { call, grant, digest, runner, fence } of history.acknowledged) {
    const stored = stories.get(call)?.receipts.some((receipt) => receipt.grantId === grant && receipt.digest === digest);
    if (stored !== true) violations.push({ kind: "receipt_lost", call, what: `${runner} saw the receipt of fence ${fence} acknowledged` });
  }
  for (const story of stories.values()) {
    for (const { fence, state, value, version } of story.steps) {
      if (fence === null || value === null) continue;
      const own = ends.get(story.call)?.filter((end) => end.fence === fence) ?? [];
      if (own.some((end) => end.value !== null && (end.value === value || value === "blob"))) continue;
      violations.push({
        kind: "receipt_unfounded",
        call: story.call,
        what: `${state} at ${version} with fence ${fence} and value ${value}`,
      });
    }
  }
  return violations;
}
