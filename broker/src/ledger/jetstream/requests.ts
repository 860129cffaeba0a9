/**
 * Requests to JetStream that are repeated until their outcome is known (L2).
 *
 * One subscription takes all answers; one timer serves all requests. This is half the processor time of the client's own
 * request, which makes a timer and several objects for each.
 *
 * Invariants:
 * - A repeat is the same subject, headers and payload. Only an answer to the newest attempt counts.
 * - Nothing is sent while the connection is down or its server may not be used; what was in flight then is repeated afterwards.
 * - A request ends with an answer of JetStream, or with `closed`.
 */
import { createInbox, type Msg, type MsgHdrs, type NatsConnection, type Subscription } from "@nats-io/nats-core";
import type { Clock } from "../../domain/ports/clock.js";
import { LedgerError } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { closedError } from "../append-rules.js";
import type { ConnectionWatch } from "./connection-watch.js";

/** An answer of JetStream, parsed. `error` is set when it refuses. */
export interface ApiAnswer {
  readonly error?: ApiError;
  readonly [field: string]: unknown;
}
export interface ApiError {
  readonly code?: number;
  readonly err_code?: number;
  readonly description?: string;
}

export interface Answered {
  readonly answer: ApiAnswer;
  /** Attempts whose outcome is not known, before the one that was answered. */
  readonly unknownAttempts: number;
}

/** API error of a publish whose expected last sequence is not the present one. */
export const WRONG_LAST_SEQUENCE = 10_071;
/** API error of a read for a message that is not there. */
export const NO_MESSAGE_FOUND = 10_037;
/** API error of a deletion that failed, also because the message is gone. */
export const DELETE_FAILED = 10_057;
/** API error for a stream that does not exist. */
export const STREAM_NOT_FOUND = 10_059;

/** API error for a stream with replicas on a server that is not part of a cluster. */
export const REPLICAS_NOT_SUPPORTED = 10_074;

/** API error for a stream whose subjects another stream has. */
export const SUBJECTS_OVERLAP = 10_065;

const TICK_MS = 50;
const ATTEMPT_TIMEOUT_MS = 1_000;
const ATTEMPT_TIMEOUT_MAX_MS = 8_000;
const BACKOFF_MS = 50;
const BACKOFF_MAX_MS = 2_000;
/** After a reconnect, what waits is sent spread over this time. */
const RECONNECT_SPREAD_MS = 200;
const REPORT_AFTER_MS = 2_000;
const REPORT_EVERY_MS = 5_000;

interface Operation {
  readonly subject: string;
  readonly payload: string | Uint8Array;
  readonly headers: MsgHdrs | undefined;
  /** Whether an answer says what came of the request; otherwise it is repeated. */
  readonly isKnown: (answer: ApiAnswer) => boolean;
  readonly resolve: (answered: Answered) => void;
  readonly reject: (error: LedgerError) => void;
  readonly begunAt: number;
  attempts: number;
  /** Of the newest attempt, while it is in flight; of the next one, while it waits. */
  dueAt: number;
}

export interface RequestOptions {
  readonly connection: NatsConnection;
  readonly watch: ConnectionWatch;
  readonly clock: Clock;
  readonly log: Log;
  /** In [0, 1). Default `Math.random`. */
  readonly random?: () => number;
  /** Runs a task at the end of the present turn of the event loop. Default `setImmediate`. */
  readonly endOfTurn?: (task: () => void) => void;
}

/** Answers to publishes: stored, or the compare failed. Everything else leaves the outcome open. */
function publishIsKnown({ error, seq }: ApiAnswer): boolean {
  return error === undefined ? typeof seq === "number" : error.err_code === WRONG_LAST_SEQUENCE;
}

/** Answers to reads and the like: a result, or an error that will not go away by itself. */
function readIsKnown({ error }: ApiAnswer): boolean {
  if (error === undefined || error.code === 404 || error.code === 400) return true;
  return error.err_code === REPLICAS_NOT_SUPPORTED || error.err_code === DELETE_FAILED;
}

/** See the module's header. */
export class Requests {
  readonly #connection: NatsConnection;
  readonly #watch: ConnectionWatch;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #random: () => number;
  readonly #endOfTurn: (task: () => void) => void;
  readonly #inbox: string;
  readonly #subscription: Subscription;
  /** In the order of sending. */
  readonly #inFlight = new Map<string, Operation>();
  /** Sent at the end of this turn, as one write. */
  #outbox: { readonly token: string; readonly operation: Operation }[] = [];
  #waiting: Operation[] = [];
  #lastToken = 0;
  #timer: { cancel(): void } | undefined;
  #closed = false;
  #lastReportAt = Number.NEGATIVE_INFINITY;
  #lastReason = "";

  constructor({ connection, watch, clock, log, random = Math.random, endOfTurn = setImmediate }: RequestOptions) {
    this.#connection = connection;
    this.#watch = watch;
    this.#clock = clock;
    this.#log = log;
    this.#random = random;
    this.#endOfTurn = endOfTurn;
    this.#inbox = `${createInbox()}.`;
    this.#subscription = connection.subscribe(`${this.#inbox}*`, {
      callback: (error, message) => {
        if (error === null) this.#answered(message);
      },
    });
    watch.onChange(() => this.#connectionChanged());
    void watch.closed.then(() => this.close());
  }

  /** Why the newest attempt that has to be repeated failed; empty when none did. */
  get lastReason(): string {
    return this.#lastReason;
  }

  /** Publishes until it is known whether the message is stored: `answer` has `seq`, or the error {@link WRONG_LAST_SEQUENCE}. */
  publish(subject: string, payload: string | Uint8Array, headers?: MsgHdrs): Promise<Answered> {
    return this.#begin(subject, payload, headers, publishIsKnown);
  }

  /** Asks JetStream's API until it answers: a result, or an error that will not go away by itself. */
  async ask(subject: string, body: object = {}): Promise<ApiAnswer> {
    return (await this.#begin(subject, JSON.stringify(body), undefined, readIsKnown)).answer;
  }

  /** Rejects all that is not known, and everything after it, with `closed`. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#timer?.cancel();
    if (!this.#connection.isClosed()) this.#subscription.unsubscribe();
    const open = [...this.#inFlight.values(), ...this.#waiting];
    this.#inFlight.clear();
    this.#waiting = [];
    for (const operation of open) {
      operation.reject(new LedgerError("closed", "the ledger was closed before the outcome was known: it may be stored"));
    }
  }

  #begin(
    subject: string,
    payload: string | Uint8Array,
    headers: MsgHdrs | undefined,
    isKnown: (answer: ApiAnswer) => boolean,
  ): Promise<Answered> {
    if (this.#closed) return Promise.reject(closedError("request"));
    return new Promise((resolve, reject) => {
      const now = this.#clock.monotonic();
      const operation: Operation = { subject, payload, headers, isKnown, resolve, reject, begunAt: now, attempts: 0, dueAt: now };
      if (this.#watch.usable) this.#send(operation, now);
      else this.#waiting.push(operation);
      this.#timer ??= this.#clock.schedule(TICK_MS, () => this.#tick());
    });
  }

  #send(operation: Operation, now: number): void {
    operation.attempts += 1;
    operation.dueAt = now + Math.min(ATTEMPT_TIMEOUT_MS * 2 ** (operation.attempts - 1), ATTEMPT_TIMEOUT_MAX_MS);
    this.#lastToken += 1;
    const token = this.#lastToken.toString(36);
    this.#inFlight.set(token, operation);
    this.#outbox.push({ token, operation });
    // The connection writes once for all that is published in one run of microtasks, and a turn has many of those: a write that
    // wakes the server up costs more than what it carries.
    if (this.#outbox.length === 1) this.#endOfTurn(() => this.#flush());
  }

  #flush(): void {
    const outbox = this.#outbox;
    this.#outbox = [];
    for (const { token, operation } of outbox) {
      // Meanwhile the connection changed, and it waits to be repeated, or everything was closed.
      if (this.#inFlight.get(token) !== operation) continue;
      const { subject, payload, headers } = operation;
      const reply = this.#inbox + token;
      try {
        this.#connection.publish(subject, payload, headers === undefined ? { reply } : { reply, headers });
      } catch (error) {
        this.#inFlight.delete(token);
        this.#repeatLater(operation, this.#clock.monotonic(), error instanceof Error ? error.message : String(error));
      }
    }
  }

  #answered(message: Msg): void {
    const token = message.subject.slice(this.#inbox.length);
    const operation = this.#inFlight.get(token);
    if (operation === undefined) return;
    this.#inFlight.delete(token);
    const now = this.#clock.monotonic();
    if (message.data.length === 0) return this.#repeatLater(operation, now, message.headers?.status ?? "an empty answer");
    let answer: ApiAnswer;
    try {
      answer = message.json<ApiAnswer>();
    } catch {
      return this.#repeatLater(operation, now, "an answer that is not JSON");
    }
    if (operation.isKnown(answer)) operation.resolve({ answer, unknownAttempts: operation.attempts - 1 });
    else this.#repeatLater(operation, now, `${answer.error?.err_code ?? "?"} ${answer.error?.description ?? "an answer without a result"}`);
  }

  #repeatLater(operation: Operation, now: number, reason: string): void {
    this.#lastReason = reason;
    const delayMs = Math.min(BACKOFF_MS * 2 ** (operation.attempts - 1), BACKOFF_MAX_MS) * (0.5 + this.#random() / 2);
    operation.dueAt = now + delayMs;
    this.#waiting.push(operation);
  }

  #connectionChanged(): void {
    const now = this.#clock.monotonic();
    // Answers to what was in flight are lost with the old connection, and a reconnect may pass without its disconnect.
    for (const operation of this.#inFlight.values()) this.#waiting.push(operation);
    this.#inFlight.clear();
    if (!this.#watch.usable) {
      this.#lastReason = this.#watch.refusal?.message ?? "disconnected";
      return;
    }
    for (const operation of this.#waiting) operation.dueAt = now + this.#random() * RECONNECT_SPREAD_MS;
  }

  #tick(): void {
    this.#timer = undefined;
    if (this.#closed) return;
    const now = this.#clock.monotonic();
    for (const [token, operation] of this.#inFlight) {
      if (operation.dueAt <= now) {
        this.#inFlight.delete(token);
        this.#repeatLater(operation, now, "no answer");
      }
    }
    if (this.#watch.usable && this.#waiting.length > 0) {
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const operation of waiting) {
        if (operation.dueAt <= now) this.#send(operation, now);
        else this.#waiting.push(operation);
      }
    }
    this.#report(now);
    if (this.#inFlight.size + this.#waiting.length > 0) this.#timer = this.#clock.schedule(TICK_MS, () => this.#tick());
  }

  #report(now: number): void {
    if (now - this.#lastReportAt < REPORT_EVERY_MS) return;
    let oldest = now;
    for (const { begunAt } of this.#inFlight.values()) oldest = Math.min(oldest, begunAt);
    for (const { begunAt } of this.#waiting) oldest = Math.min(oldest, begunAt);
    if (now - oldest < REPORT_AFTER_MS) return;
    this.#lastReportAt = now;
    this.#log.warn("ledger_outcome_unknown", {
      requests: this.#inFlight.size + this.#waiting.length,
      oldest_ms: Math.round(now - oldest),
      reason: this.#lastReason,
    });
  }
}
