/**
 * Decisions against a reference model: commands and timers in any order, decided by `decide.ts` and walked by the machine,
 * are compared after each step with a model that knows a call only from `architecture.md`: no edge table, no entries.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { forAll } from "../../testing/arbitrary-call.js";
import {
  ANSWER_MS,
  type CallSetting,
  CONFIRMATION_MS,
  type Outcome,
  ReferenceCall,
  TIMEOUT_MS,
  WEEK_MS,
} from "../../testing/reference-call.js";
import { acceptedEntry, inlineText, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../../testing/sample-call.js";
import { isSettled } from "../call-view.js";
import type { CallState } from "./call-state.js";
import { callError, decideCancel, decideDeadline, decideExhausted, decideLeaseLost, decideReceipt, decideReconcile } from "./decide.js";
import { decideAsk, decideAskExpired, decideUnanswered } from "./decide-asks.js";
import type { CallEntry } from "./entries.js";
import { transition } from "./transition.js";

type KnownState = Exclude<CallState, { kind: "requested" }>;

type Command =
  | { readonly kind: "confirm" | "deny" | "adopt" | "start" | "timers" | "exhaust" }
  | { readonly kind: "grant"; readonly handlerSafe: boolean; readonly handlerCancellable: boolean }
  | { readonly kind: "return"; readonly reason: "unavailable" | "forbidden" | "never_started" | "unsent" }
  | {
      readonly kind: "receipt";
      readonly grant: number;
      readonly digest: string;
      readonly outcome: Outcome;
      readonly retryable: boolean;
      readonly valid: boolean;
    }
  | { readonly kind: "lose_lease" }
  | { readonly kind: "cancel"; readonly mode: "kill" | "skip" | "killnowait" }
  | { readonly kind: "reconcile"; readonly outcome: "applied" | "not_applied" | "abandon"; readonly valid: boolean }
  | { readonly kind: "ask"; readonly journal: "same" | "other" }
  | {
      readonly kind: "answer";
      readonly question: number;
      readonly outcome: "applied" | "not_applied" | "unknown";
      readonly valid: boolean;
    }
  | { readonly kind: "pass"; readonly ms: number };

const anyCommand: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom("confirm", "deny", "adopt", "timers", "exhaust", "lose_lease") }) as fc.Arbitrary<Command>,
  },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: "confirm" }) },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: "start" }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("grant" as const), handlerSafe: fc.boolean(), handlerCancellable: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("return" as const),
      reason: fc.constantFrom("unavailable", "forbidden", "never_started", "unsent"),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("receipt" as const),
      grant: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat({ max: 3 }) }),
      digest: fc.constantFrom("a", "a", "b"),
      outcome: fc.constantFrom<Outcome>("succeeded", "failed", "failed", "cancelled", "submitted"),
      retryable: fc.boolean(),
      valid: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("cancel" as const), mode: fc.constantFrom("kill", "skip", "killnowait") }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("reconcile" as const),
      outcome: fc.constantFrom("applied", "not_applied", "abandon"),
      valid: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("ask" as const),
      journal: fc.constantFrom("same" as const, "same" as const, "other" as const),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("answer" as const),
      question: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat({ max: 3 }) }),
      outcome: fc.constantFrom("applied" as const, "not_applied" as const, "unknown" as const),
      valid: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: fc.constantFrom(1, 1_000, 30_000, 60_000, 600_000, WEEK_MS) }),
  },
);

const anySetting: fc.Arbitrary<CallSetting> = fc.record({
  toolSafe: fc.boolean(),
  toolCancellable: fc.boolean(),
  maxAttempts: fc.integer({ min: 1, max: 3 }),
  confirm: fc.boolean(),
});

/** The broker's side: state by the machine, entries by the decisions. */
class Subject {
  state: CallState = { kind: "requested" };
  readonly grants: string[] = [];
  readonly questions: string[] = [];
  private version = 0;

  append(entry: CallEntry): void {
    this.version += 1;
    const outcome = transition(this.state, { ...entry, entryId: `entry_${this.version}`, version: this.version });
    if (outcome.kind === "rejected") {
      throw new Error(`a decided entry was rejected: ${outcome.reason}`);
    }
    this.state = outcome.state;
    if (entry.kind === "granted") {
      this.grants.push(`entry_${this.version}`);
    } else if (entry.kind === "reconcile_granted") {
      this.questions.push(`entry_${this.version}`);
    }
  }

  maybe(entry: CallEntry | undefined): void {
    if (entry !== undefined) {
      this.append(entry);
    }
  }

  get known(): KnownState {
    if (this.state.kind === "requested") {
      throw new Error("the call was not accepted");
    }
    return this.state;
  }
}

const fault = { path: "/x", expected: "integer", actual: "string" };

function accept(setting: CallSetting): { readonly subject: Subject; readonly reference: ReferenceCall } {
  const subject = new Subject();
  const request = sampleRequest({
    idempotent: setting.toolSafe,
    cancellable: setting.toolCancellable,
    maxAttempts: setting.maxAttempts,
    timeoutMs: TIMEOUT_MS,
  });
  subject.append(
    acceptedEntry(request, setting.confirm ? { confirmationExpiresAtMs: SAMPLE_START_MS + CONFIRMATION_MS, deadlineAtMs: null } : {}),
  );
  return { subject, reference: new ReferenceCall(setting, SAMPLE_START_MS) };
}

/** Does `command` on both sides and compares what is answered. */
function run(command: Command, subject: Subject, reference: ReferenceCall, nowMs: number): void {
  const state = subject.known;
  switch (command.kind) {
    case "confirm":
      if (state.kind === "awaiting_confirmation") {
        subject.append({ kind: "confirmed", at: nowMs, by: "key", deadlineAtMs: nowMs + TIMEOUT_MS });
        reference.confirmed(nowMs);
      }
      return;
    case "deny":
      if (state.kind === "awaiting_confirmation") {
        subject.append({ kind: "denied", at: nowMs, error: callError("confirmation_denied", "no") });
        reference.state = "denied";
      }
      return;
    case "grant":
      // As the driver does it: who has no attempt left fails, all others are granted.
      if (state.kind === "queued" && decideExhausted(state, nowMs) === undefined) {
        const holder = sampleHolder({ handlerIdempotent: command.handlerSafe, handlerCancellable: command.handlerCancellable });
        subject.append({ kind: "granted", at: nowMs, driver: "broker_a", grant: { attempt: state.record.attempts + 1, holder } });
        reference.granted(subject.grants.at(-1) ?? "", command.handlerSafe, command.handlerCancellable);
      }
      return;
    case "start":
      if (state.kind === "running" && state.record.startedAtMs === null) {
        // A start is news that comes with the next entry; an adoption is one that changes nothing else.
        const seq = state.record.eventSeq + 1;
        const live = { startedAtMs: nowMs, startedSeq: seq, lastSeq: seq };
        subject.append({ kind: "adopted", at: nowMs, driver: "broker_b", from: "broker_a", live });
        reference.started();
      }
      return;
    case "return":
      if (state.kind === "running") {
        const { grantId } = state.grant;
        subject.append({ kind: "returned", at: nowMs, grantId, reason: command.reason, message: "", notBeforeMs: null });
        reference.returned(command.reason);
      }
      return;
    case "receipt": {
      const grantId = subject.grants.at(-1 - command.grant) ?? "entry_foreign";
      const { digest, outcome, retryable, valid } = command;
      const error = outcome === "failed" ? callError("handler_error", "broke", { retryable }) : null;
      const decision = decideReceipt(state, receiptFacts(grantId, { digest, outcome, error, value: inlineText(1) }), {
        nowMs,
        random: 0,
        resultFaults: valid ? [] : [fault],
      });
      if (decision.kind === "append") {
        subject.append(decision.entry);
      }
      expect(decision.kind === "append" ? decision.disposition : decision.kind).toBe(reference.receipt(grantId, command, nowMs));
      return;
    }
    case "lose_lease":
      subject.maybe(decideLeaseLost(state, "lease", nowMs, 0));
      if (state.kind === "running") {
        reference.leaseLost();
      }
      return;
    case "cancel": {
      const decision = decideCancel(state, command.mode, undefined, nowMs);
      if (decision.kind === "append") {
        subject.append(decision.entry);
      }
      expect(decision.kind).toBe(reference.cancel(command.mode));
      return;
    }
    case "reconcile":
      subject.maybe(
        decideReconcile(
          state,
          { outcome: command.outcome, value: inlineText(1), resultFaults: command.valid ? [] : [fault], by: "key", note: null },
          nowMs,
        ),
      );
      reference.reconcile(command.outcome, command.valid, nowMs);
      return;
    case "ask": {
      const grant = subject.grants.at(-1) ?? "";
      const { journalId } = sampleHolder();
      const holder = {
        runnerId: "runner_b",
        sessionEpoch: 9,
        brokerId: "broker_b",
        journalId: command.journal === "same" ? journalId : "jrn_other",
      };
      const entry = decideAsk(state, grant, holder, { nowMs, answerMs: ANSWER_MS });
      subject.maybe(entry);
      const isAsked = command.journal === "same" && reference.ask(subject.questions.at(-1) ?? "", nowMs);
      expect(entry !== undefined).toBe(isAsked);
      return;
    }
    case "answer": {
      const askId = subject.questions.at(-1 - command.question) ?? "entry_foreign";
      const { outcome, valid } = command;
      const entry =
        outcome === "unknown"
          ? decideUnanswered(state, askId, { reason: "unknown", message: "" }, nowMs, 0)
          : decideReconcile(
              state,
              { outcome, value: inlineText(1), resultFaults: valid ? [] : [fault], by: "runner:runner_b", note: null, askId },
              nowMs,
            );
      subject.maybe(entry);
      expect(entry !== undefined).toBe(reference.answered(askId, outcome, valid, nowMs));
      return;
    }
    case "exhaust":
      subject.maybe(decideExhausted(state, nowMs));
      reference.exhaust();
      return;
    case "adopt":
      if (!isSettled(state.kind)) {
        subject.append({ kind: "adopted", at: nowMs, driver: "broker_b", from: "broker_a" });
      }
      return;
    case "timers":
    case "pass":
      subject.maybe(decideDeadline(state, nowMs) ?? decideAskExpired(state, nowMs, 0));
      reference.timers(nowMs);
      return;
  }
}

describe("decisions, for any commands in any order", () => {
  const anyStory = fc.tuple(anySetting, fc.array(anyCommand, { maxLength: 25 }));

  it("lead where the architecture says, with the disposition it says, and every decided entry is one the machine accepts", () => {
    const reached = new Set<string>();
    forAll(
      fc.property(anyStory, ([setting, commands]) => {
        const { subject, reference } = accept(setting);
        let nowMs = SAMPLE_START_MS;
        for (const command of commands) {
          nowMs += command.kind === "pass" ? command.ms : 0;
          run(command, subject, reference, nowMs);
          reached.add(subject.state.kind);
          expect(subject.state.kind, command.kind).toBe(reference.state);
          expect(subject.known.record.attempts).toBe(reference.attempts);
          expect(subject.known.record.deadlineAtMs).toBe(reference.deadlineMs);
        }
      }),
      3_000,
    );
    // A property that reaches little shows little.
    expect(reached.size).toBe(10);
  });

  it("never use more attempts than the call has", () => {
    forAll(
      fc.property(anyStory, ([setting, commands]) => {
        const { subject, reference } = accept(setting);
        let nowMs = SAMPLE_START_MS;
        for (const command of commands) {
          nowMs += command.kind === "pass" ? command.ms : 0;
          run(command, subject, reference, nowMs);
          expect(subject.known.record.attempts).toBeLessThanOrEqual(setting.maxAttempts);
        }
      }),
      500,
    );
  });

  it("bring every call to an end: time alone settles it, or leaves it where an operator settles it", () => {
    forAll(
      fc.property(anyStory, ([setting, commands]) => {
        const { subject, reference } = accept(setting);
        let nowMs = SAMPLE_START_MS;
        for (const command of commands) {
          nowMs += command.kind === "pass" ? command.ms : 0;
          run(command, subject, reference, nowMs);
        }
        subject.maybe(decideDeadline(subject.state, nowMs + 2 * WEEK_MS));
        if (!isSettled(subject.known.kind)) {
          expect(subject.state.kind).toBe("needs_reconciliation");
          const input = { outcome: "abandon", value: null, resultFaults: [], by: "key", note: null } as const;
          subject.maybe(decideReconcile(subject.state, input, nowMs));
        }
        expect(isSettled(subject.known.kind)).toBe(true);
      }),
      500,
    );
  });
});
