/**
 * The credentials of sessions while they are up: asks for a newer one before the present one expires, and takes it in band.
 *
 * Invariants: a session keeps what it was opened for, so only a credential of the same application, binding and subject takes the
 * place of its own; one that does not is refused and changes nothing; one that is revoked while it is checked is not taken; an
 * expired session gets no grants, keeps those that it has, and is closed with 4401 when its grace is over.
 */

import { BrokerError } from "../domain/broker-error.js";
import type { Authenticator, RunnerPrincipal } from "../domain/ports/access.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { Figures } from "./figures.js";
import type { Session } from "./session.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** What is left is looked at again at least this often: a wall clock may be set, and a machine may sleep. */
const LOOK_MS_MAX = 60_000;
/** A request that was not answered is repeated this many times within the lead. */
const REQUESTS_A_LEAD = 4;

export interface SessionCredentialsContext {
  readonly authenticator: Authenticator;
  readonly clock: Clock;
  readonly timers: TimerWheel;
  readonly figures: Pick<Figures, "credentialLeadMs" | "credentialGraceMs">;
  readonly log: Log;
  /** The session may take grants again. */
  readonly renewed: (session: Session) => void;
}

/** The present credential of one session. */
interface Held {
  /** Undefined: it does not expire. */
  expiresAtMs: number | undefined;
  /** The runner understands requests. */
  readonly renews: boolean;
  timer: TimerTask | undefined;
  /** One is being checked; the keys that were revoked meanwhile. */
  checking: Set<string> | undefined;
}

export class SessionCredentials {
  /** Only of sessions whose credential expires, or is being replaced. */
  private readonly held = new Map<Session, Held>();

  constructor(private readonly context: SessionCredentialsContext) {}

  /** Sessions whose credential expires or is being replaced. */
  get size(): number {
    return this.held.size;
  }

  /** `renews`: the runner said that it understands requests. */
  opened(session: Session, principal: RunnerPrincipal, renews: boolean): void {
    if (principal.expiresAtMs !== undefined) {
      const held: Held = { expiresAtMs: principal.expiresAtMs, renews, timer: undefined, checking: undefined };
      this.held.set(session, held);
      this.look(session, held);
    }
  }

  ended(session: Session): void {
    this.held.get(session)?.timer?.cancel();
    this.held.delete(session);
  }

  keyRevoked(keyId: string): void {
    for (const { checking } of this.held.values()) {
      checking?.add(keyId);
    }
  }

  /** A frame brought a credential. Answers it, sooner or later. */
  take(session: Session, credential: string): void {
    const held = this.held.get(session) ?? { expiresAtMs: undefined, renews: true, timer: undefined, checking: undefined };
    if (held.checking !== undefined) {
      this.refuse(session, "rate_limited", "credential: one is being checked; send the next one when it is answered");
      return;
    }
    const revoked = new Set<string>();
    held.checking = revoked;
    this.held.set(session, held);
    session.work.beside(() => this.check(session, held, credential, revoked));
  }

  private async check(session: Session, held: Held, credential: string, revoked: ReadonlySet<string>): Promise<void> {
    let principal: RunnerPrincipal | undefined;
    let failure: { readonly error: unknown } | undefined;
    try {
      principal = credential === "" ? undefined : await this.context.authenticator.runner(credential);
    } catch (error) {
      failure = { error };
    }
    held.checking = undefined;
    if (session.closed) {
      return;
    }
    if (failure !== undefined) {
      this.failed(session, failure.error);
    } else if (principal === undefined || revoked.has(principal.keyId) || this.leftMs(principal.expiresAtMs) <= 0) {
      this.refuse(session, "credential_invalid", "credential: it is wrong, revoked or expired; the session goes on with the one it has");
    } else if (!covers(principal, session)) {
      this.refuse(session, "credential_not_permitted", "credential: it is for another application, binding or subject than this session");
    } else {
      this.accept(session, held, principal);
    }
    if (held.expiresAtMs === undefined) {
      this.held.delete(session);
    }
  }

  private accept(session: Session, held: Held, principal: RunnerPrincipal): void {
    const { log, renewed } = this.context;
    const { expiresAtMs, keyId } = principal;
    session.keyId = keyId;
    held.expiresAtMs = expiresAtMs;
    held.timer?.cancel();
    const leftMs = expiresAtMs === undefined ? 0 : Math.max(1, frameMs(this.leftMs(expiresAtMs)));
    session.channel.send({ frame: { $case: "credentialAccepted", value: { expiresInMs: leftMs } } });
    log.info("credential_renewed", { runner_id: session.ref.runnerId, session_epoch: session.ref.sessionEpoch, key_id: keyId });
    if (expiresAtMs !== undefined) {
      this.look(session, held);
    }
    if (session.expired) {
      session.expired = false;
      renewed(session);
    }
  }

  private failed(session: Session, error: unknown): void {
    if (error instanceof BrokerError) {
      this.refuse(session, error.code, error.message);
      return;
    }
    this.context.log.error("credential_not_checked", {
      runner_id: session.ref.runnerId,
      error: error instanceof Error ? error.message : String(error),
    });
    this.refuse(session, "ledger_away", "credential: it cannot be checked now; send it again in a moment");
  }

  private refuse(session: Session, code: string, message: string): void {
    this.context.log.warn("credential_refused", {
      runner_id: session.ref.runnerId,
      session_epoch: session.ref.sessionEpoch,
      code,
    });
    session.channel.send({ frame: { $case: "protocolFault", value: { code, message, callId: "" } } });
  }

  /** Does what is due by now, and comes again when the next thing is. */
  private look(session: Session, held: Held): void {
    if (session.closed || held.expiresAtMs === undefined) {
      return;
    }
    const { figures, timers, log } = this.context;
    const leftMs = this.leftMs(held.expiresAtMs);
    let nextMs = leftMs - figures.credentialLeadMs;
    if (leftMs <= -figures.credentialGraceMs) {
      log.warn("credential_expired", { runner_id: session.ref.runnerId, session_epoch: session.ref.sessionEpoch });
      session.channel.close(4401, "the credential expired");
      return;
    }
    if (leftMs <= 0) {
      session.expired = true;
    }
    if (nextMs <= 0) {
      if (held.renews && held.checking === undefined) {
        session.channel.send({ frame: { $case: "credentialRequest", value: { expiresInMs: frameMs(leftMs) } } });
      }
      const untilNextMs = leftMs > 0 ? leftMs : leftMs + figures.credentialGraceMs;
      nextMs = Math.min(untilNextMs, figures.credentialLeadMs / REQUESTS_A_LEAD);
    }
    held.timer = timers.after(Math.min(nextMs, LOOK_MS_MAX), () => this.look(session, held));
  }

  private leftMs(expiresAtMs: number | undefined): number {
    return expiresAtMs === undefined ? Number.POSITIVE_INFINITY : expiresAtMs - this.context.clock.now();
  }
}

/** I8: what the session serves is also what this credential is for. */
function covers(principal: RunnerPrincipal, session: Session): boolean {
  const { application, binding } = session.ref;
  if (principal.application !== application || (principal.binding !== "*" && principal.binding !== binding)) {
    return false;
  }
  return session.bindingKind === "backend" || mayActFor(principal, session.subject ?? "");
}

/** Whether a credential lets its runner act for this subject, where runners act for one. */
export function mayActFor(principal: RunnerPrincipal, subject: string): boolean {
  return principal.subject === undefined ? principal.mayNameSubject : principal.subject === subject;
}

/** As a frame holds it. */
function frameMs(ms: number): number {
  return Math.min(0xffff_ffff, Math.max(0, Math.round(ms)));
}
