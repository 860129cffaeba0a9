/** What each frame of a runner leads to. Frames of one session are handled in order; what they start goes on beside. */
import {
  CancelLevel,
  DeclineReason,
  type HeldGrant,
  type Pong,
  type Progress,
  type Receipt,
  type RevokeAnswer,
  type RunnerFrame,
  Visibility,
} from "@toolrunner/proto";
import { BrokerError } from "../domain/broker-error.js";
import { backOffMs } from "../domain/call/decide.js";
import type { ReceiptEntryFacts } from "../domain/call/entries.js";
import { ERROR_MESSAGE_CHARACTERS_MAX, PROGRESS_BYTES_MAX, SLOTS_MAX } from "../domain/limits.js";
import type { CatalogOperations, Json } from "../domain/ports/catalog.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { BlobStore } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import { CallNotFound, type CallRouter } from "./call-router.js";
import type { DriverAnswer, DriverCommand, ReceiptDispositionName, RunnerRef } from "./commands.js";
import type { Dispatcher } from "./dispatcher.js";
import { cut, inlineText, phaseName, receiptAckFrame, receiptFacts } from "./frames.js";
import type { Session } from "./session.js";
import { storeText } from "./stored-text.js";
import type { TimerWheel } from "./timer-wheel.js";
import { toolFields } from "./tool-definitions.js";

export interface FrameContext {
  readonly router: CallRouter;
  readonly dispatcher: Dispatcher;
  readonly catalog: CatalogOperations;
  readonly blobs: BlobStore;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly log: Log;
  readonly timers: TimerWheel;
}

export class FrameHandlers {
  constructor(private readonly context: FrameContext) {}

  handle(session: Session, frame: RunnerFrame["frame"]): void {
    switch (frame?.$case) {
      case "claim":
        session.slots = Math.min(frame.value.slots, SLOTS_MAX);
        return;
      case "decline":
        this.decline(session, frame.value.callId, frame.value.grantId, frame.value.reason, frame.value.message);
        return;
      case "started":
        this.tell(
          session,
          frame.value.callId,
          {
            op: "started",
            runner: runnerOf(session),
            grantId: frame.value.grantId,
            atMs: frame.value.atUnixMs || this.context.clock.now(),
          },
          frame.value.grantId,
        );
        return;
      case "progress":
        this.progress(session, frame.value);
        return;
      case "receipt":
        this.receipt(session, frame.value);
        return;
      case "pong":
        this.pong(session, frame.value);
        return;
      case "cancelAnswer":
        this.cancelAnswer(session, frame.value.callId, frame.value.grantId, frame.value.level);
        return;
      case "revokeAnswer":
        this.revokeAnswer(session, frame.value);
        return;
      case "drain":
        session.draining = true;
        return;
      case "toolDefinitions":
        this.mergeDefinitions(session, frame.value.tools.map(toolFields(session.ref.binding)));
        return;
      case "instanceState":
        session.visible = frame.value.visibility !== Visibility.HIDDEN;
        session.focused = frame.value.focused;
        return;
      case "protocolFault":
        this.context.log.warn("runner_refused_frame", {
          runner_id: session.ref.runnerId,
          code: frame.value.code,
          call_id: frame.value.callId,
        });
        return;
      default:
        this.fault(session, "frame_unknown", "this broker does not know this kind of frame", "");
    }
  }

  /** The grants that a runner lists in its hello or in the answer to a ping: what counts is kept, the rest is revoked. */
  held(session: Session, grants: readonly HeldGrant[]): void {
    for (const grant of grants) {
      const phase = phaseName(grant.phase);
      if (phase === undefined) {
        this.fault(session, "frame_invalid", `held grant ${grant.grantId}: phase is not set`, grant.callId);
        continue;
      }
      const known = session.grants.get(grant.grantId);
      const listed = known ?? {
        callId: grant.callId,
        grantId: grant.grantId,
        fence: grant.fence,
        driver: undefined,
        finished: phase !== "running",
        listedFromPing: 0,
      };
      if (phase === "finished") {
        // Its receipt is on its way and says all.
        listed.finished = true;
        session.grants.set(grant.grantId, listed);
        continue;
      }
      session.grants.set(grant.grantId, listed);
      this.ask(
        session,
        grant.callId,
        { op: "held", runner: runnerOf(session), grantId: grant.grantId, phase, session: session.ref },
        listed.driver,
      )
        .then((answer) => {
          if (answer?.kind === "held" && answer.keep) {
            return;
          }
          session.grants.delete(grant.grantId);
          if (answer !== undefined && phase === "running") {
            this.revoke(session, grant.callId, grant.grantId, grant.fence, "the grant counts no longer");
          }
        })
        .catch((error: unknown) => this.failed(session, grant.callId, "held", error));
    }
  }

  private decline(session: Session, callId: string, grantId: string, reason: DeclineReason, message: string): void {
    const name = reason === DeclineReason.UNAVAILABLE ? "unavailable" : reason === DeclineReason.FORBIDDEN ? "forbidden" : undefined;
    if (name === undefined) {
      this.fault(session, "frame_invalid", "decline: reason is not set", callId);
      return;
    }
    if (name === "unavailable") {
      this.context.dispatcher.declined(session);
    }
    const driver = session.grants.get(grantId)?.driver;
    session.grants.delete(grantId);
    this.ask(
      session,
      callId,
      { op: "decline", runner: runnerOf(session), grantId, reason: name, message: cut(message, ERROR_MESSAGE_CHARACTERS_MAX) },
      driver,
    ).catch((error: unknown) => this.failed(session, callId, "decline", error));
  }

  private progress(session: Session, progress: Progress): void {
    const bytes = Buffer.byteLength(progress.text) + Buffer.byteLength(progress.dataJson);
    if (bytes > PROGRESS_BYTES_MAX) {
      this.fault(
        session,
        "frame_invalid",
        `progress: ${bytes} bytes, over the limit of ${PROGRESS_BYTES_MAX}; it was dropped`,
        progress.callId,
      );
      return;
    }
    const data = progress.dataJson === "" ? undefined : parsed(progress.dataJson);
    if (data !== undefined && "fault" in data) {
      this.fault(session, "frame_invalid", "progress: data_json is not JSON; it was dropped", progress.callId);
      return;
    }
    const fields: Record<string, Json> = {
      ...(progress.text === "" ? {} : { text: progress.text }),
      ...(progress.percentage === undefined ? {} : { percentage: progress.percentage }),
      ...(data === undefined ? {} : { data: data.json }),
    };
    this.tell(
      session,
      progress.callId,
      { op: "progress", runner: runnerOf(session), grantId: progress.grantId, data: fields },
      progress.grantId,
    );
  }

  private receipt(session: Session, receipt: Receipt): void {
    const read = receiptFacts(receipt, session.ref.runnerId);
    if (typeof read === "string") {
      this.fault(session, "frame_invalid", `receipt: ${read}`, receipt.callId);
      return;
    }
    if (read.json !== null && "fault" in parsed(read.json)) {
      this.fault(session, "frame_invalid", "receipt: the result is not JSON", receipt.callId);
      return;
    }
    session.declines = 0;
    const known = session.grants.get(receipt.grantId);
    if (known !== undefined) {
      known.finished = true;
    }
    this.deliver(session, receipt.callId, read, known?.driver).catch((error: unknown) =>
      this.failed(session, receipt.callId, "receipt", error),
    );
  }

  /** Repeated until the receipt has its disposition or the session is over: the runner then sends it again elsewhere. */
  private async deliver(
    session: Session,
    callId: string,
    read: { readonly facts: Omit<ReceiptEntryFacts, "value">; readonly json: string | null },
    hint: string | undefined,
  ): Promise<void> {
    const value = read.json === null ? null : await storeText(this.context.blobs, this.context.ids, callId, inlineText(read.json));
    const command: DriverCommand = { op: "receipt", runner: runnerOf(session), receipt: { ...read.facts, value } };
    for (let tries = 1; !session.closed; tries += 1) {
      const disposition = await this.dispositionOf(session, callId, command, hint);
      if (disposition !== undefined) {
        session.grants.delete(read.facts.grantId);
        session.channel.send(receiptAckFrame(callId, read.facts.grantId, disposition));
        return;
      }
      await new Promise<void>((resolve) => this.context.timers.after(backOffMs(tries, this.context.ids.random()), resolve));
    }
  }

  private async dispositionOf(
    session: Session,
    callId: string,
    command: DriverCommand,
    hint: string | undefined,
  ): Promise<ReceiptDispositionName | undefined> {
    try {
      const answer = await this.context.router.command(callId, command, hint);
      return answer.kind === "disposition" ? answer.disposition : undefined;
    } catch (error) {
      if (error instanceof CallNotFound) {
        // Nothing is stored of this call: it was removed after its time, or it is not of this ledger.
        return "expired";
      }
      this.failed(session, callId, "receipt", error);
      return undefined;
    }
  }

  private pong(session: Session, pong: Pong): void {
    if (pong.number > session.pingNumber) {
      this.fault(session, "frame_invalid", `pong: answers ping ${pong.number}, and the newest was ${session.pingNumber}`, "");
      return;
    }
    session.pongNumber = Math.max(session.pongNumber, pong.number);
    const listed = new Set(pong.held.map((grant) => grant.grantId));
    this.held(session, pong.held);
    for (const grant of session.grants.values()) {
      if (!listed.has(grant.grantId) && !grant.finished && grant.listedFromPing <= pong.number && grant.listedFromPing > 0) {
        // The runner should have it and does not say so: ask, and let it refuse the grant for good if it never came.
        this.revoke(session, grant.callId, grant.grantId, grant.fence, "the grant was not listed");
      }
    }
  }

  private cancelAnswer(session: Session, callId: string, grantId: string, level: CancelLevel): void {
    const name =
      level === CancelLevel.DELIVERED
        ? "delivered"
        : level === CancelLevel.STOPPED
          ? "stopped"
          : level === CancelLevel.IGNORED
            ? "ignored"
            : undefined;
    if (name === undefined) {
      this.fault(session, "frame_invalid", "cancel_answer: level is not set", callId);
      return;
    }
    this.tell(session, callId, { op: "cancel_answer", runner: runnerOf(session), grantId, level: name }, grantId);
  }

  /** G1: the answer counts only from the journal that took the grant, which the session's own journal id shows. */
  private revokeAnswer(session: Session, answer: RevokeAnswer): void {
    const phase = phaseName(answer.phase);
    if (phase === undefined || answer.journalId !== session.journalId) {
      this.fault(session, "frame_invalid", "revoke_answer: phase and the session's journal_id are needed", answer.callId);
      return;
    }
    const driver = session.grants.get(answer.grantId)?.driver;
    if (phase !== "finished") {
      session.grants.delete(answer.grantId);
    }
    this.ask(
      session,
      answer.callId,
      { op: "held", runner: runnerOf(session), grantId: answer.grantId, phase, session: session.ref },
      driver,
    ).catch((error: unknown) => this.failed(session, answer.callId, "revoke_answer", error));
  }

  private mergeDefinitions(session: Session, tools: readonly unknown[]): void {
    const { binding, application } = session.ref;
    this.context.catalog
      .mergeTools(application, binding, tools)
      .catch((error: unknown) => {
        const message = error instanceof BrokerError ? error.message : "the definitions could not be stored";
        this.context.log.warn("tool_definitions_refused", {
          runner_id: session.ref.runnerId,
          binding,
          error: error instanceof Error ? error.message : String(error),
        });
        this.fault(session, error instanceof BrokerError ? error.code : "internal", message, "");
      })
      .finally(() => session.awaitsDefinitions?.())
      .catch((error: unknown) => this.failed(session, "", "tool_definitions", error));
  }

  private revoke(session: Session, callId: string, grantId: string, fence: number, reason: string): void {
    session.channel.send({ frame: { $case: "revoke", value: { callId, grantId, fence, reason } } });
  }

  private tell(session: Session, callId: string, command: DriverCommand, grantId: string): void {
    this.ask(session, callId, command, session.grants.get(grantId)?.driver).catch((error: unknown) =>
      this.failed(session, callId, command.op, error),
    );
  }

  /** `undefined`: there is no such call any more. */
  private async ask(session: Session, callId: string, command: DriverCommand, hint: string | undefined): Promise<DriverAnswer | undefined> {
    try {
      return await this.context.router.command(callId, command, hint);
    } catch (error) {
      if (error instanceof CallNotFound) {
        this.context.log.warn("frame_for_unknown_call", { runner_id: session.ref.runnerId, call_id: callId, op: command.op });
        return undefined;
      }
      throw error;
    }
  }

  private failed(session: Session, callId: string, what: string, error: unknown): void {
    this.context.log.error("frame_failed", {
      runner_id: session.ref.runnerId,
      call_id: callId,
      what,
      error: error instanceof Error ? error.message : String(error),
    });
  }

  private fault(session: Session, code: string, message: string, callId: string): void {
    session.channel.send({ frame: { $case: "protocolFault", value: { code, message, callId } } });
  }
}

function parsed(json: string): { readonly json: Json } | { readonly fault: true } {
  try {
    return { json: JSON.parse(json) as Json };
  } catch {
    return { fault: true };
  }
}

function runnerOf(session: Session): RunnerRef {
  return { application: session.ref.application, binding: session.ref.binding, subject: session.subject, journalId: session.journalId };
}
