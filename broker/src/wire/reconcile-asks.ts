/**
 * Asks reconcile handlers what became of calls that this broker drives, and takes their answers in (G4).
 *
 * Invariants: a question is stored before it is sent, with a fence of its own, and only its own answer counts; only the holder of
 * the journal that saw the grant start is asked, when it said, or when it is found connected, that the process is gone: the
 * runner refuses while that is not so; what a person says, a receipt or another broker does meanwhile makes the answer void.
 */
import { isSettledState, type ReconcileGrant } from "../domain/call/call-state.js";
import { decideReconcile } from "../domain/call/decide.js";
import { askableGrant, askNotBeforeMs, decideAsk, decideUnanswered } from "../domain/call/decide-asks.js";
import type { CallDriver } from "./call-driver.js";
import type { KnownState } from "./call-log.js";
import type { DriverAnswer, DriverCommand } from "./commands.js";
import { type Decision, type DrivenCall, type DriverContext, NotDriver } from "./driver-context.js";
import { faultsOf } from "./result-check.js";
import type { SessionRef } from "./session.js";
import type { SessionPost } from "./session-post.js";

/** Who takes calls over looks for their handlers spread over this time. */
const SPREAD_MS = 2_000;
/** A look that failed is repeated after this time. */
const LATER_AGAIN_MS = 1_000;

type AnswerCommand = Extract<DriverCommand, { op: "reconcile_answer" }>;

export class ReconcileAsks {
  /** Calls whose next look has its time already. */
  private readonly planned = new WeakSet<DrivenCall>();

  constructor(
    private readonly context: {
      readonly driver: () => DriverContext;
      readonly post: () => Pick<SessionPost, "canReconcile" | "sendReconcile" | "presentSession">;
      readonly find: (callId: string) => CallDriver | undefined;
    },
  ) {}

  /**
   * The holder of the journal says on `session` that the process which started the call's newest grant is gone. Asks its handler,
   * where it has one and it is time; else later, or never.
   */
  async holderIsBack(driver: CallDriver, session: SessionRef): Promise<void> {
    const { clock, figures, log } = this.context.driver();
    const state = driver.known;
    const grant = askableGrant(state);
    if (grant === undefined || !driver.drives || isAskedOn(state, session)) {
      return;
    }
    if (clock.now() < askNotBeforeMs(state)) {
      this.later(driver);
      return;
    }
    const { tool, version } = state.record.request;
    if (!(await this.context.post().canReconcile(session, { tool, version, journalId: grant.journalId }))) {
      return;
    }
    const holder = {
      runnerId: session.runnerId,
      sessionEpoch: session.sessionEpoch,
      journalId: grant.journalId,
      brokerId: session.brokerId,
    };
    const asked = await driver.decide((now): Decision<boolean> => {
      const times = { nowMs: clock.now(), answerMs: figures.reconcileMs + figures.driverAnswerMs };
      const entry = isAskedOn(now, session) ? undefined : decideAsk(now, grant.grantId, holder, times);
      return { entry, answer: entry !== undefined };
    });
    if (asked) {
      const { runnerId } = session;
      log.info("reconcile_asked", { call_id: driver.callId, grant_id: grant.grantId, runner_id: runnerId });
    }
  }

  /** Looks for the handler when it may be asked again: after an answer that was none, or after a take-over. */
  later(driven: DrivenCall): void {
    const { clock, ids, timers } = this.context.driver();
    const state = driven.known;
    if (state.kind !== "needs_reconciliation" || this.planned.has(driven)) {
      return;
    }
    this.planned.add(driven);
    const delayMs = Math.max(askNotBeforeMs(state) - clock.now(), state.asks === 0 || state.asked !== null ? SPREAD_MS * ids.random() : 0);
    timers.after(delayMs, () => {
      this.planned.delete(driven);
      const driver = this.context.find(driven.callId);
      if (driver === driven && driver.drives) {
        this.look(driver).catch((error: unknown) => this.lookFailed(driver, error));
      }
    });
  }

  /** What the handler said. `over`: the runner need not keep what it knows of the grant. */
  async answer(driver: CallDriver, command: AnswerCommand): Promise<DriverAnswer> {
    const { clock, ids, log } = this.context.driver();
    const { grantId, outcome, message, value, runner } = command;
    const resultFaults = value === null ? [] : await faultsOf(this.context.driver(), driver, value);
    const before = driver.known;
    const started = before.kind === "needs_reconciliation" ? before.grant.grantId : undefined;
    const counts = await driver.decide((state): Decision<boolean> => {
      if (state.kind !== "needs_reconciliation" || state.asked?.grantId !== grantId || state.asked.journalId !== runner.journalId) {
        return { answer: false };
      }
      const now = clock.now();
      const entry =
        outcome === "applied" || outcome === "not_applied"
          ? decideReconcile(state, { outcome, value, resultFaults, by: `runner:${state.asked.runnerId}`, note: null, askId: grantId }, now)
          : decideUnanswered(state, grantId, { reason: outcome, message }, now, ids.random());
      return { entry, answer: entry !== undefined };
    });
    if (counts) {
      log.info("reconcile_answered", { call_id: driver.callId, outcome });
    }
    return { kind: "held", keep: false, over: started === undefined || isOver(driver.known, started) };
  }

  private async look(driver: CallDriver): Promise<void> {
    const state = driver.known;
    if (state.kind !== "needs_reconciliation") {
      return;
    }
    const session = await this.context.post().presentSession(driver, state.grant);
    if (session === undefined || !driver.drives) {
      // Its next hello says so.
      return;
    }
    const now = driver.known;
    if (now.kind === "needs_reconciliation" && now.asked !== null && isAskedOn(now, session)) {
      // Whoever drove the call before may have died between storing the question and sending it.
      this.context.post().sendReconcile(driver, now.asked);
    } else {
      await this.holderIsBack(driver, session);
    }
  }

  private lookFailed(driver: CallDriver, error: unknown): void {
    if (error instanceof NotDriver) {
      return;
    }
    const { log, timers, ids } = this.context.driver();
    log.error("reconcile_not_asked", { call_id: driver.callId, error: error instanceof Error ? error.message : String(error) });
    timers.after(LATER_AGAIN_MS * (0.5 + ids.random()), () => this.later(driver));
  }
}

/** Is this grant's outcome settled, or the call past it, so that nobody will ask what became of it? */
export function isOver(state: KnownState, grantId: string): boolean {
  return isSettledState(state) || !((state.kind === "running" || state.kind === "needs_reconciliation") && state.grant.grantId === grantId);
}

function isAskedOn(state: KnownState, session: SessionRef): boolean {
  const asked: ReconcileGrant | null = state.kind === "needs_reconciliation" ? state.asked : null;
  return asked !== null && asked.runnerId === session.runnerId && asked.sessionEpoch === session.sessionEpoch;
}
