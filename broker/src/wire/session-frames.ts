/**
 * What each frame of a runner leads to. Frames of one session are handled in order; what they start goes on beside, in the order
 * of the frames as far as one grant is concerned.
 */
import {
  CancelLevel,
  DeclineReason,
  type HeldGrant,
  type Pong,
  type Progress,
  type RevokeAnswer,
  type RunnerFrame,
} from "@toolrunner/proto";
import { BrokerError } from "../domain/broker-error.js";
import { ERROR_MESSAGE_CHARACTERS_MAX, SLOTS_MAX } from "../domain/limits.js";
import type { CatalogOperations } from "../domain/ports/catalog.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { BlobStore } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import { AnnouncedReceipts } from "./announced-receipts.js";
import type { CallRouter } from "./call-router.js";
import { CallUpdates } from "./call-updates.js";
import type { DriverCommand } from "./commands.js";
import type { Dispatcher } from "./dispatcher.js";
import type { Figures } from "./figures.js";
import { cut, isTime, phaseName } from "./frames.js";
import { type NewsCommand, tellNews } from "./perform.js";
import { progressData } from "./progress-data.js";
import type { ReceiptAcceptance } from "./receipt-acceptance.js";
import { ReceiptDelivery } from "./receipt-delivery.js";
import { fault, isId, logged, type RunnerAsks, runnerOf } from "./runner-asks.js";
import { RunnerReports } from "./runner-reports.js";
import { type Session, sightOf } from "./session.js";
import { SessionAsks } from "./session-asks.js";
import { toolFields } from "./tool-definitions.js";

/** News of one grant that waits for its turn; more of it is dropped (X6). */
const NEWS_WAITING_MAX = 64;

export interface FrameContext {
  readonly asks: RunnerAsks;
  readonly acceptance: ReceiptAcceptance;
  readonly router: CallRouter;
  readonly dispatcher: Dispatcher;
  readonly catalog: CatalogOperations;
  readonly blobs: BlobStore;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly log: Log;
  readonly figures: Pick<Figures, "leaseMs">;
  /** Largest result of a call, in bytes. */
  readonly resultBytesMax: number;
}

export class FrameHandlers {
  /** Questions to reconcile handlers. */
  readonly questions: SessionAsks;
  private readonly receipts: ReceiptDelivery;
  private readonly announced: AnnouncedReceipts;
  private readonly reports: RunnerReports;
  private readonly updates: CallUpdates;

  constructor(private readonly context: FrameContext) {
    this.questions = new SessionAsks(context);
    this.announced = new AnnouncedReceipts((session) => context.dispatcher.slotFreed(session, true));
    this.receipts = new ReceiptDelivery(context.acceptance, {
      asks: context.asks,
      ids: context.ids,
      clock: context.clock,
      resultBytesMax: context.resultBytesMax,
      heard: (session, callId, grantId) => this.heard(session, callId, grantId),
      answered: (session, grantId) => this.announced.answered(session, grantId),
    });
    this.updates = new CallUpdates({ asks: context.asks, ids: context.ids });
    this.reports = new RunnerReports({
      asks: context.asks,
      slotFreed: (session, wasFull) => context.dispatcher.slotFreed(session, wasFull),
      heardHere: (session, callId, grantId) => context.router.heardHere(callId, grantId, runnerOf(session), session.ref),
    });
  }

  handle(session: Session, frame: RunnerFrame["frame"]): void {
    switch (frame?.$case) {
      case "claim":
        session.slots = Math.min(frame.value.slots, SLOTS_MAX);
        return;
      case "decline":
        this.decline(session, frame.value.callId, frame.value.grantId, frame.value.reason, frame.value.message);
        return;
      case "started": {
        const { callId, grantId, atUnixMs } = frame.value;
        const atMs = isTime(atUnixMs) ? atUnixMs : this.context.clock.now();
        this.news(session, callId, { op: "started", runner: runnerOf(session), grantId, atMs });
        return;
      }
      case "progress":
        this.progress(session, frame.value);
        return;
      case "receipt":
        this.receipts.take(session, frame.value);
        return;
      case "callUpdate":
        this.updates.take(session, frame.value);
        return;
      case "resultChunk":
        this.receipts.takeChunk(session, frame.value);
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
      case "reconcileAnswer":
        this.questions.take(session, frame.value);
        return;
      case "drain":
        session.draining = true;
        return;
      case "toolDefinitions":
        this.mergeDefinitions(session, frame.value.tools.map(toolFields(session.ref.binding)));
        return;
      case "instanceState":
        session.sight = sightOf(frame.value.visibility);
        session.focused = frame.value.focused;
        return;
      case "protocolFault":
        this.context.log.warn("runner_refused_frame", {
          runner_id: session.ref.runnerId,
          code: logged(frame.value.code),
          call_id: logged(frame.value.callId),
        });
        return;
      default:
        fault(session, "frame_unknown", "this broker does not know this kind of frame", "");
    }
  }

  /** Bytes of large results that are on their way. */
  get chunkBytes(): number {
    return this.receipts.chunkBytes;
  }

  /** The session is over. */
  ended(session: Session): void {
    this.receipts.ended(session);
  }

  /** The runner of the grant is there, whatever its handler does. */
  private heard(session: Session, callId: string, grantId: string): void {
    const runner = runnerOf(session);
    if (this.context.router.heardHere(callId, grantId, runner, session.ref)) {
      return;
    }
    session.work.beside(async () => {
      await this.context.asks
        .ask(session, callId, { op: "held", runner, grantId, phase: "running", session: session.ref }, session.grants.get(grantId))
        .catch((error: unknown) => this.context.asks.failed(session, callId, "held", error));
    });
  }

  /** What the hello says about grants. */
  hello(session: Session, held: readonly HeldGrant[]): void {
    this.announced.hello(session, held);
    this.reports.hello(session, held);
  }

  private decline(session: Session, callId: string, grantId: string, reason: DeclineReason, message: string): void {
    const name = reason === DeclineReason.UNAVAILABLE ? "unavailable" : reason === DeclineReason.FORBIDDEN ? "forbidden" : undefined;
    if (name === undefined) {
      fault(session, "frame_invalid", "decline: reason is not set", callId);
      return;
    }
    if (name === "unavailable") {
      this.context.dispatcher.declined(session);
    }
    const said = cut(message, ERROR_MESSAGE_CHARACTERS_MAX);
    this.tell(session, callId, { op: "decline", runner: runnerOf(session), grantId, reason: name, message: said }, said.length);
    session.grants.delete(grantId);
  }

  private progress(session: Session, progress: Progress): void {
    const { callId, grantId, text, dataJson } = progress;
    if (session.work.depth(grantId) >= NEWS_WAITING_MAX) {
      return;
    }
    const data = progressData(progress);
    if (typeof data === "string") {
      fault(session, "frame_invalid", `progress: ${data}; it was dropped`, callId);
      return;
    }
    session.newsCount += 1;
    const order = { sessionEpoch: session.ref.sessionEpoch, number: session.newsCount };
    this.news(session, callId, { op: "progress", runner: runnerOf(session), grantId, order, data }, text.length + dataJson.length);
  }

  private pong(session: Session, { number, held }: Pong): void {
    if (number > session.pingNumber) {
      fault(session, "frame_invalid", `pong: answers ping ${number}, and the newest was ${session.pingNumber}`, "");
      return;
    }
    if (number <= session.pongNumber) {
      // A ping is answered once.
      return;
    }
    session.pongNumber = number;
    this.reports.pong(session, number, held);
  }

  private cancelAnswer(session: Session, callId: string, grantId: string, level: CancelLevel): void {
    const name = CANCEL_LEVELS[level];
    if (name === undefined) {
      fault(session, "frame_invalid", "cancel_answer: level is not set", callId);
      return;
    }
    this.tell(session, callId, { op: "cancel_answer", runner: runnerOf(session), grantId, level: name });
  }

  /** G1: the answer counts only from the journal that took the grant, which the session's own journal id shows. */
  private revokeAnswer(session: Session, answer: RevokeAnswer): void {
    const { callId, grantId } = answer;
    const phase = phaseName(answer.phase);
    if (phase === undefined || answer.journalId !== session.journalId) {
      fault(session, "frame_invalid", "revoke_answer: phase and the session's journal_id are needed", callId);
      return;
    }
    this.tell(session, callId, { op: "held", runner: runnerOf(session), grantId, phase, session: session.ref });
    if (phase !== "finished") {
      session.grants.delete(grantId);
    }
  }

  private mergeDefinitions(session: Session, tools: readonly unknown[]): void {
    const { binding, application } = session.ref;
    if (session.awaitsDefinitions === undefined) {
      // Outside development a catalog is changed by who may change it, and a runner may not.
      fault(session, "frame_invalid", "tool_definitions: this broker did not ask for them", "");
      return;
    }
    session.work.beside(async () => {
      try {
        await this.context.catalog.mergeTools(application, binding, tools);
      } catch (error) {
        const message = error instanceof BrokerError ? error.message : "the definitions could not be stored";
        this.context.log.warn("tool_definitions_refused", {
          runner_id: session.ref.runnerId,
          binding,
          error: error instanceof Error ? error.message : String(error),
        });
        fault(session, error instanceof BrokerError ? error.code : "internal", message, "");
      } finally {
        session.awaitsDefinitions?.();
      }
    });
  }

  /** Told at once where the driver is here and nothing of this grant waits before it. */
  private news(session: Session, callId: string, command: NewsCommand, characters = 0): void {
    const isNext = isId(command.grantId) && session.work.depth(command.grantId) === 0;
    const driver = isNext ? this.context.router.here(callId) : undefined;
    if (driver === undefined || !tellNews(driver, command)) {
      this.tell(session, callId, command, characters);
    }
  }

  /** Brings it to the driver after what the same grant's earlier frames said. `characters`: what it holds besides ids. */
  private tell(session: Session, callId: string, command: DriverCommand & { readonly grantId: string }, characters = 0): void {
    if (!isId(callId) || !isId(command.grantId)) {
      fault(session, "frame_invalid", `${command.op}: call_id and grant_id are needed, as the grant named them`, callId);
      return;
    }
    const hint = session.grants.get(command.grantId) ?? { driver: undefined };
    session.work.inOrder(command.grantId, characters, async () => {
      try {
        await this.context.asks.ask(session, callId, command, hint);
      } catch (error) {
        this.context.asks.failed(session, callId, command.op, error);
      }
    });
  }
}

const CANCEL_LEVELS: Partial<Record<CancelLevel, "delivered" | "stopped" | "ignored">> = {
  [CancelLevel.DELIVERED]: "delivered",
  [CancelLevel.STOPPED]: "stopped",
  [CancelLevel.IGNORED]: "ignored",
};
