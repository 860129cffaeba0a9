/**
 * Keeps a session up: dials, hands the channel to a session, and turns how it ended into what comes next.
 *
 * Invariants: an attempt resolves to an outcome and never throws; redials are unlimited, jittered, and begin small again only
 * after a session that was up for the minimum time; a code that says "never" is obeyed, and 4401 only with another credential.
 */
import { CLOSE_CODES, ERROR_CODES, isErrorCode, type RedialRule, redialRule } from "@toolrunner/proto";
import { backOffMs } from "./back-off.js";
import { type Clock, pause } from "./clock.js";
import { ConnectError, messageOf } from "./errors.js";
import type { EventLog } from "./log.js";
import type { SessionEnd } from "./session.js";
import type { Transport } from "./transport.js";
import type { RunnerChannel } from "./wire.js";

const CONNECT_TIMEOUT_MS = 15_000;
/** Attempts of those that are woken together are spread over this time. */
const WAKE_DELAY_MS = 500;
/** A session that was up this long lets the back-off begin anew. */
const MIN_UP_MS = 5_000;

/** How an attempt ended. `served`: a session was up, and another may be made. */
export type AttemptOutcome =
  | { readonly kind: "served"; readonly reason: string; readonly upMs: number; readonly retryAfterMs: number }
  | { readonly kind: "retryable"; readonly reason: string; readonly retryAfterMs: number }
  | { readonly kind: "credential"; readonly code: string; readonly message: string }
  | { readonly kind: "fatal"; readonly code: string; readonly message: string }
  | { readonly kind: "ended" };

/** Why the supervisor gave up. */
export type SupervisorEnd = { readonly kind: "stopped" } | { readonly kind: "refused"; readonly code: string; readonly message: string };

export interface SupervisorOptions {
  readonly transport: Transport;
  /** The credential to use now; asked again for every attempt. */
  readonly credential: () => Promise<string>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: EventLog;
  /** Runs a session over the channel until it ends. */
  readonly serve: (channel: RunnerChannel, credential: string) => Promise<SessionEnd>;
  readonly onConnecting: () => void;
  readonly onRetrying: (reason: string, nextTryAt: Date) => void;
  /** Resolves when an attempt may be made; its rejection is the attempt's. Default: at once. */
  readonly ready?: (signal: AbortSignal) => Promise<void>;
  /** Calls back when it is worth trying again at once; the answer takes the listener off. Default: never. */
  readonly onWake?: (listener: () => void) => () => void;
  /** Aborts when no session is wanted any more; a session that is up ends by itself. */
  readonly signal: AbortSignal;
}

/** Dials until it is stopped or refused for good. Never rejects. */
export async function supervise(options: SupervisorOptions): Promise<SupervisorEnd> {
  const { clock, log, signal } = options;
  let failures = 0;
  while (!signal.aborted) {
    options.onConnecting();
    const { outcome, credential } = await attempt(options);
    log.info("attempt_ended", {
      outcome: outcome.kind,
      reason: "reason" in outcome ? outcome.reason : "code" in outcome ? outcome.code : null,
    });
    if (signal.aborted) break;
    let reason: string;
    let retryAfterMs = 0;
    switch (outcome.kind) {
      case "ended":
        return { kind: "stopped" };
      case "fatal":
        return { kind: "refused", code: outcome.code, message: outcome.message };
      case "credential":
        if (credential === null || !(await hasAnother(options, credential)))
          return { kind: "refused", code: outcome.code, message: outcome.message };
        reason = outcome.message;
        break;
      case "served":
        if (outcome.upMs >= MIN_UP_MS) failures = 0;
        ({ reason, retryAfterMs } = outcome);
        break;
      case "retryable":
        ({ reason, retryAfterMs } = outcome);
        break;
    }
    failures++;
    const delayMs = Math.max(retryAfterMs, backOffMs(failures, options.random));
    options.onRetrying(reason, new Date(clock.now() + delayMs));
    await pauseUntilWoken(options, delayMs, retryAfterMs > 0);
  }
  return { kind: "stopped" };
}

/** Waits, but not on when it is worth trying again: then only a moment of chance, since many may be woken at once. */
async function pauseUntilWoken({ clock, signal, onWake, random }: SupervisorOptions, delayMs: number, isAsked: boolean): Promise<void> {
  // How long the broker asked to be left alone is not for us to shorten.
  if (onWake === undefined || isAsked) return pause(clock, delayMs, signal);
  const end = new AbortController();
  const abort = () => end.abort();
  const off = onWake(abort);
  signal.addEventListener("abort", abort);
  if (signal.aborted) abort();
  const before = clock.monotonic();
  await pause(clock, delayMs, end.signal);
  off();
  signal.removeEventListener("abort", abort);
  const leftMs = delayMs - (clock.monotonic() - before);
  if (!signal.aborted && leftMs > 0) await pause(clock, Math.min(leftMs, WAKE_DELAY_MS * random()), signal);
}

/** Whether the source of credentials has a newer one than what was refused. */
async function hasAnother(options: SupervisorOptions, refused: string): Promise<boolean> {
  try {
    return (await options.credential()) !== refused;
  } catch {
    // It cannot say now: the next attempt asks again.
    return true;
  }
}

async function attempt(options: SupervisorOptions): Promise<{ readonly outcome: AttemptOutcome; readonly credential: string | null }> {
  let credential: string;
  try {
    await options.ready?.(options.signal);
  } catch (error) {
    return { outcome: { kind: "retryable", reason: messageOf(error), retryAfterMs: 0 }, credential: null };
  }
  try {
    credential = await options.credential();
  } catch (error) {
    return { outcome: { kind: "retryable", reason: `no credential: ${messageOf(error)}`, retryAfterMs: 0 }, credential: null };
  }
  try {
    const channel = await dial(options, credential);
    return { outcome: outcomeOfSession(await options.serve(channel, credential)), credential };
  } catch (error) {
    return { outcome: outcomeOfConnectFailure(error), credential };
  }
}

/** Connects within the time-out; a channel that comes later is closed. */
async function dial({ transport, clock, signal }: SupervisorOptions, credential: string): Promise<RunnerChannel> {
  const giveUp = new AbortController();
  const abort = () => giveUp.abort();
  signal.addEventListener("abort", abort);
  if (signal.aborted) abort();
  const timer = clock.schedule(CONNECT_TIMEOUT_MS, abort);
  try {
    const connecting = transport.connect({ credential, signal: giveUp.signal });
    const late = new Promise<never>((_, reject) => {
      const fail = () => {
        // A transport that does not heed the signal may still come up with a channel.
        connecting.then((channel) => channel.close(1000, "too late")).catch(() => undefined);
        reject(new ConnectError(`no connection within ${CONNECT_TIMEOUT_MS} ms`, null));
      };
      if (giveUp.signal.aborted) fail();
      else giveUp.signal.addEventListener("abort", fail);
    });
    return await Promise.race([connecting, late]);
  } finally {
    timer.cancel();
    signal.removeEventListener("abort", abort);
  }
}

function outcomeOfConnectFailure(error: unknown): AttemptOutcome {
  if (!(error instanceof ConnectError) || error.closeCode === null) {
    return { kind: "retryable", reason: messageOf(error), retryAfterMs: error instanceof ConnectError ? error.retryAfterMs : 0 };
  }
  return byRule(redialRule(error.closeCode), nameOfClose(error.closeCode), error.message, error.retryAfterMs, null);
}

function outcomeOfSession({ close, upMs, refusal }: SessionEnd): AttemptOutcome {
  if (refusal !== null) {
    // What the broker said counts; where it closed with a code of the table, that code's rule does.
    const said: RedialRule = isErrorCode(refusal.code) && !ERROR_CODES[refusal.code].retryable ? "never" : "after_retry_after";
    const rule =
      refusal.code === "credential_invalid"
        ? "with_new_credential"
        : close.by === "remote" && close.code !== 1000
          ? redialRule(close.code)
          : said;
    return byRule(rule, refusal.code, refusal.message, refusal.retryAfterMs, upMs);
  }
  // Our own close with 1000 is a planned end, anything else that we closed with is a fault of the connection.
  if (close.by === "local" && close.code === 1000) return { kind: "ended" };
  if (close.by === "local") return byRule("at_once", nameOfClose(close.code), close.reason, 0, upMs);
  if (close.by === "remote" && close.code === 1000) return { kind: "ended" };
  return byRule(redialRule(close.code), nameOfClose(close.code), close.reason, 0, upMs);
}

function byRule(rule: RedialRule, code: string, message: string, retryAfterMs: number, upMs: number | null): AttemptOutcome {
  const reason = message === "" || message === code ? code : `${code}: ${message}`;
  switch (rule) {
    case "never":
      return { kind: "fatal", code, message: message === "" ? code : message };
    case "with_new_credential":
      return {
        kind: "credential",
        code: code === "credential_invalid" ? code : "credential_invalid",
        message: message === "" ? code : message,
      };
    case "after_retry_after":
    case "at_once":
      return upMs === null ? { kind: "retryable", reason, retryAfterMs } : { kind: "served", reason, upMs, retryAfterMs };
  }
}

function nameOfClose(code: number): string {
  const row = (CLOSE_CODES as Record<number, { readonly name: string } | undefined>)[code];
  return row?.name ?? (code === 1006 ? "connection_broken" : `close_${code}`);
}
