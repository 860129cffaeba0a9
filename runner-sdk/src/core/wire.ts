/**
 * Frames and back: the only module of the core that knows the generated messages. Reading never throws: a frame of an unknown
 * kind, or without its content, reads as `unknown`.
 */
import {
  type BrokerFrame,
  ChunkVerdict,
  DeclineReason,
  type FrameChannel,
  GrantPhase,
  type RunnerFrame,
  Visibility,
  CancelLevel as WireCancelLevel,
  ReceiptDisposition as WireDisposition,
  UpdateDisposition as WireUpdateDisposition,
} from "@toolrunner/proto";
import type { Handler } from "./handlers.js";
import { declarationOf } from "./handlers.js";
import type {
  BrokerMessage,
  CallUpdate,
  CancelLevel,
  ChunkAnswer,
  ChunkReference,
  GrantName,
  HeldReport,
  InstanceFacts,
  Outcome,
  Receipt,
  ReceiptDisposition,
  ReconcileOutcome,
  ReportedPhase,
  SessionLimits,
  UpdateDisposition,
} from "./messages.js";

/** The runner's end of a session's channel. */
export type RunnerChannel = FrameChannel<BrokerFrame, RunnerFrame>;
/** A frame ready to be sent. Made by the functions of this module, looked into by none but the channel. */
export type OutboundFrame = RunnerFrame;
/** A frame as it came. */
export type InboundFrame = BrokerFrame;

/** Protocol versions that this SDK speaks, the preferred one first. */
export const PROTOCOL_VERSIONS: readonly number[] = [1];

const PHASES: Readonly<Record<ReportedPhase, GrantPhase>> = {
  not_started: GrantPhase.NOT_STARTED,
  running: GrantPhase.RUNNING,
  outcome_unknown: GrantPhase.OUTCOME_UNKNOWN,
  finished: GrantPhase.FINISHED,
};

const CANCEL_LEVELS: Readonly<Record<CancelLevel, WireCancelLevel>> = {
  delivered: WireCancelLevel.DELIVERED,
  stopped: WireCancelLevel.STOPPED,
  ignored: WireCancelLevel.IGNORED,
};

const VISIBILITIES: Readonly<Record<InstanceFacts["visibility"], Visibility>> = {
  visible: Visibility.VISIBLE,
  hidden: Visibility.HIDDEN,
  unknown: Visibility.UNKNOWN,
};

const heldGrant = (report: HeldReport) => ({
  callId: report.callId,
  grantId: report.grantId,
  fence: report.fence,
  phase: PHASES[report.phase],
});

const instanceState = (facts: InstanceFacts) => ({
  visibility: VISIBILITIES[facts.visibility],
  focused: facts.focused,
  labels: { ...facts.labels },
});

export function helloFrame(hello: {
  readonly sdkVersion: string;
  readonly runnerId: string;
  readonly binding: string;
  readonly subject: string;
  readonly credential: string;
  readonly journalId: string;
  readonly instance: InstanceFacts;
  readonly handlers: readonly Handler[];
  readonly slots: number;
  readonly held: readonly HeldReport[];
}): OutboundFrame {
  const { instance, handlers, held, ...rest } = hello;
  return {
    frame: {
      $case: "hello",
      value: {
        ...rest,
        protocolVersions: [...PROTOCOL_VERSIONS],
        sdkName: "@toolrunner/runner-sdk",
        instanceState: instanceState(instance),
        handlers: handlers.map(declarationOf),
        held: held.map(heldGrant),
        renewsCredentials: true,
      },
    },
  };
}

export function toolDefinitionsFrame(handlers: readonly Handler[]): OutboundFrame {
  const tools = handlers.map(({ tool, inputSchemaText, outputSchemaText }) => ({
    name: tool.name,
    version: tool.version,
    description: tool.description,
    inputSchemaJson: inputSchemaText,
    outputSchemaJson: outputSchemaText,
    readOnly: tool.behaviour === "read_only",
    idempotent: tool.idempotent,
    cancellable: tool.cancellable,
    timeoutSeconds: tool.timeoutSeconds,
    resultSemantics: tool.resultSemantics,
    maxResultContextBytes: tool.maxResultContextBytes,
    confirmation: tool.confirmation,
    scopes: [...tool.scopes],
    submissionTimeoutSeconds: tool.submissionTimeoutSeconds ?? 0,
  }));
  return { frame: { $case: "toolDefinitions", value: { tools } } };
}

export const instanceStateFrame = (facts: InstanceFacts): OutboundFrame => ({
  frame: { $case: "instanceState", value: instanceState(facts) },
});

export const claimFrame = (slots: number): OutboundFrame => ({ frame: { $case: "claim", value: { slots } } });

export const callUpdateFrame = (update: CallUpdate): OutboundFrame => ({ frame: { $case: "callUpdate", value: { ...update } } });

export const pongFrame = (number: number, held: readonly HeldReport[]): OutboundFrame => ({
  frame: { $case: "pong", value: { number, held: held.map(heldGrant) } },
});

export const startedFrame = ({ callId, grantId, fence }: GrantName, atUnixMs: number): OutboundFrame => ({
  frame: { $case: "started", value: { callId, grantId, fence, atUnixMs } },
});

export function declineFrame({ callId, grantId, fence }: GrantName, reason: "unavailable" | "forbidden", message: string): OutboundFrame {
  const wireReason = reason === "forbidden" ? DeclineReason.FORBIDDEN : DeclineReason.UNAVAILABLE;
  return { frame: { $case: "decline", value: { callId, grantId, fence, reason: wireReason, message } } };
}

export function progressFrame(
  { callId, grantId, fence }: GrantName,
  update: { readonly text: string; readonly percentage: number | undefined; readonly dataJson: string },
): OutboundFrame {
  return { frame: { $case: "progress", value: { callId, grantId, fence, ...update } } };
}

/** One chunk of a receipt's result. */
export function chunkFrame(
  { callId, grantId, fence }: GrantName,
  chunk: { readonly digest: string; readonly index: number; readonly totalBytes: number; readonly data: string },
): OutboundFrame {
  return { frame: { $case: "resultChunk", value: { callId, grantId, fence, ...chunk } } };
}

/** `chunks`: the result was sent before, in these. */
export function receiptFrame(receipt: Receipt, chunks?: ChunkReference): OutboundFrame {
  const { callId, grantId, fence, attempt, digest, startedAtUnixMs, finishedAtUnixMs } = receipt;
  return {
    frame: {
      $case: "receipt",
      value: { callId, grantId, fence, attempt, digest, startedAtUnixMs, finishedAtUnixMs, outcome: wireOutcome(receipt.outcome, chunks) },
    },
  };
}

function wireOutcome(outcome: Outcome, chunks: ChunkReference | undefined) {
  switch (outcome.kind) {
    case "succeeded":
      return {
        $case: "succeeded" as const,
        value: chunks === undefined ? { resultJson: outcome.resultJson, chunks } : { resultJson: "", chunks: { ...chunks } },
      };
    case "failed": {
      const { code, message, retryable, retryAfterMs, details } = outcome;
      return {
        $case: "failed" as const,
        value: { code, message, retryable, retryAfterMs, details: details.map((detail) => ({ ...detail })) },
      };
    }
    case "cancelled":
      return { $case: "cancelled" as const, value: { message: outcome.message } };
    case "submitted":
      return { $case: "submitted" as const, value: { handleJson: outcome.handleJson } };
  }
}

export const cancelAnswerFrame = ({ callId, grantId }: GrantName, level: CancelLevel): OutboundFrame => ({
  frame: { $case: "cancelAnswer", value: { callId, grantId, level: CANCEL_LEVELS[level] } },
});

export const revokeAnswerFrame = ({ callId, grantId, fence }: GrantName, journalId: string, phase: ReportedPhase): OutboundFrame => ({
  frame: { $case: "revokeAnswer", value: { callId, grantId, fence, journalId, phase: PHASES[phase] } },
});

export function reconcileAnswerFrame({ callId, grantId, fence }: GrantName, outcome: ReconcileOutcome): OutboundFrame {
  return { frame: { $case: "reconcileAnswer", value: { callId, grantId, fence, outcome: wireReconcileOutcome(outcome) } } };
}

function wireReconcileOutcome(outcome: ReconcileOutcome) {
  switch (outcome.kind) {
    case "applied":
      return { $case: "applied" as const, value: { resultJson: outcome.resultJson } };
    case "not_applied":
      return { $case: "notApplied" as const, value: {} };
    case "unknown":
      return { $case: "unknown" as const, value: { message: outcome.message } };
    case "unavailable":
      return { $case: "unavailable" as const, value: { message: outcome.message } };
  }
}

export const drainFrame = (reason: string, deadlineMs: number): OutboundFrame => ({
  frame: { $case: "drain", value: { reason, deadlineMs } },
});

export const credentialFrame = (credential: string): OutboundFrame => ({ frame: { $case: "credential", value: { credential } } });

export const protocolFaultFrame = (code: string, message: string, callId = ""): OutboundFrame => ({
  frame: { $case: "protocolFault", value: { code, message, callId } },
});

/** What a frame says. */
export function readFrame({ frame }: InboundFrame): BrokerMessage {
  switch (frame?.$case) {
    case "welcome": {
      const { limits, ...welcome } = frame.value;
      return { kind: "welcome", welcome: { ...welcome, limits: limits ?? NO_LIMITS } };
    }
    case "refusal":
      return { kind: "refusal", ...frame.value };
    case "grant":
      return { kind: "grant", grant: frame.value };
    case "cancel":
      return { kind: "cancel", name: frame.value, reason: frame.value.reason };
    case "revoke":
      return { kind: "revoke", name: frame.value, reason: frame.value.reason };
    case "reconcile": {
      const { grant, startedGrantId, startedFence } = frame.value;
      return grant === undefined ? { kind: "unknown" } : { kind: "reconcile", order: { grant, startedGrantId, startedFence } };
    }
    case "receiptAck":
      return {
        kind: "receipt_ack",
        callId: frame.value.callId,
        grantId: frame.value.grantId,
        disposition: dispositionOf(frame.value.disposition),
      };
    case "updateAnswer": {
      const { callId, updateId, disposition } = frame.value;
      return { kind: "update_answer", callId, updateId, disposition: UPDATE_DISPOSITIONS[disposition] ?? "unknown" };
    }
    case "chunkAnswer":
      return { kind: "chunk_answer", answer: { ...frame.value, verdict: verdictOf(frame.value.verdict) } };
    case "ping":
      return { kind: "ping", ...frame.value };
    case "drain":
      return { kind: "drain", ...frame.value };
    case "credentialRequest":
      return { kind: "credential_request", ...frame.value };
    case "credentialAccepted":
      return { kind: "credential_accepted", ...frame.value };
    case "protocolFault":
      return { kind: "protocol_fault", ...frame.value };
    default:
      return { kind: "unknown" };
  }
}

const UPDATE_DISPOSITIONS: Partial<Record<WireUpdateDisposition, UpdateDisposition>> = {
  [WireUpdateDisposition.STORED]: "stored",
  [WireUpdateDisposition.NOT_SUBMITTED]: "not_submitted",
  [WireUpdateDisposition.SETTLED]: "settled",
  [WireUpdateDisposition.EXHAUSTED]: "exhausted",
  [WireUpdateDisposition.UNKNOWN_CALL]: "unknown_call",
  [WireUpdateDisposition.CONFLICT]: "conflict",
};

/** What a broker without limits of its own says. */
export const NO_LIMITS: SessionLimits = {
  frameBytes: 0,
  resultBytes: 0,
  progressBytes: 0,
  slots: 0,
  chunkedResultBytes: 0,
  chunkBytes: 0,
};

function verdictOf(verdict: ChunkVerdict): ChunkAnswer["verdict"] {
  switch (verdict) {
    case ChunkVerdict.RECEIVED:
      return "received";
    case ChunkVerdict.START_OVER:
      return "start_over";
    case ChunkVerdict.BUSY:
      return "busy";
    case ChunkVerdict.REFUSED:
      return "refused";
    default:
      return "unknown";
  }
}

function dispositionOf(disposition: WireDisposition): ReceiptDisposition {
  switch (disposition) {
    case WireDisposition.SETTLED:
      return "settled";
    case WireDisposition.REPEATED:
      return "repeated";
    case WireDisposition.EVIDENCE:
      return "evidence";
    case WireDisposition.EXPIRED:
      return "expired";
    default:
      return "unknown";
  }
}
