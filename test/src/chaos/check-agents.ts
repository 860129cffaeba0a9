/** The part of the check that is about agents: what they were told against what the ledger says. */
import type { CallState } from "@toolrunner/agent-sdk";
import { groupBy } from "./group-by.js";
import type { HandlerEnd, History, Sight, Violation, ViolationKind } from "./history.js";
import { isSettled, type Step, type Story } from "./ledger-story.js";

const OPEN: ReadonlySet<CallState> = new Set(["awaiting_confirmation", "queued", "running"]);

/** Whether the state answers the agent's turn (G6). */
export function answersTurn(state: CallState): boolean {
  return !OPEN.has(state);
}

/** Violations of I1, I6 and X2 that agents can see. */
export function checkAgents(
  history: History,
  stories: ReadonlyMap<string, Story>,
  ends: ReadonlyMap<string, readonly HandlerEnd[]>,
): readonly Violation[] {
  const violations: Violation[] = history.refusals.map(({ agent, key, code, message }) => ({
    kind: "refused",
    call: null,
    what: `${agent} was refused ${key}: ${code} ${message}`,
  }));
  for (const [key, sights] of groupBy(history.sights, (sight) => sight.key)) {
    const calls = [...new Set(sights.map(({ call }) => call))];
    if (calls.length > 1) violations.push({ kind: "key_of_two_calls", call: calls[0] ?? null, what: `${key}: ${calls.join(", ")}` });
  }
  for (const [call, sights] of groupBy(history.sights, (sight) => sight.call)) {
    const add = (kind: ViolationKind, what: string): void => void violations.push({ kind, call, what });
    const story = stories.get(call);
    if (story === undefined) add("call_lost", `${sights[0]?.agent} was told that it is ${sights[0]?.state}`);
    else checkSights(sights, story, ends.get(call) ?? [], add);
  }
  return violations;
}

/** An answer, and the steps of the call that look like it. */
interface Answer {
  readonly sight: Sight;
  readonly first: number;
  readonly last: number;
}

function checkSights(
  sights: readonly Sight[],
  story: Story,
  ends: readonly HandlerEnd[],
  add: (kind: ViolationKind, what: string) => void,
): void {
  const answers: Answer[] = [];
  for (const sight of sights.filter(({ state }) => answersTurn(state))) {
    const first = story.steps.findIndex((step) => isSeen(sight, step, ends));
    if (first < 0) add("answer_unknown", `${sight.agent} was told ${describe(sight)} (${sight.how})`);
    else answers.push({ sight, first, last: story.steps.findLastIndex((step) => isSeen(sight, step, ends)) });
  }
  const settledFrom = isSettled(story.steps.at(-1)?.state ?? "queued") ? story.steps.length - 1 : Number.POSITIVE_INFINITY;
  for (const sight of sights) {
    // Only what was asked for after an answer had come has to agree with it: two answers on their way may overtake each other.
    const known = answers.filter((other) => other.sight !== sight && other.sight.atMs < sight.askedAtMs);
    const own = answers.find((answer) => answer.sight === sight);
    const isOlder = own === undefined ? ({ first }: Answer) => first >= settledFrom : ({ first }: Answer) => first > own.last;
    const contradicted = answersTurn(sight.state) && own === undefined ? undefined : known.find(isOlder);
    if (contradicted !== undefined) {
      add("answer_changed", `${sight.agent} was told ${describe(contradicted.sight)}, then ${describe(sight)} (${sight.how})`);
    }
  }
  const last = story.steps.at(-1);
  for (const sight of sights) {
    if (sight.how !== "final" || last === undefined || isSeen(sight, last, ends)) continue;
    add("outcome_differs", `${sight.agent} sees ${describe(sight)}, the ledger says ${last.state} ${last.code ?? last.value ?? ""}`);
  }
}

/** Whether the call looks so at this step. A value that the ledger keeps in a blob is known from the handler that gave it. */
function isSeen(sight: Sight, step: Step, ends: readonly HandlerEnd[]): boolean {
  if (sight.state !== step.state) return false;
  if (sight.state === "needs_reconciliation") return true;
  if (sight.code !== step.code) return false;
  if (step.value !== "blob") return sight.value === step.value;
  return ends.some(({ fence, value }) => fence === step.fence && value === sight.value);
}

function describe({ state, code, value }: Sight): string {
  return `${state} ${code ?? value ?? ""}`.trim();
}
