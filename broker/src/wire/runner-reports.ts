/**
 * The grants that a runner lists in its hello and in its ping answers: what counts is kept, the rest is revoked.
 *
 * Invariants: an answer counts as relayed once the driver of each grant in it has heard of it, and only relayed answers renew
 * leases on the runner's side (G3); one report of a session is worked on at a time, and of those that wait only the newest;
 * "not started" counts in a hello only: between hellos it may begin any moment.
 */
import type { GrantPhase, HeldGrant } from "@toolrunner/proto";
import { EntryFormatError } from "../domain/call/entry-codec.js";
import type { HeldPhase } from "./commands.js";
import { phaseName, receiptAckFrame } from "./frames.js";
import { fault, isId, logged, type RunnerAsks, runnerOf } from "./runner-asks.js";
import { freeSlots, type Session } from "./session.js";

/** Grants of one report whose drivers are asked at once. */
const CONCURRENCY = 64;
/** A grant whose driver could not be reached for this many reports in a row is revoked: it would hold up the others' leases. */
const UNREACHED_MAX = 3;
const HELLO_AGAIN_MS = 250;

interface Report {
  /** Of the ping that it answers; 0: the hello. */
  readonly number: number;
  readonly held: readonly HeldGrant[];
}

interface Desk {
  next: Report | undefined;
  busy: boolean;
  /** Reports in a row in which a grant's driver could not be reached. */
  unreached: Map<string, number>;
}

export class RunnerReports {
  private readonly desks = new WeakMap<Session, Desk>();

  constructor(
    private readonly context: {
      readonly asks: RunnerAsks;
      readonly slotFreed: (session: Session, wasFull: boolean) => void;
      /** Tells the driver that the grant runs, where that is in this process and takes it so; false: nothing was done. */
      readonly heardHere: (session: Session, callId: string, grantId: string) => boolean;
    },
  ) {}

  hello(session: Session, held: readonly HeldGrant[]): void {
    this.take(session, { number: 0, held });
  }

  pong(session: Session, number: number, held: readonly HeldGrant[]): void {
    if (session.grants.size > 0) {
      this.revokeUnlisted(session, number, held);
    }
    this.take(session, { number, held });
  }

  /** The runner should have them and does not say so: ask, and let it refuse each for good if it never came. */
  private revokeUnlisted(session: Session, number: number, held: readonly HeldGrant[]): void {
    const listed = new Set(held.map(({ grantId }) => grantId));
    for (const grant of session.grants) {
      if (!listed.has(grant.grantId) && !grant.finished && grant.listedFromPing <= number) {
        revoke(session, grant, "the grant was not listed");
      }
    }
  }

  private take(session: Session, report: Report): void {
    // They take up slots from the first moment on, so that no grant comes on top of them; and what is finished by the time that
    // the report is worked on is not taken up again.
    for (const grant of report.held) {
      if (phaseIn(report, grant.phase) === "running" && isId(grant.grantId)) {
        keep(session, grant, report.number + 1);
      }
    }
    const present = this.desks.get(session);
    if (report.held.length === 0 && present?.busy !== true) {
      // Nearly all answers of nearly all sessions: nobody has to hear of them.
      present?.unreached.clear();
      relayedTo(session, report);
      return;
    }
    const desk = present ?? { next: undefined, busy: false, unreached: new Map() };
    this.desks.set(session, desk);
    desk.next = report;
    if (!desk.busy) {
      desk.busy = true;
      session.work.beside(() => this.workOff(session, desk));
    }
  }

  private async workOff(session: Session, desk: Desk): Promise<void> {
    while (desk.next !== undefined && !session.closed) {
      const report = desk.next;
      desk.next = undefined;
      let relayed = true;
      const unreached = new Map<string, number>();
      const others = report.held.filter((grant) => !this.isHeard(session, report, grant));
      await inParallel(others, async (grant) => {
        if (!(await this.relay(session, report, grant, desk, unreached))) {
          relayed = false;
        }
      });
      desk.unreached = unreached;
      if (relayed) {
        relayedTo(session, report);
      }
    }
    desk.busy = false;
  }

  /** Nearly all grants of nearly all reports: they run, and their drivers are here. */
  private isHeard(session: Session, report: Report, { callId, grantId, phase }: HeldGrant): boolean {
    const known = session.grants.get(grantId);
    return (
      phaseIn(report, phase) === "running" && known !== undefined && !known.finished && this.context.heardHere(session, callId, grantId)
    );
  }

  /** True: the driver heard of the grant, or there is nobody who would have to. */
  private async relay(session: Session, report: Report, grant: HeldGrant, desk: Desk, unreached: Map<string, number>): Promise<boolean> {
    const { callId, grantId } = grant;
    const phase = phaseIn(report, grant.phase);
    if (phase === undefined || !isId(callId) || !isId(grantId)) {
      fault(session, "frame_invalid", `held grant ${logged(grantId)}: phase, call_id and grant_id are needed`, callId);
      return true;
    }
    const known = session.grants.get(grantId);
    if (phase === "finished" || known?.finished === true) {
      // Its receipt is on its way and says all.
      session.grants.finish(grantId);
      return true;
    }
    if (phase === "running" && known === undefined) {
      if (session.grants.full) {
        fault(session, "frame_invalid", `held grant ${logged(grantId)}: more than a session can hold`, callId);
      }
      // Else it ended since the report was sent.
      return true;
    }
    let tries = desk.unreached.get(grantId) ?? 0;
    while (!session.closed) {
      try {
        await this.heard(session, grant, phase);
        return true;
      } catch (error) {
        this.context.asks.failed(session, callId, "held", error);
        if (error instanceof EntryFormatError) {
          // A newer broker wrote it: no report can change anything about it here.
          return true;
        }
        tries += 1;
      }
      if (tries >= UNREACHED_MAX) {
        this.drop(session, grantId);
        revoke(session, grant, "the driver of the call cannot be reached");
        return true;
      }
      if (report.number > 0) {
        unreached.set(grantId, tries);
        return false;
      }
      // What a hello says is not said again.
      await session.work.pause(HELLO_AGAIN_MS * tries);
    }
    return false;
  }

  private async heard(session: Session, { callId, grantId, fence }: HeldGrant, phase: HeldPhase): Promise<void> {
    const answer = await this.context.asks.ask(
      session,
      callId,
      { op: "held", runner: runnerOf(session), grantId, phase, session: session.ref },
      session.grants.get(grantId),
    );
    if (answer?.kind === "held" && answer.keep) {
      return;
    }
    this.drop(session, grantId);
    // Nobody will ask what became of it: the runner may forget it.
    if (phase === "outcome_unknown" && (answer === undefined || (answer.kind === "held" && answer.over === true))) {
      session.channel.send(receiptAckFrame(callId, grantId, "expired"));
    }
    if (phase !== "not_started") {
      revoke(session, { callId, grantId, fence }, "the grant counts no longer");
    }
  }

  private drop(session: Session, grantId: string): void {
    const wasFull = freeSlots(session) <= 0;
    session.grants.delete(grantId);
    if (freeSlots(session) > 0) {
      this.context.slotFreed(session, wasFull);
    }
  }
}

function relayedTo(session: Session, { number }: Report): void {
  session.relayedPong = Math.max(session.relayedPong ?? 0, number);
}

/** Between hellos what has not begun may begin any moment. */
function phaseIn(report: Report, told: GrantPhase): HeldPhase | undefined {
  const phase = phaseName(told);
  return phase === "not_started" && report.number > 0 ? "running" : phase;
}

/** Counts the grant as held, unless the session holds all that one may. */
function keep(session: Session, { callId, grantId, fence }: HeldGrant, listedFromPing: number): void {
  if (session.grants.get(grantId) === undefined && !session.grants.full) {
    session.grants.add({ callId, grantId, fence, driver: undefined, listedFromPing });
  }
}

function revoke(
  session: Session,
  grant: { readonly callId: string; readonly grantId: string; readonly fence: number },
  reason: string,
): void {
  const { callId, grantId, fence } = grant;
  session.channel.send({ frame: { $case: "revoke", value: { callId, grantId, fence, reason } } });
}

async function inParallel<T>(items: readonly T[], job: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let item = items[next]; item !== undefined; item = items[next]) {
      next += 1;
      await job(item);
    }
  };
  await Promise.all(Array.from({ length: Math.min(CONCURRENCY, items.length) }, worker));
}
