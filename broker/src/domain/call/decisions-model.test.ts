/**
 * Decisions against a reference model: commands and timers in any order, decided by `decide.ts` and walked by the machine,
 * are compared after each step with a model that knows a call only from `architecture.md`: no edge table, no entries.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { forAll } from "../../testing/arbitrary-call.js";
import { acceptedEntry, inlineText, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../../testing/sample-call.js";
import { type CallStateName, isSettled } from "../call-view.js";
import type { CallState } from "./call-state.js";
import { callError, decideCancel, decideDeadline, decideExhausted, decideLeaseLost, decideReceipt, decideReconcile } from "./decide.js";
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
  | { readonly kind: "pass"; readonly ms: number };
type Outcome = "succeeded" | "failed" | "cancelled" | "submitted";

interface CallSetting {
  readonly toolSafe: boolean;
  readonly toolCancellable: boolean;
  readonly maxAttempts: number;
  readonly confirm: boolean;
}

const TIMEOUT_MS = 60_000;
const CONFIRMATION_MS = 600_000;
const WEEK_MS = 604_800_000;

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

/** The call as the architecture tells of it. */
class Reference {
  state: CallStateName;
  attempts = 0;
  deadlineMs: number | null;
  private endsMs = 0;
  private grant: { readonly id: string; readonly safe: boolean; readonly cancellable: boolean } | undefined;
  private readonly grants = new Set<string>();
  private begun = false;
  private cancelAsked = false;
  /** Receipts that are stored, by grant and digest. */
  private readonly stored = new Set<string>();
  private consumedGrant: string | undefined;

  constructor(
    readonly setting: CallSetting,
    nowMs: number,
  ) {
    this.state = setting.confirm ? "awaiting_confirmation" : "queued";
    this.deadlineMs = setting.confirm ? null : nowMs + TIMEOUT_MS;
    this.endsMs = nowMs + CONFIRMATION_MS;
  }

  granted(id: string, handlerSafe: boolean, handlerCancellable: boolean): void {
    this.grant = { id, safe: this.setting.toolSafe && handlerSafe, cancellable: this.setting.toolCancellable && handlerCancellable };
    this.grants.add(id);
    this.begun = false;
    this.cancelAsked = false;
    this.attempts += 1;
    this.state = "running";
  }

  confirmed(nowMs: number): void {
    this.state = "queued";
    this.deadlineMs = nowMs + TIMEOUT_MS;
  }

  started(): void {
    this.begun = true;
  }

  returned(reason: string): void {
    if (reason === "forbidden") {
      this.state = "denied";
    } else if (this.begun && this.grant?.safe === false) {
      this.state = "needs_reconciliation";
    } else if (this.cancelAsked) {
      this.state = "cancelled";
    } else {
      this.attempts -= 1;
      this.state = "queued";
    }
  }

  leaseLost(): void {
    this.state = this.grant?.safe === true ? (this.cancelAsked ? "cancelled" : "queued") : "needs_reconciliation";
  }

  cancel(mode: string): string {
    if (isSettled(this.state)) {
      return "unchanged";
    }
    if (this.state === "needs_reconciliation") {
      return "not_cancellable";
    }
    if (this.state !== "running" || mode !== "kill") {
      this.state = "cancelled";
      return "append";
    }
    if (this.grant?.cancellable !== true) {
      return "not_cancellable";
    }
    const again = this.cancelAsked;
    this.cancelAsked = true;
    return again ? "unchanged" : "append";
  }

  timers(nowMs: number): void {
    const late = this.deadlineMs !== null && nowMs >= this.deadlineMs;
    if (this.state === "awaiting_confirmation" && nowMs >= this.endsMs) {
      this.state = "denied";
    } else if (this.state === "submitted" && nowMs >= this.endsMs) {
      this.state = "timed_out";
    } else if (this.state === "queued" && late) {
      this.state = "timed_out";
    } else if (this.state === "running" && late) {
      this.state = this.grant?.safe === true ? "timed_out" : "needs_reconciliation";
    }
  }

  exhaust(): void {
    if (this.state === "queued" && this.attempts >= this.setting.maxAttempts) {
      this.state = "failed";
    }
  }

  reconcile(outcome: string, valid: boolean, nowMs: number): void {
    if (this.state !== "needs_reconciliation") {
      return;
    }
    const left = this.attempts < this.setting.maxAttempts && this.deadlineMs !== null && nowMs < this.deadlineMs;
    this.state = outcome === "applied" ? (valid ? "succeeded" : "failed") : outcome === "not_applied" && left ? "queued" : "failed";
  }

  receipt(grantId: string, { digest, outcome, retryable, valid }: Extract<Command, { kind: "receipt" }>, nowMs: number): string {
    if (!this.grants.has(grantId)) {
      return "expired";
    }
    const key = `${grantId} ${digest}`;
    if (this.stored.has(key)) {
      return "repeated";
    }
    this.stored.add(key);
    const submittedAgain = this.state === "submitted" && outcome === "submitted";
    const consumed = this.consumedGrant === grantId && this.state !== "submitted";
    if (grantId !== this.grant?.id || isSettled(this.state) || consumed || submittedAgain) {
      return "evidence";
    }
    const { maxAttempts } = this.setting;
    const retries =
      this.state === "running" &&
      retryable &&
      this.grant.safe &&
      !this.cancelAsked &&
      this.attempts < maxAttempts &&
      this.deadlineMs !== null &&
      nowMs + backOff(this.attempts) < this.deadlineMs;
    if (outcome === "submitted") {
      this.state = "submitted";
      this.endsMs = nowMs + WEEK_MS;
      this.deadlineMs = null;
      this.consumedGrant = grantId;
    } else if (outcome === "failed" && retries) {
      this.state = "queued";
      this.consumedGrant = grantId;
    } else {
      this.state = outcome === "succeeded" && !valid ? "failed" : outcome;
    }
    return "settled";
  }
}

const backOff = (attempt: number): number => 250 * 2 ** (attempt - 1);

/** The broker's side: state by the machine, entries by the decisions. */
class Subject {
  state: CallState = { kind: "requested" };
  readonly grants: string[] = [];
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

function accept(setting: CallSetting): { readonly subject: Subject; readonly reference: Reference } {
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
  return { subject, reference: new Reference(setting, SAMPLE_START_MS) };
}

/** Does `command` on both sides and compares what is answered. */
function run(command: Command, subject: Subject, reference: Reference, nowMs: number): void {
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
      subject.maybe(decideDeadline(state, nowMs));
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
