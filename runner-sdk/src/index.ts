/** Serve tools to AI agents. This entry runs in browsers, workers and Node; `./node` adds transports and the file journal. */

export type { Clock } from "./core/clock.js";
export {
  type AbortCode,
  AbortReason,
  type Authorization,
  type AuthorizeContext,
  allow,
  applied,
  type CallContext,
  forbid,
  type GrantFacts,
  notApplied,
  type ProgressUpdate,
  type ReconcileContext,
  type Reconciliation,
  type Settlement,
  Submission,
  type ToolContext,
  unknown,
} from "./core/context.js";
export type { CredentialUse } from "./core/credential-keeper.js";
export {
  ConnectError,
  CredentialError,
  JournalError,
  NotJsonError,
  RunnerConfigError,
  RunnerRefusedError,
  RunnerStoppedError,
  SubmissionError,
  ToolError,
  type ToolErrorDetail,
} from "./core/errors.js";
export type { HandlerDeclaration } from "./core/handlers.js";
export type {
  Journal,
  JournalEntry,
  JournalOpening,
  JournalOwner,
  JournalRecord,
  JournalView,
  OpenJournal,
  OrphanJournal,
} from "./core/journal.js";
export type { EventLog, Log, LogFields, LogLevel } from "./core/log.js";
export { memoryJournal } from "./core/memory-journal.js";
export type { Outcome, Receipt } from "./core/messages.js";
export type { RunnerOptions } from "./core/runner-options.js";
export type { RunnerFault, RunnerState, StateListener } from "./core/runner-state.js";
export type { InferSchema, JsonSchema, StandardJsonSchema, StandardTyped, ToolSchema } from "./core/schema-types.js";
export type { SubmissionEnd } from "./core/submission-signals.js";
export type { Transport } from "./core/transport.js";
export { createRunner, type Runner } from "./create-runner.js";
export { defineTool, type Tool, type ToolOptions } from "./define-tool.js";
export { SDK_VERSION } from "./sdk-version.js";
