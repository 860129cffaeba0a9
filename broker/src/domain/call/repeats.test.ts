import { describe, expect, it } from "vitest";
import { acceptedEntry, placed, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../../testing/sample-call.js";
import type { CallState } from "./call-state.js";
import {
  callError,
  DECLINE_BACK_OFF,
  decideCancel,
  decideDeadline,
  decideLeaseLost,
  decideReceipt,
  decideReconcile,
  declinedUntilMs,
} from "./decide.js";
import { decideAsk } from "./decide-asks.js";
import type { CallEntry } from "./entries.js";
import { replay } from "./replay.js";

type KnownState = Exclude<CallState, { kind: "requested" }>;

const NOW = SAMPLE_START_MS + 1_000;
const HOLDER = { runnerId: "runner_a", sessionEpoch: 8, journalId: "journal_a", brokerId: "broker_a" };

function stateOf(entries: readonly (CallEntry | undefined)[]): KnownState {
  const { state } = replay(placed(entries.filter((entry) => entry !== undefined)), (_entry, reason) => {
    throw new Error(`the story is wrong: ${reason}`);
  });
  if (state.kind === "requested") {
    throw new Error("the story is empty");
  }
  return state;
}

interface Says {
  readonly readOnly: boolean;
  readonly idempotent: boolean;
}

const SAYINGS: readonly Says[] = [
  { readOnly: false, idempotent: false },
  { readOnly: false, idempotent: true },
  { readOnly: true, idempotent: false },
  { readOnly: true, idempotent: true },
];
const name = ({ readOnly, idempotent }: Says): string => `${readOnly ? "read-only" : "write"}${idempotent ? ", idempotent" : ""}`;
const COMBINATIONS = SAYINGS.flatMap((tool) =>
  SAYINGS.map((handler): [string, string, Says, Says] => [name(tool), name(handler), tool, handler]),
);

function running(tool: Says, handler: Says, more: Parameters<typeof sampleRequest>[0] = {}): CallEntry[] {
  const holder = sampleHolder({ handlerReadOnly: handler.readOnly, handlerIdempotent: handler.idempotent });
  return [
    acceptedEntry(sampleRequest({ ...tool, ...more })),
    { kind: "granted", at: SAMPLE_START_MS, driver: "broker_a", grant: { attempt: 1, holder } },
  ];
}

describe("what is repeated: the weaker of what the tool declares and what the handler implements (C12)", () => {
  it.each(COMBINATIONS)("tool %s, handler %s", (_tool, _handler, tool, handler) => {
    const safe = (tool.readOnly || tool.idempotent) && (handler.readOnly || handler.idempotent);
    const story = running(tool, handler);
    const state = stateOf(story);
    // A lost lease, and a runner that comes back without knowing.
    for (const cause of ["lease", "runner_restarted"] as const) {
      const lost = decideLeaseLost(state, cause, NOW, 0);
      expect(stateOf([...story, lost]).kind).toBe(safe ? "queued" : "needs_reconciliation");
    }
    // Only what nobody may repeat is asked about.
    const asked = decideAsk(state, "entry_2", HOLDER, { nowMs: NOW, answerMs: 1_000 });
    expect(asked === undefined).toBe(safe);
    // A failure that says it may be tried again.
    const error = callError("no_luck", "no luck", { retryable: true });
    const decision = decideReceipt(state, receiptFacts("entry_2", { outcome: "failed", value: null, error }), {
      nowMs: NOW,
      random: 0,
      resultFaults: [],
    });
    expect(stateOf([...story, decision.kind === "append" ? decision.entry : undefined]).kind).toBe(safe ? "queued" : "failed");
    // The call's time, which never leads to another attempt.
    const late = SAMPLE_START_MS + 300_000;
    expect(stateOf([...story, decideDeadline(state, late)]).kind).toBe(safe ? "timed_out" : "needs_reconciliation");
    // A grant that came back after its handler was known to have begun.
    const live = { startedAtMs: NOW, startedSeq: 4, lastSeq: 4 };
    const returned: CallEntry = {
      kind: "returned",
      at: NOW,
      grantId: "entry_2",
      reason: "never_started",
      message: "",
      notBeforeMs: null,
      live,
    };
    expect(stateOf([...story, returned]).kind).toBe(safe ? "queued" : "needs_reconciliation");
  });

  it("is judged anew for each grant: a weaker handler that takes the next attempt ends the repeats", () => {
    const story = running({ readOnly: false, idempotent: true }, { readOnly: false, idempotent: true });
    const lost = decideLeaseLost(stateOf(story), "lease", NOW, 0);
    const weaker: CallEntry = {
      kind: "granted",
      at: NOW,
      driver: "broker_a",
      grant: { attempt: 2, holder: sampleHolder({ handlerIdempotent: false }) },
    };
    const again = stateOf([...story, lost, weaker]);
    expect(decideLeaseLost(again, "lease", NOW, 0)).toMatchObject({ kind: "lease_lost", grantId: "entry_4", retryAtMs: null });
  });

  it.each([
    [true, true, "append"],
    [true, false, "not_cancellable"],
    [false, true, "not_cancellable"],
    [false, false, "not_cancellable"],
  ])("a kill reaches the handler only where both can be cancelled: tool %s, handler %s", (tool, handler, expected) => {
    const state = stateOf([
      acceptedEntry(sampleRequest({ cancellable: tool })),
      {
        kind: "granted",
        at: SAMPLE_START_MS,
        driver: "broker_a",
        grant: { attempt: 1, holder: sampleHolder({ handlerCancellable: handler }) },
      },
    ]);
    expect(decideCancel(state, "kill", undefined, NOW).kind).toBe(expected);
  });
});

describe("a call that was to be cancelled and whose outcome became unknown (K2, I3)", () => {
  const unsafe = running({ readOnly: false, idempotent: false }, { readOnly: false, idempotent: false });
  const cancelAsked: CallEntry = { kind: "cancel_requested", at: NOW, reason: "the user left" };
  const lost = decideLeaseLost(stateOf([...unsafe, cancelAsked]), "lease", NOW, 0);
  const story = [...unsafe, cancelAsked, lost].filter((entry) => entry !== undefined);
  const verdict = (outcome: "applied" | "not_applied" | "abandon", askId?: string, nowMs = NOW) =>
    decideReconcile(
      stateOf(askId === undefined ? story : [...story, decideAsk(stateOf(story), "entry_2", HOLDER, { nowMs: NOW, answerMs: 9 })]),
      { outcome, value: null, resultFaults: [], by: "key", note: null, ...(askId === undefined ? {} : { askId }) },
      nowMs,
    );

  it("is not stored as cancelled while nobody knows", () => {
    expect(stateOf(story)).toMatchObject({ kind: "needs_reconciliation", cancel: { reason: "the user left" } });
  });

  it("ends as cancelled, with the reason given then, when it was not applied: it is not run again", () => {
    expect(stateOf([...story, verdict("not_applied")])).toMatchObject({
      kind: "cancelled",
      settlement: { error: { code: "call_cancelled", message: "the user left" } },
    });
    // Also when neither time nor attempts are left.
    expect(stateOf([...story, verdict("not_applied", undefined, NOW + 400_000)]).kind).toBe("cancelled");
  });

  it("ends so also by the word of a handler", () => {
    const asked = decideAsk(stateOf(story), "entry_2", HOLDER, { nowMs: NOW, answerMs: 9 });
    expect(stateOf([...story, asked, verdict("not_applied", "entry_5")]).kind).toBe("cancelled");
  });

  it("is what was found out otherwise", () => {
    expect(stateOf([...story, verdict("applied")]).kind).toBe("succeeded");
    expect(stateOf([...story, verdict("abandon")])).toMatchObject({ kind: "failed", settlement: { error: { code: "outcome_unknown" } } });
  });

  it("runs again in a log that was written before: the entry says what it led to", () => {
    expect(stateOf([...story, { ...verdict("not_applied"), cancelled: undefined } as unknown as CallEntry]).kind).toBe("queued");
  });
});

describe("a call that runner after runner declines (B3)", () => {
  const granted = (): CallEntry => ({
    kind: "granted",
    at: NOW,
    driver: "broker_a",
    grant: { attempt: 1, holder: sampleHolder() },
  });
  const returned = (grant: number, reason: "unavailable" | "never_started" | "unsent"): CallEntry => ({
    kind: "returned",
    at: NOW,
    grantId: `entry_${grant}`,
    reason,
    message: "",
    notBeforeMs: null,
  });
  const declined = (times: number, reason: "unavailable" | "never_started" | "unsent" = "unavailable"): CallEntry[] => [
    acceptedEntry(sampleRequest()),
    ...Array.from({ length: times }, (_, index) => [granted(), returned(2 + 2 * index, reason)]).flat(),
  ];
  const pause = (entries: readonly CallEntry[], random = 1): number | null => {
    const untilMs = declinedUntilMs(stateOf(entries), NOW, random);
    return untilMs === null ? null : untilMs - NOW;
  };

  it("is offered to the next one at once after the first decline, then after pauses that double to 5 s", () => {
    expect([0, 1, 2, 3, 4, 5, 6, 20].map((times) => pause([...declined(times), granted()]))).toEqual([
      null,
      250,
      500,
      1_000,
      2_000,
      4_000,
      DECLINE_BACK_OFF.maxMs,
      DECLINE_BACK_OFF.maxMs,
    ]);
    expect(pause([...declined(1), granted()], 0)).toBe(125);
  });

  it("does not pause for grants that no runner declined", () => {
    expect(pause([...declined(5, "never_started"), granted()])).toBeNull();
    expect(pause([...declined(5, "unsent"), granted()])).toBeNull();
  });

  it("begins anew after a runner took it", () => {
    const story = [...declined(3), granted()];
    const lost = decideLeaseLost(stateOf(story), "lease", NOW, 0);
    expect(pause([...story, lost as CallEntry, { ...granted(), grant: { attempt: 2, holder: sampleHolder() } } as CallEntry])).toBeNull();
  });
});
