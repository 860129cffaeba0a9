/** For tests of reconcile handlers: a call whose runner's process died, what its next process is asked, and what it answers. */
import type { Grant, Reconcile, ReconcileAnswer } from "@toolrunner/proto";
import type { CallEntry } from "../domain/call/entries.js";
import { decodeEntry } from "../domain/call/entry-codec.js";
import { AGENT, type BrokerParts, connectRunner, type ScriptedRunner, type Site, type TestBroker, TOOL, until } from "./wire.test.kit.js";

/** A tool whose calls have 300 ms. */
export const SHORT_TOOL: NonNullable<BrokerParts["catalog"]> = {
  resolveTool: async (_application, toolset, tool) => ({
    toolset,
    toolsetVersion: 1,
    tool: { ...TOOL, name: tool, timeout_seconds: 0.3 },
    bindingKind: "backend",
    checkArguments: () => [],
    checkResult: () => [],
  }),
};
const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };
export const OUTCOME_UNKNOWN = 3;
export const kindsOf = (site: Site, callId: string): string[] => entriesOf(site, callId).map(({ kind }) => kind);
export const entriesOf = (site: Site, callId: string): CallEntry[] => (site.store.entriesOfCall.get(callId) ?? []).map(decodeEntry);

export type Outcome = NonNullable<ReconcileAnswer["outcome"]>;
export const APPLIED: Outcome = { $case: "applied", value: { resultJson: '{"paid":7}' } };
export const NOT_APPLIED: Outcome = { $case: "notApplied", value: {} };
export const UNKNOWN: Outcome = { $case: "unknown", value: { message: "the provider does not answer" } };

/** What a runner was asked, in order. */
export function questionsOf(runner: ScriptedRunner): readonly Reconcile[] {
  return runner.received.flatMap((frame) => (frame.$case === "reconcile" ? [frame.value] : []));
}

/** The question of this place in the order; waits for it. */
export function question(runner: ScriptedRunner, index = 0): Promise<Reconcile & { readonly grant: Grant }> {
  return until(`question ${index}`, () => {
    const found = questionsOf(runner)[index];
    return found?.grant === undefined ? undefined : { ...found, grant: found.grant };
  });
}

/** Has the runner answer a question. */
export function answer(runner: ScriptedRunner, { grant }: { readonly grant: Grant }, outcome: Outcome | undefined): void {
  const { callId, grantId, fence } = grant;
  runner.send({ $case: "reconcileAnswer", value: { callId, grantId, fence, outcome } });
}

export interface Crashed {
  readonly callId: string;
  /** The grant whose process is gone. */
  readonly lost: Grant;
  /** What the waiting agent is told. */
  readonly told: Promise<{ readonly state: string; readonly result?: unknown }>;
  /** The runner's next process, with the same journal. */
  readonly back: (at?: TestBroker) => Promise<ScriptedRunner>;
}

/** A call is running when its runner's process dies. */
export async function crashed(
  one: TestBroker,
  body: object = {},
  runnerOptions: Parameters<typeof connectRunner>[1] = {},
): Promise<Crashed> {
  const runner = await connectRunner(one.wire, { reconciles: true, ...runnerOptions });
  const told = one.wire.calls.create(AGENT, { ...CALL, wait_seconds: 20, ...body }, {});
  const lost = await runner.next();
  runner.close();
  const held = [{ callId: lost.callId, grantId: lost.grantId, fence: lost.fence, phase: OUTCOME_UNKNOWN }];
  return { callId: lost.callId, lost, told, back: (at = one) => connectRunner(at.wire, { reconciles: true, ...runnerOptions, held }) };
}

export const view = (one: TestBroker, callId: string) => one.wire.calls.get(AGENT, callId, {});
export const eventsOf = async (one: TestBroker, callId: string) =>
  (await one.wire.calls.listEvents(AGENT, callId, 0)).map(({ event }) => event);
