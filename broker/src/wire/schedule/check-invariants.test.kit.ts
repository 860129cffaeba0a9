/** What must hold when a schedule is over, seen from the outside: the ledger, the runners' starts and the agents' answers. */
import { isSettledState } from "../../domain/call/call-state.js";
import type { PlacedEntry } from "../../domain/call/entries.js";
import { decodeEntry } from "../../domain/call/entry-codec.js";
import { replay } from "../../domain/call/replay.js";
import { answersTurn, type CallEventView } from "../../domain/call-view.js";
import type { RunnerView } from "../operations.js";
import { checkLanes } from "./check-lanes.test.kit.js";
import { ShownProgress, type SimAgents, type SimCall } from "./sim-agents.test.kit.js";
import { SIM_AGENT, SIM_TOOLS, type SimSite } from "./sim-site.test.kit.js";

const SETTLED = 1;
const REPEATED = 2;
const EVIDENCE = 3;

/** Calls and runners are at rest: nothing is open that a live broker could bring to an end (I1, I4, I7, I9). */
export function checkAtRest(site: SimSite, agents: SimAgents): void {
  for (const callId of site.store.openCalls) {
    const { state } = replay(entriesOf(site, callId), () => undefined);
    const driver = "record" in state ? site.brokers.find(({ id }) => id === (state.record.driver as string)) : undefined;
    site.failed(
      `I1: call ${callId} is still ${state.kind}; its driver ${driver?.process.name} is ${driver?.serving === true ? "up" : "gone"}`,
    );
  }
  for (const runner of site.runners) {
    if (runner.owed > 0) {
      site.failed(`I4: ${runner.options.runnerId} has ${runner.owed} receipts or starts that nobody takes`);
    }
    if (runner.liveCount > 0) {
      site.failed(`${runner.options.runnerId} still runs ${runner.liveCount} grants`);
    }
  }
  if (!agents.idle) {
    site.failed("agents still wait");
  }
  for (const watch of agents.watches.values()) {
    site.failed(`the watch of call ${watch} did not see it settle`);
  }
}

/** The log of every call, the starts and the acknowledgements agree with each other and with the rules. */
export async function checkHistory(site: SimSite, agents: SimAgents): Promise<void> {
  for (const call of agents.calls) {
    if (!site.store.entriesOfCall.has(call.id)) {
      site.failed(`I1: call ${call.id} was acknowledged and is not in the ledger`);
    }
  }
  for (const callId of site.store.entriesOfCall.keys()) {
    checkCall(site, callId);
  }
  for (const { callId, grantId, disposition } of site.acknowledgements) {
    const stored = entriesOf(site, callId).filter((entry) => "receipt" in entry && entry.receipt.grantId === grantId);
    if (![SETTLED, REPEATED, EVIDENCE].includes(disposition) || stored.length === 0) {
      site.failed(`I4: a receipt of grant ${grantId} of ${callId} was acknowledged with ${disposition}, and ${stored.length} are stored`);
    }
  }
  checkLanes(site, agents);
  await checkEvents(site, agents);
  await checkSessions(site);
}

/** B2: a runner id has one session, wherever. */
async function checkSessions(site: SimSite): Promise<void> {
  const views: RunnerView[] = [];
  let listed = false;
  site
    .pickBroker()
    ?.wire.runners.list(SIM_AGENT, { limit: 100 })
    .then(
      ({ data }) => {
        listed = true;
        views.push(...data);
      },
      (error: unknown) => site.failed(`runners cannot be listed: ${String(error)}`),
    );
  await site.world.run(site.world.now + 5_000, () => listed || site.failures.length > 0);
  for (const { options } of site.runners) {
    const at = views.filter((view) => view.runner_id === options.runnerId).map(({ broker_id }) => broker_id);
    if (at.length > 1) {
      site.failed(`B2: ${options.runnerId} has sessions at ${at.join(" and ")}`);
    }
  }
}

function checkCall(site: SimSite, callId: string): void {
  const entries = entriesOf(site, callId);
  const { state, events } = replay(entries, (entry, reason) => site.failed(`${callId}: entry ${entry.kind} is rejected: ${reason}`));
  if (state.kind === "requested" || !answersTurn(state.kind)) {
    site.failed(`I1: call ${callId} ended as ${state.kind}`);
    return;
  }
  const fences = entries.filter((entry) => "grant" in entry && entry.grant !== null).map(({ version }) => version);
  const starts = site.starts.filter((start) => start.callId === callId);
  const { request } = state.record;
  const repeatable = SIM_TOOLS.some(({ toolset, tool, idempotent }) => toolset === request.toolset && tool === request.tool && idempotent);
  // A person, or a handler that looked, may say that it was not applied; then it is started again.
  const notApplied = entries.filter((entry) => entry.kind === "reconciled" && entry.outcome === "not_applied").length;
  if (!repeatable && starts.length > 1 + notApplied) {
    site.failed(`I3: call ${callId} of ${request.tool} was started ${starts.length} times: ${JSON.stringify(starts)}`);
  }
  const done = site.effects(callId);
  if (!repeatable && done > 1) {
    site.failed(`I3: what call ${callId} of ${request.tool} is for was done ${done} times: ${JSON.stringify(starts)}`);
  }
  if (!repeatable && state.kind === "succeeded" && done === 0) {
    site.failed(`call ${callId} of ${request.tool} succeeded, and nothing was done`);
  }
  for (const grantId of new Set(starts.map((start) => start.grantId))) {
    if (starts.filter((start) => start.grantId === grantId).length > 1) {
      site.failed(`a grant of ${callId} was started twice`);
    }
  }
  for (const { fence } of starts) {
    if (!fences.includes(fence)) {
      site.failed(`I2: ${callId} was started with fence ${fence}, which no entry has`);
    }
  }
  if (isSettledState(state)) {
    const settled = events.filter(({ event }) => event === "settled");
    if (settled.length !== 1) {
      site.failed(`I4: ${callId} settled ${settled.length} times`);
    }
  }
}

/** At every broker the numbers of events rise, each means the same event, and a settled call is told as settled, once and last but for evidence. */
async function checkEvents(site: SimSite, agents: SimAgents): Promise<void> {
  const lists: { readonly name: string; readonly call: SimCall; readonly events: readonly CallEventView[] }[] = [];
  let asked = 0;
  for (const broker of site.brokers.filter(({ serving }) => serving)) {
    for (const call of agents.calls) {
      asked += 1;
      broker.wire.calls.listEvents(SIM_AGENT, call.id, 0).then(
        (events) => lists.push({ name: broker.process.name, call, events }),
        (error: unknown) => site.failed(`events of ${call.id}: ${String(error)}`),
      );
    }
  }
  await site.world.run(site.world.now + 30_000, () => lists.length === asked || site.failures.length > 0);
  for (const { name, call, events } of lists) {
    if (events.some(({ seq }, index) => seq <= (events[index - 1]?.seq ?? 0))) {
      site.failed(`${name} lists events of ${call.id} with numbers ${events.map(({ seq }) => seq).join(",")}`);
    }
    const shown = new ShownProgress(site, call);
    for (const event of events) {
      shown.take(event);
    }
    const { state } = replay(entriesOf(site, call.id), () => undefined);
    const last = events.map(({ event }) => event).filter((event) => event !== "late_receipt");
    if (isSettledState(state) && (last.indexOf("settled") !== last.length - 1 || last.length === 0)) {
      site.failed(`X6: ${name} lists events of ${call.id}, which settled, as ${last.join(", ")}`);
    }
  }
}

function entriesOf(site: SimSite, callId: string): PlacedEntry[] {
  return (site.store.entriesOfCall.get(callId) ?? []).map(decodeEntry);
}
