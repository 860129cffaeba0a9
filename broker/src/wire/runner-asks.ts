/** What runners say, brought to the driver of the call that it is about. */
import { LedgerError } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import { CallNotFound, type CallRouter, type DriverHint } from "./call-router.js";
import type { DriverAnswer, DriverCommand, RunnerRef } from "./commands.js";
import { cut } from "./frames.js";
import type { Session } from "./session.js";

/** Ids that a runner sends are logged up to this length. */
const ID_CHARACTERS_MAX = 64;

export class RunnerAsks {
  constructor(private readonly context: { readonly router: CallRouter; readonly log: Log }) {}

  /** `undefined`: there is no such call, or none that is the runner's business. */
  ask(session: Session, callId: string, command: DriverCommand, hint: DriverHint | undefined): Promise<DriverAnswer | undefined> {
    return this.askFor(session.ref.runnerId, callId, command, hint);
  }

  /** The same for a runner that may have no session. */
  askFor(runnerId: string, callId: string, command: DriverCommand, hint: DriverHint | undefined): Promise<DriverAnswer | undefined> {
    return this.context.router.command(callId, command, hint).catch((error: unknown) => {
      if (error instanceof CallNotFound) {
        this.context.log.warn("frame_for_unknown_call", { runner_id: runnerId, call_id: logged(callId), op: command.op });
        return undefined;
      }
      throw error;
    });
  }

  /** A frame of the runner's was not carried out. It says so again itself, to whichever broker it reaches next. */
  failed(session: Pick<Session, "ref">, callId: string, what: string, error: unknown): void {
    this.failedFor(session.ref.runnerId, callId, what, error);
  }

  /** The same for a runner that may have no session. */
  failedFor(runnerId: string, callId: string, what: string, error: unknown): void {
    // The broker stopped meanwhile. That is no fault of anything, and is said once, by what stopped it.
    if (error instanceof LedgerError && error.code === "closed") return;
    this.context.log.error("frame_failed", {
      runner_id: runnerId,
      call_id: logged(callId),
      what,
      error: error instanceof Error ? error.message : String(error),
    });
  }
}

/** Answers a frame that cannot be served; the session goes on. */
export function fault(session: Session, code: string, message: string, callId: string): void {
  session.channel.send({ frame: { $case: "protocolFault", value: { code, message, callId: logged(callId) } } });
}

export function runnerOf(session: Session): RunnerRef {
  return { application: session.ref.application, binding: session.ref.binding, subject: session.subject, journalId: session.journalId };
}

/** Could a grant have named it so? */
export function isId(id: string): boolean {
  return ID.test(id);
}

const ID = /^[A-Za-z0-9_-]{1,128}$/;

/** I10: what a runner calls an id may be anything. */
export function logged(id: string): string {
  return cut(id, ID_CHARACTERS_MAX);
}
