/**
 * Runs one grant: authorize, journal the start, run the handler, journal the end.
 *
 * Invariants:
 * - E1 The handler's first line comes after its `started` record is durable, and only within the lease (G2, G3).
 * - E2 A dropped execution never reaches that line; what it had journaled says so.
 * - E3 The receipt is handed on only after `finished` is durable (I7).
 * - E4 Whatever the handler does (throws, never ends, reports late, ends twice) makes at most one receipt.
 */
import { callContext } from "./call-context.js";
import { betweenMs, type Clock, type Instant, instant } from "./clock.js";
import {
  type AbortCode,
  AbortReason,
  type Authorization,
  type AuthorizeContext,
  type CallContext,
  type ProgressUpdate,
  Submission,
  type ToolContext,
} from "./context.js";
import type { Sha256 } from "./digest.js";
import { messageOf } from "./errors.js";
import type { Handler } from "./handlers.js";
import type { JournalRecord } from "./journal.js";
import type { JournalGate } from "./journal-gate.js";
import { toJsonText, utf8Bytes } from "./json.js";
import type { Lease } from "./lease.js";
import type { EventLog, LogFields } from "./log.js";
import type { Grant, Outcome, Receipt } from "./messages.js";
import { failure, outcomeOfThrow, outcomeOfValue, RESULT_BYTES_DEFAULT, receiptOf } from "./outcome.js";
import type { SessionLink } from "./session-link.js";
import { cancelAnswerFrame, declineFrame, progressFrame, startedFrame } from "./wire.js";

/** Bytes that one update may have. */
export const PROGRESS_BYTES_MAX = 16_384;

/** What an execution needs from its surroundings. */
export interface ExecutionHost {
  readonly clock: Clock;
  readonly log: EventLog;
  readonly journal: JournalGate;
  readonly sha256: Sha256;
  readonly authorize: ((ctx: AuthorizeContext) => Authorization | Promise<Authorization>) | undefined;
  /** The session that is up, if one is. */
  link(): SessionLink | null;
  /** Takes a receipt whose record is durable. */
  deliver(receipt: Receipt): void;
  /** Takes the signal of a handler that returned a handle, where the handler looked at it. */
  submitted(callId: string, controller: AbortController): void;
}

/** `withdrawing`: it will not start, and its journaled start is being taken back. `finishing`: the handler has ended. */
export type ExecutionPhase = "admitting" | "starting" | "withdrawing" | "running" | "finishing" | "over";

/** Why a handler does not begin. */
type Obstacle =
  | { readonly kind: "decline"; readonly reason: "unavailable" | "forbidden"; readonly message: string }
  | { readonly kind: "settle"; readonly outcome: Outcome }
  | { readonly kind: "dropped" };

/** One grant from its arrival to its receipt. */
export class Execution {
  phase: ExecutionPhase = "admitting";
  /** Number of the first answer of the present session (0: its hello) that listed this grant; null before. */
  listedFrom: number | null = null;
  /** What came of it, from when that is known until it is durable; null before and after. */
  unwritten: Receipt | null = null;
  /** Resolves when it is settled, durably unless the phase is `withdrawing`, whether the handler begins. */
  readonly startDecided: Promise<void>;
  /** Resolves when nothing more will come of it. */
  readonly done: Promise<void>;
  /** Made when somebody looks at the signal: most handlers never do. */
  #controller: AbortController | null = null;
  readonly #receivedAt: Instant;
  #abortReason: AbortReason | null = null;
  #dropped = false;
  #cancelDelivered = false;
  #decideStart: () => void = () => {};

  constructor(
    private readonly host: ExecutionHost,
    readonly grant: Grant,
    readonly handler: Handler,
    private readonly args: unknown,
    readonly lease: Lease,
    receivedAt: Instant,
  ) {
    this.#receivedAt = receivedAt;
    this.startDecided = new Promise((resolve) => {
      this.#decideStart = resolve;
    });
    this.done = this.#run()
      .catch((error: unknown) => host.log.error("execution_failed", { ...this.#name, message: messageOf(error) }))
      .finally(() => {
        this.phase = "over";
        this.#decideStart();
      });
  }

  /** When the lease or the deadline is over next, in ms from that moment; null when nothing more is to be watched. */
  watchMs(now: Instant): number | null {
    if (this.#ended || this.#abortCode !== null) return null;
    return Math.min(this.lease.leftMs(now), this.#remainingMs(now));
  }

  /** Aborts what is overdue at that moment. */
  checkTime(now: Instant): void {
    if (this.lease.leftMs(now) <= 0)
      this.abort("lease_lost", "the lease of this grant is over: the broker may have given the call to another runner");
    else if (this.#remainingMs(now) <= 0) this.abort("deadline", "the call's time is up");
  }

  /** Aborts the handler's signal; the first reason stays. What comes of the handler is still journaled and sent. */
  abort(code: AbortCode, message: string): void {
    if (this.#abortReason !== null || this.#ended) return;
    this.host.log.debug("handler_aborted", { ...this.#name, reason: code });
    this.#abortWith(new AbortReason(code, message));
  }

  /** Keeps it from starting, without a word to the broker; true when it had not started. The caller reports. */
  drop(): boolean {
    if (this.phase !== "admitting" && this.phase !== "starting") return false;
    this.#dropped = true;
    this.abort("revoked", "the grant was taken back before it started");
    return true;
  }

  /** A cancel arrived. */
  cancel(reason: string): void {
    const stoppable =
      this.phase === "admitting" || this.phase === "starting" || (this.phase === "running" && this.handler.tool.cancellable);
    if (!stoppable) {
      this.host.link()?.send(cancelAnswerFrame(this.grant, "ignored"));
      return;
    }
    this.host.link()?.send(cancelAnswerFrame(this.grant, "delivered"));
    this.#cancelDelivered = true;
    this.abort("cancelled", reason === "" ? "the call was cancelled" : reason);
  }

  #abortWith(reason: AbortReason): void {
    this.#abortReason ??= reason;
    this.#controller?.abort(this.#abortReason);
  }

  /** What is left until the call's deadline, in ms. */
  #remainingMs(now: Instant): number {
    return this.grant.remainingMs - betweenMs(this.#receivedAt, now);
  }

  get #abortCode(): AbortCode | null {
    return this.#abortReason?.code ?? null;
  }

  get #signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#abortReason !== null) this.#controller.abort(this.#abortReason);
    }
    return this.#controller.signal;
  }

  get #ended(): boolean {
    return this.phase === "withdrawing" || this.phase === "finishing" || this.phase === "over";
  }

  get #name() {
    return { call_id: this.grant.callId, grant_id: this.grant.grantId, tool: this.grant.tool };
  }

  async #run(): Promise<void> {
    const { host, grant } = this;
    host.journal.note(grantedRecord(grant, this.#receivedAt.wallMs));
    const turnedAway = await this.#admit();
    if (turnedAway !== null) return this.#turnAway(turnedAway, false);
    this.phase = "starting";
    const startedAt = host.clock.now();
    try {
      await host.journal.append({ kind: "started", grantId: grant.grantId, at: startedAt });
    } catch (error) {
      const message = `the runner's journal cannot be written: ${messageOf(error)}`;
      return this.#turnAway(this.#dropped ? { kind: "dropped" } : { kind: "decline", reason: "unavailable", message }, true);
    }
    const beginsAt = instant(host.clock);
    const obstacle = this.#obstacle(beginsAt);
    if (obstacle !== null) return this.#turnAway(obstacle, true);
    this.phase = "running";
    this.#decideStart();
    host.link()?.send(startedFrame(grant, startedAt));
    const outcome = await this.#handle(beginsAt);
    this.phase = "finishing";
    // What the handler left behind goes with it; a submission's work goes on.
    if (outcome.kind !== "submitted") this.#abortWith(new AbortReason("ended", "the handler has ended"));
    await this.#finish(outcome, startedAt);
  }

  async #admit(): Promise<Obstacle | null> {
    const { authorize } = this.host;
    if (authorize === undefined) return this.#obstacle(this.#receivedAt);
    let answer: unknown;
    try {
      const asked = Promise.resolve(authorize(this.#context(this.#receivedAt, { arguments: this.args })));
      answer = await Promise.race([asked, aborted(this.#signal)]);
    } catch (error) {
      return (
        this.#obstacle(instant(this.host.clock)) ?? {
          kind: "settle",
          outcome: failure("handler_error", `authorize threw: ${messageOf(error)}`),
        }
      );
    }
    const obstacle = this.#obstacle(instant(this.host.clock));
    if (obstacle !== null) return obstacle;
    if (isAuthorization(answer)) {
      return answer.kind === "allow" ? null : { kind: "decline", reason: "forbidden", message: answer.reason };
    }
    return {
      kind: "settle",
      outcome: failure("handler_error", "authorize must return allow() or forbid(reason), and returned something else"),
    };
  }

  /** Why the handler must not begin at that moment; null when it may. */
  #obstacle(now: Instant): Obstacle | null {
    if (this.#dropped) return { kind: "dropped" };
    if (this.#abortCode === "cancelled")
      return { kind: "settle", outcome: { kind: "cancelled", message: "cancelled before the handler began" } };
    const unavailable = (message: string): Obstacle => ({ kind: "decline", reason: "unavailable", message });
    if (this.lease.leftMs(now) <= 0) return unavailable("the lease was over before the handler could begin");
    if (this.#remainingMs(now) <= 0) return unavailable("the call's time was up before the handler could begin");
    if (this.#abortCode !== null) return unavailable(`the runner does not start it: ${this.#abortCode}`);
    return null;
  }

  /** Ends it before the handler's first line. `startWritten`: the journal has, or may have, its start. */
  async #turnAway(obstacle: Obstacle, startWritten: boolean): Promise<void> {
    const { host, grant } = this;
    if (obstacle.kind === "settle") {
      this.phase = "finishing";
      this.#decideStart();
      return this.#finish(obstacle.outcome, 0);
    }
    const refused: JournalRecord = { kind: "refused", ...nameOf(grant), neverStarted: true, at: host.clock.now() };
    // A start on disk without a handler would be reported as an unknown outcome after a crash: taken back first.
    const written = !startWritten || (await this.#withdraw(refused));
    if (obstacle.kind === "dropped") return;
    if (!startWritten) host.journal.note(refused);
    // The reason for forbidding is the product's own text: not for logs (I10).
    const message = obstacle.reason === "forbidden" ? "authorize forbids it" : obstacle.message;
    host.log.info("grant_declined", { ...this.#name, reason: obstacle.reason, message });
    if (!written) return;
    // A lost decline is asked about again, and the refusal is answered then.
    host.link()?.send(declineFrame(grant, obstacle.reason, obstacle.message));
    host.journal.note({ kind: "acknowledged", grantId: grant.grantId, at: host.clock.now() });
  }

  async #withdraw(refused: JournalRecord): Promise<boolean> {
    try {
      await this.host.journal.append(refused);
      return true;
    } catch {
      this.phase = "withdrawing";
      this.#decideStart();
      return this.host.journal.appendUntilWritten(refused);
    }
  }

  async #handle(beginsAt: Instant): Promise<Outcome> {
    const { handler } = this;
    try {
      const value: unknown = await handler.tool.run(this.args, this.#toolContext(beginsAt));
      return outcomeOfValue(handler, value, this.#resultLimit());
    } catch (error) {
      this.host.log.info("handler_threw", { ...this.#name, aborted: this.#abortCode });
      return outcomeOfThrow(handler, error, this.#abortCode);
    }
  }

  async #finish(outcome: Outcome, startedAtUnixMs: number): Promise<void> {
    const { host } = this;
    const finishedAtUnixMs = host.clock.now();
    const receipt = await receiptOf(host.sha256, this.grant, outcome, { startedAtUnixMs, finishedAtUnixMs });
    this.unwritten = receipt;
    const written = await host.journal.appendUntilWritten({ kind: "finished", receipt, at: finishedAtUnixMs });
    this.unwritten = null;
    if (!written) {
      host.log.error("receipt_not_journaled", { ...this.#name, outcome: outcome.kind });
      return;
    }
    if (this.#cancelDelivered) host.link()?.send(cancelAnswerFrame(this.grant, outcome.kind === "cancelled" ? "stopped" : "ignored"));
    // Kept before the broker can know of the handle, and so before it can take the call back.
    if (outcome.kind === "submitted" && this.#controller !== null && this.#abortReason === null)
      host.submitted(this.grant.callId, this.#controller);
    host.deliver(receipt);
  }

  #resultLimit(): number {
    const session = this.host.link()?.limits;
    const limits = [this.grant.maxResultBytes, session?.chunkedResultBytes || session?.resultBytes || 0].filter((limit) => limit > 0);
    return limits.length === 0 ? RESULT_BYTES_DEFAULT : Math.min(...limits);
  }

  /** What a handler and `authorize` both see, with what only one of them does. */
  #context<More extends object>(now: Instant, more: More): CallContext & More {
    const deadline = new Date(now.wallMs + this.#remainingMs(now));
    return callContext(this.grant, this.host.journal.journalId, deadline, () => this.#signal, more);
  }

  #toolContext(now: Instant): ToolContext {
    const { tool } = this.handler;
    return this.#context(now, {
      progress: (update: ProgressUpdate) => this.#progress(update),
      submit: (handle: unknown) => {
        if (tool.resultSemantics !== "submission") {
          throw new Error(
            `tool "${tool.name}" has result semantics "completion": define it with resultSemantics: "submission" to use ctx.submit`,
          );
        }
        return new Submission(handle);
      },
    });
  }

  #progress(update: unknown): void {
    const drop = (reason: string, more: LogFields = {}) => this.host.log.warn("progress_dropped", { ...this.#name, reason, ...more });
    if (this.phase !== "running") return drop("handler_ended");
    const link = this.host.link();
    if (link === null) return drop("not_connected");
    if (link.congested) return drop("connection_slow");
    try {
      const { text = "", percentage, data } = (update ?? {}) as { text?: unknown; percentage?: unknown; data?: unknown };
      if (typeof text !== "string") return drop("text_not_a_string");
      const frame = {
        text,
        percentage: typeof percentage === "number" && Number.isFinite(percentage) ? Math.min(100, Math.max(0, percentage)) : undefined,
        dataJson: data === undefined ? "" : toJsonText(data),
      };
      if (text === "" && frame.percentage === undefined && data === undefined) return drop("empty");
      const limit = link.limits.progressBytes > 0 ? link.limits.progressBytes : PROGRESS_BYTES_MAX;
      const bytes = utf8Bytes(frame.text) + utf8Bytes(frame.dataJson);
      if (bytes > limit) return drop("too_large", { bytes, limit });
      link.send(progressFrame(this.grant, frame));
    } catch {
      // Not JSON, or a getter that throws. Where and what would be payload: not for logs (I10).
      drop("not_json");
    }
  }
}

const nameOf = ({ callId, grantId, fence }: Grant) => ({ callId, grantId, fence });

/** The record that a grant was taken. */
export const grantedRecord = ({ callId, grantId, fence, attempt, tool, version }: Grant, at: number): JournalRecord => ({
  kind: "granted",
  callId,
  grantId,
  fence,
  attempt,
  tool,
  version,
  at,
});

function isAuthorization(answer: unknown): answer is Authorization {
  if (typeof answer !== "object" || answer === null || !("kind" in answer)) return false;
  return answer.kind === "allow" || (answer.kind === "forbid" && "reason" in answer && typeof answer.reason === "string");
}

/** Resolves when the signal aborts. */
function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
