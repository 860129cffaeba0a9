/** A second, simple telling of a call's life, for tests to compare the machine and its decisions with: states and conditions only. */
import { type CallStateName, isSettled } from "../domain/call-view.js";

/** The sample call's time-out. */
export const TIMEOUT_MS = 60_000;
export const CONFIRMATION_MS = 600_000;
export const WEEK_MS = 604_800_000;
/** A reconcile handler has this long to answer. */
export const ANSWER_MS = 32_000;

/** What a call is made with. */
export interface CallSetting {
  readonly toolSafe: boolean;
  readonly toolCancellable: boolean;
  readonly maxAttempts: number;
  readonly confirm: boolean;
}

export type Outcome = "succeeded" | "failed" | "cancelled" | "submitted";

export interface ReferenceReceipt {
  readonly digest: string;
  readonly outcome: Outcome;
  readonly retryable: boolean;
  readonly valid: boolean;
}

/** The call as the architecture tells of it. */
export class ReferenceCall {
  state: CallStateName;
  attempts = 0;
  deadlineMs: number | null;
  private endsMs = 0;
  private grant: { readonly id: string; readonly safe: boolean; readonly cancellable: boolean } | undefined;
  private readonly grants = new Set<string>();
  private asked: { readonly id: string; readonly endsMs: number } | undefined;
  private asks = 0;
  private askNotBeforeMs = 0;
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
      this.forgetAsks();
      this.state = "needs_reconciliation";
    } else if (this.cancelAsked) {
      this.state = "cancelled";
    } else {
      this.attempts -= 1;
      this.state = "queued";
    }
  }

  leaseLost(): void {
    this.forgetAsks();
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

  /** Whether a reconcile handler may be asked. */
  ask(id: string, nowMs: number): boolean {
    const lost = this.state === "running" && this.grant?.safe === false;
    if (lost) {
      this.forgetAsks();
    }
    if (!(lost || this.state === "needs_reconciliation") || nowMs < this.askNotBeforeMs || this.asks >= 64) {
      return false;
    }
    this.asks = lost ? 1 : this.asks + 1;
    this.state = "needs_reconciliation";
    this.asked = { id, endsMs: nowMs + ANSWER_MS };
    this.askNotBeforeMs = nowMs + Math.min(60_000, 1_000 * 2 ** (this.asks - 1));
    return true;
  }

  /** What the handler that was asked as `id` says; false: nobody hears it. */
  answered(id: string, outcome: "applied" | "not_applied" | "unknown", valid: boolean, nowMs: number): boolean {
    if (this.state !== "needs_reconciliation" || this.asked?.id !== id) {
      return false;
    }
    if (outcome !== "unknown") {
      this.reconcile(outcome, valid, nowMs);
      return true;
    }
    this.unanswered(nowMs);
    return true;
  }

  private unanswered(nowMs: number): void {
    this.asked = undefined;
    this.askNotBeforeMs = this.asks < 5 ? nowMs + 500 * 2 ** (this.asks - 1) : this.askNotBeforeMs;
  }

  timers(nowMs: number): void {
    if (this.state === "needs_reconciliation" && this.asked !== undefined && nowMs >= this.asked.endsMs) {
      this.unanswered(nowMs);
    }
    const late = this.deadlineMs !== null && nowMs >= this.deadlineMs;
    if (this.state === "awaiting_confirmation" && nowMs >= this.endsMs) {
      this.state = "denied";
    } else if (this.state === "submitted" && nowMs >= this.endsMs) {
      this.state = "timed_out";
    } else if (this.state === "queued" && late) {
      this.state = "timed_out";
    } else if (this.state === "running" && late) {
      this.forgetAsks();
      this.state = this.grant?.safe === true ? "timed_out" : "needs_reconciliation";
    }
  }

  private forgetAsks(): void {
    this.asked = undefined;
    this.asks = 0;
    this.askNotBeforeMs = 0;
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
    if (outcome === "not_applied" && this.cancelAsked) {
      this.state = "cancelled";
      return;
    }
    const left = this.attempts < this.setting.maxAttempts && this.deadlineMs !== null && nowMs < this.deadlineMs;
    this.state = outcome === "applied" ? (valid ? "succeeded" : "failed") : outcome === "not_applied" && left ? "queued" : "failed";
  }

  receipt(grantId: string, { digest, outcome, retryable, valid }: ReferenceReceipt, nowMs: number): string {
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
