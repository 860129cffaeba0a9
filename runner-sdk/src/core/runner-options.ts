/** What `createRunner` takes, and how it is filled in. */
import type { Tool } from "../define-tool.js";
import { type Clock, systemClock } from "./clock.js";
import type { Authorization, AuthorizeContext } from "./context.js";
import { type Sha256, sha256Hex } from "./digest.js";
import { RunnerConfigError } from "./errors.js";
import type { Journal } from "./journal.js";
import { createEventLog, type EventLog, type Log } from "./log.js";
import { memoryJournal } from "./memory-journal.js";
import type { InstanceFacts } from "./messages.js";
import type { SubmissionEnd } from "./submission-signals.js";
import type { Transport } from "./transport.js";

/** Options of {@link createRunner}. */
export interface RunnerOptions {
  /** `connectGrpc(url)` or `connectWebSocket(url)`. */
  readonly transport: Transport;
  /** Id of the binding that this runner serves. */
  readonly binding: string;
  readonly tools: readonly Tool[];
  /** Runner key, or a function that gives one: asked before each attempt, and when the broker wants a newer one before the present one expires. "" by default. */
  readonly token?: string | (() => string | Promise<string>);
  /** The end user on whose behalf this runner acts; none on a backend. */
  readonly subject?: string;
  /** Where grants and receipts are kept across crashes. By default IndexedDB in a page or worker; memory elsewhere, which protects nothing. */
  readonly journal?: Journal;
  /** Checked before each handler: return `allow()` or `forbid(reason)`. */
  readonly authorize?: (ctx: AuthorizeContext) => Authorization | Promise<Authorization>;
  /**
   * Told when a submitted call is over without this runner's word: it was cancelled, or its final outcome did not come in time. It
   * reaches the runner that submitted, also in a later process with the same journal, where that is connected at the time; the
   * handler's `ctx.signal` aborts too, in the process that submitted, where the handler looked at it.
   */
  readonly onSubmissionEnded?: (end: SubmissionEnd) => void;
  /** Calls that run at once, 1–1,024; 16 by default. */
  readonly concurrency?: number;
  /** Stable id of this runner; by default made from its journal, so that a restart takes over its own session, and in a page one for each tab. */
  readonly runnerId?: string;
  /** Facts for operators, such as platform or host; at most 32. They are shown: no secrets. */
  readonly labels?: Readonly<Record<string, string>>;
  /** How long `stop()` waits for aborted handlers to end, in ms; 5,000 by default. */
  readonly stopGraceMs?: number;
  /** Takes events: a name and fields, never payloads. Nothing is logged by default. */
  readonly log?: Log;
  /** Time, for tests. */
  readonly clock?: Clock;
  /** In [0, 1), for tests. */
  readonly random?: () => number;
}

/** The options, checked and complete. */
export interface ResolvedOptions {
  readonly transport: Transport;
  readonly binding: string;
  readonly credential: () => Promise<string>;
  readonly subject: string;
  readonly journal: Journal;
  readonly authorize: RunnerOptions["authorize"];
  readonly onSubmissionEnded: RunnerOptions["onSubmissionEnded"];
  readonly concurrency: number;
  readonly runnerId: string | null;
  /** What the runner can say about itself at the moment. */
  readonly instance: () => InstanceFacts;
  readonly stopGraceMs: number;
  readonly log: EventLog;
  readonly clock: Clock;
  readonly random: () => number;
  readonly sha256: Sha256;
}

const ID = /^[a-z][a-z0-9_-]{0,63}$/;
const LABELS_MAX = 32;
const LABEL_CHARACTERS_MAX = 256;
const CONCURRENCY_MAX = 1_024;

/** @throws RunnerConfigError naming the option. */
export function resolveOptions(options: RunnerOptions): ResolvedOptions {
  const { transport, binding, token = "", concurrency = 16, stopGraceMs = 5_000, labels = {} } = options;
  if (typeof transport?.connect !== "function") throw invalid("transport", "must be a transport, such as connectGrpc(url)");
  if (typeof binding !== "string" || !ID.test(binding)) throw invalid("binding", `must be the id of a binding, of the form ${ID.source}`);
  if (options.runnerId !== undefined && !ID.test(options.runnerId)) throw invalid("runnerId", `must have the form ${ID.source}`);
  if (typeof token !== "string" && typeof token !== "function") throw invalid("token", "must be a runner key or a function that gives one");
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > CONCURRENCY_MAX) {
    throw invalid("concurrency", `must be an integer from 1 to ${CONCURRENCY_MAX}`);
  }
  if (!Number.isFinite(stopGraceMs) || stopGraceMs < 0) throw invalid("stopGraceMs", "must be a number of milliseconds, 0 or more");
  if (options.authorize !== undefined && typeof options.authorize !== "function") throw invalid("authorize", "must be a function");
  if (options.onSubmissionEnded !== undefined && typeof options.onSubmissionEnded !== "function")
    throw invalid("onSubmissionEnded", "must be a function");
  if (options.journal !== undefined && typeof options.journal.open !== "function")
    throw invalid("journal", "must be a journal, such as fileJournal(path)");
  const labelled = Object.entries(labels);
  if (
    labelled.length > LABELS_MAX ||
    !labelled.every(([name, value]) => typeof value === "string" && name.length + value.length <= LABEL_CHARACTERS_MAX)
  ) {
    throw invalid("labels", `must be at most ${LABELS_MAX} texts of at most ${LABEL_CHARACTERS_MAX} characters`);
  }
  return {
    transport,
    binding,
    credential: async () => {
      const credential: unknown = typeof token === "function" ? await token() : token;
      if (typeof credential !== "string") throw new TypeError("the function given as token did not give a string");
      return credential;
    },
    subject: options.subject ?? "",
    journal: options.journal ?? transport.journal ?? memoryJournal(),
    authorize: options.authorize,
    onSubmissionEnded: options.onSubmissionEnded,
    concurrency,
    runnerId: options.runnerId ?? null,
    instance: () => ({ ...(transport.place?.facts() ?? { visibility: "unknown", focused: false }), labels: { ...labels } }),
    stopGraceMs,
    log: createEventLog(options.log),
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    sha256: transport.sha256 ?? sha256Hex,
  };
}

const invalid = (option: string, message: string) => new RunnerConfigError("options_invalid", `\`${option}\` ${message}`);
