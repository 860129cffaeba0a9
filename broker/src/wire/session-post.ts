/**
 * Carries what drivers say to the sessions of runners, here or on another broker, until it is answered. All of it is idempotent
 * by the grant, and what became pointless meanwhile is not said again.
 */
import type { Grant, ReconcileGrant } from "../domain/call/call-state.js";
import { decideUnanswered } from "../domain/call/decide-asks.js";
import type { Registry } from "../domain/ports/bus.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { BrokerPost } from "./broker-post.js";
import { holds } from "./call-driver.js";
import type { GrantToSend, SessionAnswer, SessionCommand } from "./commands.js";
import type { DrivenCall } from "./driver-context.js";
import type { Placement } from "./placement.js";
import type { SessionRef } from "./session.js";
import { decodeSessionRecord, sessionKey } from "./session-record.js";

export interface SessionPostContext {
  readonly brokerId: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly post: BrokerPost;
  readonly random: () => number;
  /** How long an answer of another broker may take. */
  readonly answerMs: number;
  /** Carries a command out on a session of this broker. */
  readonly onSession: (ref: SessionRef, command: SessionCommand) => SessionAnswer;
  /** The records of sessions; undefined before the start. */
  readonly records: () => Registry | undefined;
}

export class SessionPost {
  constructor(private readonly context: SessionPostContext) {}

  sendGrant(driver: DrivenCall, grant: Grant, placement: Placement | undefined): void {
    const ref = placement?.session ?? driver.location;
    if (ref === undefined) {
      return;
    }
    const command: SessionCommand = { op: "grant", grant: this.grantToSend(driver, grant, placement) };
    const sent = this.to(ref, command, () => !driver.drives || !holds(driver.known, grant.grantId));
    placement?.release();
    this.background(
      sent.then((answer) => {
        if (answer === "never_sent") {
          this.unsent(driver, grant);
        }
      }),
      driver,
    );
  }

  pushCancel(driver: DrivenCall, grant: Grant, reason: string): void {
    this.tell(driver, { op: "cancel", callId: driver.callId, grantId: grant.grantId, fence: grant.fence, reason }, () => {
      return !holds(driver.known, grant.grantId);
    });
  }

  /** May the reconcile handler of this tool be asked on this session? */
  async canReconcile(ref: SessionRef, tool: Extract<SessionCommand, { op: "can_reconcile" }>["tool"]): Promise<boolean> {
    return (await this.to(ref, { op: "can_reconcile", tool }, () => false)) === "sent";
  }

  sendReconcile(driver: DrivenCall, asked: ReconcileGrant): void {
    const state = driver.known;
    if (state.kind !== "needs_reconciliation") {
      return;
    }
    const { request } = state.record;
    const { grantId, fence, expiresAtMs } = asked;
    // Its answer has to get here before its time is up.
    const deadlineAtMs = expiresAtMs - this.context.answerMs;
    const grant: GrantToSend = { ...this.grantToSend(driver, { ...state.grant, grantId, fence }, undefined), deadlineAtMs };
    const question = { grant, startedGrantId: state.grant.grantId, startedFence: state.grant.fence, journalId: asked.journalId };
    const ref: SessionRef = {
      brokerId: asked.brokerId,
      application: request.application,
      binding: request.binding,
      runnerId: asked.runnerId,
      sessionEpoch: asked.sessionEpoch,
    };
    const isPointless = (): boolean =>
      !driver.drives || driver.known.kind !== "needs_reconciliation" || driver.known.asked?.grantId !== grantId;
    const sent = this.to(ref, { op: "reconcile", question }, isPointless).then((answer) => {
      if (answer !== "sent") {
        const why = { reason: "gone", message: "the runner's session ended before it was asked" } as const;
        driver.later("reconcile_gone", (now) => decideUnanswered(now, grantId, why, this.context.clock.now(), this.context.random()));
      }
    });
    this.background(sent, driver);
  }

  revoke(driver: DrivenCall, grant: Pick<Grant, "grantId" | "fence">, reason: string): void {
    const command: SessionCommand = { op: "revoke", callId: driver.callId, grantId: grant.grantId, fence: grant.fence, reason };
    if (driver.known.record.consumedReceipt?.grantId === grant.grantId) {
      // The call was submitted: nobody kept track of where its runner is since. What is not connected now is not told.
      this.background(this.toSubmitter(driver, command), driver);
      return;
    }
    // The runner has to learn of it whatever the call came to.
    this.tell(driver, command, () => false);
  }

  /** To the present session of the runner that submitted the call. */
  private async toSubmitter(driver: DrivenCall, command: SessionCommand): Promise<void> {
    const { newestGrant } = driver.known.record;
    const session = newestGrant === null ? undefined : await this.presentSession(driver, newestGrant);
    if (session !== undefined) {
      await this.to(session, command, () => false);
    }
  }

  /** G1: sends a revoke to the present session of the grant's runner, where that is one with the same journal. */
  async askHolder(driver: DrivenCall, grant: Grant): Promise<boolean> {
    const session = await this.presentSession(driver, grant);
    if (session === undefined) {
      return false;
    }
    const { callId } = driver;
    const command: SessionCommand = { op: "revoke", callId, grantId: grant.grantId, fence: grant.fence, reason: "is it still held?" };
    return (await this.to(session, command, () => !holds(driver.known, grant.grantId))) === "sent";
  }

  /** The present session of the runner that was granted; undefined: it has none, or one with another journal. */
  async presentSession(driver: DrivenCall, grant: Grant): Promise<SessionRef | undefined> {
    const { application, binding } = driver.known.record.request;
    const runner = { application, binding, runnerId: grant.runnerId };
    const found = await this.context.records()?.get(sessionKey(runner));
    const record = found === undefined ? undefined : decodeSessionRecord(found.value);
    return found === undefined || record?.journalId !== grant.journalId
      ? undefined
      : { ...runner, brokerId: record.brokerId, sessionEpoch: found.revision };
  }

  private unsent(driver: DrivenCall, grant: Grant): void {
    const { grantId } = grant;
    driver.later("unsent", (state) =>
      holds(state, grantId)
        ? {
            kind: "returned",
            at: this.context.clock.now(),
            grantId,
            reason: "unsent",
            message: "the runner's session ended before the grant was sent",
            notBeforeMs: null,
          }
        : undefined,
    );
  }

  private grantToSend(driver: DrivenCall, grant: Grant, placement: Placement | undefined): GrantToSend {
    const { request, argumentsJson, deadlineAtMs } = driver.known.record;
    return {
      driver: this.context.brokerId,
      offerId: placement?.offerId ?? null,
      callId: driver.callId,
      grantId: grant.grantId,
      fence: grant.fence,
      attempt: grant.attempt,
      tool: request.tool,
      version: request.version,
      toolset: request.toolset,
      toolsetVersion: request.toolsetVersion,
      argumentsJson,
      subject: request.subject,
      agent: request.agent,
      session: request.session,
      deadlineAtMs: deadlineAtMs ?? grant.grantedAtMs + request.timeoutMs,
      scopes: request.scopes,
      traceparent: request.traceparent,
    };
  }

  private tell(driver: DrivenCall, command: SessionCommand, pointless: () => boolean): void {
    if (driver.location !== undefined) {
      this.background(this.to(driver.location, command, pointless), driver);
    }
  }

  private async to(ref: SessionRef, command: SessionCommand, pointless: () => boolean): Promise<SessionAnswer> {
    if (ref.brokerId === this.context.brokerId) {
      return this.context.onSession(ref, command);
    }
    const answer = await this.context.post.ask(ref.brokerId, "session", JSON.stringify({ ref, command }), pointless);
    return answer === undefined ? "gone" : (JSON.parse(answer) as SessionAnswer);
  }

  private background(job: Promise<unknown>, driver: DrivenCall): void {
    job.catch((error: unknown) =>
      this.context.log.error("session_not_told", {
        call_id: driver.callId,
        error: error instanceof Error ? error.message : String(error),
      }),
    );
  }
}
