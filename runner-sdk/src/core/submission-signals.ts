/**
 * Lets go on what handlers made of their signal after they returned a handle: it aborts when the submitted call is cancelled or
 * its time is up, for as long as this process lives (K1).
 *
 * Invariants: a signal is kept only where a handler looked at it; the newest {@link SIGNALS_KEPT_MAX} are kept, so that a runner
 * that submits for ever does not grow for ever; each aborts at most once.
 */
import { type AbortCode, AbortReason } from "./context.js";
import { messageOf } from "./errors.js";
import type { JournalView } from "./journal.js";
import type { EventLog } from "./log.js";
import type { GrantName } from "./messages.js";

/** Signals of submitted calls that are kept at once. */
export const SIGNALS_KEPT_MAX = 10_000;

/** A submission that is over without the runner's own word. */
export interface SubmissionEnd {
  readonly callId: string;
  readonly tool: string;
  /** `cancelled`: somebody cancelled the call. `timed_out`: its final outcome did not come in time. `revoked`: the broker gave no other reason. */
  readonly reason: "cancelled" | "timed_out" | "revoked";
}

/** Tells the product, where the broker took the grant of a submission back, that the work is wanted no longer. */
export function endSubmission(
  deps: {
    readonly journal: { readonly view: JournalView };
    readonly log: EventLog;
    readonly onSubmissionEnded: ((end: SubmissionEnd) => void) | undefined;
  },
  signals: SubmissionSignals,
  { callId, grantId }: GrantName,
  why: string,
): void {
  const { journal, log, onSubmissionEnded } = deps;
  const entry = journal.view.get(grantId);
  if (entry?.receipt?.outcome.kind !== "submitted") return;
  const end = { callId, tool: entry.tool, reason: reasonOf(why) };
  log.info("submission_ended", { call_id: callId, grant_id: grantId, reason: end.reason });
  signals.abort(callId, end.reason);
  try {
    onSubmissionEnded?.(end);
  } catch (error) {
    log.error("submission_listener_threw", { call_id: callId, message: messageOf(error) });
  }
}

function reasonOf(reason: string): SubmissionEnd["reason"] {
  if (reason === "call_cancelled") return "cancelled";
  return reason === "deadline" ? "timed_out" : "revoked";
}

const ABORTS: Readonly<Record<SubmissionEnd["reason"], { readonly code: AbortCode; readonly message: string }>> = {
  cancelled: { code: "cancelled", message: "the submitted call was cancelled" },
  timed_out: { code: "deadline", message: "the final outcome of the submitted call did not come in time" },
  revoked: { code: "revoked", message: "the broker took the submitted call back" },
};

/** Keeps the signals; see the rules above. */
export class SubmissionSignals {
  readonly #kept = new Map<string, AbortController>();

  keep(callId: string, controller: AbortController): void {
    this.#kept.delete(callId);
    this.#kept.set(callId, controller);
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= SIGNALS_KEPT_MAX) break;
      this.#kept.delete(oldest);
    }
  }

  abort(callId: string, reason: SubmissionEnd["reason"]): void {
    const controller = this.#kept.get(callId);
    this.#kept.delete(callId);
    const { code, message } = ABORTS[reason];
    controller?.abort(new AbortReason(code, message));
  }

  /** The call has its final outcome: its signal stays as it is. */
  forget(callId: string): void {
    this.#kept.delete(callId);
  }
}
