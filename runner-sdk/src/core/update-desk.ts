/**
 * Sends updates of submitted calls until the broker stored them, across sessions, for as long as the process lives.
 *
 * Invariants: the updates of one call are stored in the order in which they were given, one at a time; an update is stored once,
 * however often it is sent, since it keeps its id; each ends as stored, refused or given up, and its promise says which.
 * Updates are news and not in the journal: what is not stored when the process ends is lost. The final outcome never is.
 */
import { backOffMs } from "./back-off.js";
import type { Clock } from "./clock.js";
import type { ProgressUpdate } from "./context.js";
import { NotJsonError, RunnerStoppedError, SubmissionError } from "./errors.js";
import { randomId } from "./ids.js";
import type { JournalView } from "./journal.js";
import { toJsonText, utf8Bytes } from "./json.js";
import type { CallUpdate, UpdateDisposition } from "./messages.js";
import type { SessionLink } from "./session-link.js";
import { callUpdateFrame } from "./wire.js";

/** Bytes that text and data of one update may have where the broker names no limit. */
const UPDATE_BYTES_MAX = 16_384;
/** Updates that wait for a broker at once, over all calls. */
export const UPDATES_WAITING_MAX = 256;
/** The handle of the call may still be on its way: the update is sent again. */
const NOT_YET = { baseMs: 100, maxMs: 2_000, jitter: 0.5 };

interface Waiting {
  readonly update: CallUpdate;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  /** How often the broker did not know the call as submitted. */
  tries: number;
}

export interface UpdateDeskOptions {
  readonly clock: Clock;
  readonly random: () => number;
  readonly journal: { readonly view: JournalView };
  /** Whether the handler of this grant has not ended. */
  readonly isLive: (grantId: string) => boolean;
}

/** Sends updates; see the rules above. */
export class UpdateDesk {
  /** By call, the one that is sent first. */
  readonly #queues = new Map<string, Waiting[]>();
  #link: SessionLink | null = null;
  #count = 0;
  #closed = false;

  constructor(private readonly options: UpdateDeskOptions) {}

  /** Resolves when the broker has stored it. @throws SubmissionError, RunnerStoppedError */
  update(callId: string, update: ProgressUpdate): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw stopped(callId);
      const made = { callId, updateId: randomId("update"), ...contentOf(callId, update, this.#link?.limits.progressBytes ?? 0) };
      if (this.#link !== null && !this.#link.takesCallUpdates) throw unsupported(callId);
      if (this.#count >= UPDATES_WAITING_MAX) {
        throw new SubmissionError(
          "updates_waiting",
          `${this.#count} updates wait for a broker already: send fewer, or wait for them`,
          callId,
        );
      }
      this.#count += 1;
      const queue = this.#queues.get(callId) ?? [];
      this.#queues.set(callId, queue);
      queue.push({ update: made, resolve, reject, tries: 0 });
      if (queue.length === 1) this.#send(callId);
    });
  }

  /** A session is up: the first update of each call is sent, or sent again. */
  attach(link: SessionLink): void {
    this.#link = link;
    for (const callId of [...this.#queues.keys()]) {
      if (link.takesCallUpdates) this.#send(callId);
      else this.#end(callId, () => unsupported(callId));
    }
  }

  detach(): void {
    this.#link = null;
  }

  /** What became of an update. */
  answer(callId: string, updateId: string, disposition: UpdateDisposition): void {
    const queue = this.#queues.get(callId);
    const first = queue?.[0];
    if (queue === undefined || first === undefined || first.update.updateId !== updateId) return;
    if (disposition === "not_submitted" && this.#mayBecomeSubmitted(callId)) {
      first.tries += 1;
      this.options.clock.schedule(backOffMs(first.tries, this.options.random, NOT_YET), () => {
        if (this.#queues.get(callId)?.[0] === first) this.#send(callId);
      });
      return;
    }
    if (disposition !== "stored" && disposition !== "conflict") {
      // What comes after it would meet the same.
      this.#end(callId, () => refused(callId, disposition));
      return;
    }
    queue.shift();
    this.#count -= 1;
    if (disposition === "stored") first.resolve();
    else first.reject(new SubmissionError("update_invalid", `the broker holds another update of call ${callId} under this id`, callId));
    if (queue.length === 0) this.#queues.delete(callId);
    else this.#send(callId);
  }

  /** Gives up what waits. */
  close(): void {
    this.#closed = true;
    for (const callId of [...this.#queues.keys()]) this.#end(callId, () => stopped(callId));
  }

  /** Whether the handle of a call of this runner may still be on its way to the broker. */
  #mayBecomeSubmitted(callId: string): boolean {
    const entry = this.options.journal.view.ofCall(callId).at(-1);
    if (entry === undefined) return false;
    return this.options.isLive(entry.grantId) || (!entry.acknowledged && entry.receipt?.outcome.kind === "submitted");
  }

  #send(callId: string): void {
    const first = this.#queues.get(callId)?.[0];
    if (first !== undefined) this.#link?.send(callUpdateFrame(first.update));
  }

  #end(callId: string, error: () => Error): void {
    const queue = this.#queues.get(callId) ?? [];
    this.#queues.delete(callId);
    this.#count -= queue.length;
    for (const { reject } of queue) reject(error());
  }
}

function contentOf(callId: string, update: unknown, limitBytes: number): Pick<CallUpdate, "text" | "percentage" | "dataJson"> {
  const { text = "", percentage, data } = (update ?? {}) as { text?: unknown; percentage?: unknown; data?: unknown };
  const invalid = (message: string, cause?: unknown) =>
    new SubmissionError("update_invalid", `the update of call ${callId} ${message}`, callId, cause === undefined ? undefined : { cause });
  if (typeof text !== "string") throw invalid("has a `text` that is no string");
  if (percentage !== undefined && !(typeof percentage === "number" && percentage >= 0 && percentage <= 100)) {
    throw invalid("has a `percentage` that is no number from 0 to 100");
  }
  if (text === "" && percentage === undefined && data === undefined) {
    throw invalid("says nothing: give at least one of `text`, `percentage` and `data`");
  }
  let dataJson: string;
  try {
    dataJson = data === undefined ? "" : toJsonText(data);
  } catch (error) {
    if (!(error instanceof NotJsonError)) throw error;
    throw invalid(`has \`data\` that JSON cannot hold: ${error.message}`, error);
  }
  const limit = limitBytes > 0 ? limitBytes : UPDATE_BYTES_MAX;
  const bytes = utf8Bytes(text) + utf8Bytes(dataJson);
  if (bytes > limit) {
    throw new SubmissionError(
      "update_too_large",
      `the update of call ${callId} is ${bytes} bytes, over the limit of ${limit} bytes`,
      callId,
    );
  }
  return { text, percentage, dataJson };
}

function refused(callId: string, disposition: UpdateDisposition): SubmissionError {
  switch (disposition) {
    case "settled":
      return new SubmissionError("submission_settled", `call ${callId} is settled: it takes no more updates`, callId);
    case "exhausted":
      return new SubmissionError("updates_exhausted", `call ${callId} has as many updates as a call may have`, callId);
    default:
      return new SubmissionError("submission_unknown", `the broker knows no submitted call ${callId} of this runner's binding`, callId);
  }
}

function unsupported(callId: string): SubmissionError {
  return new SubmissionError("updates_unsupported", "the broker takes no updates of submitted calls: update the broker", callId);
}

function stopped(callId: string): RunnerStoppedError {
  return new RunnerStoppedError(`the runner was stopped before the update of call ${callId} was stored`);
}
