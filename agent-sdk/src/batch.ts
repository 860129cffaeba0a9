/**
 * Many calls in one request (X11): what is refused for now is asked for again, and what has no answer is waited for.
 *
 * Invariants: every attempt of a call carries its one key, so that it is one call at the broker; answers are in the order of the
 * requests; a call that is refused for good, or for longer than it is tried, is an error in the list and harms no other.
 */

import { createBody, secondsOf } from "./call-body.js";
import type { BatchRequest, RequestOptions, TraceOptions } from "./client-types.js";
import { ToolRunnerError } from "./errors.js";
import { createPatience, type RetryTime } from "./retry.js";
import type { OperationAnswers, OperationRequest } from "./transport.js";
import type { Call } from "./types.js";

const CALLS_MAX = 64;

/** What the client gives it. */
export interface BatchParts {
  readonly send: (
    operation: "createBatch",
    request: OperationRequest,
    options: RequestOptions,
    waitSeconds: number,
  ) => Promise<OperationAnswers["createBatch"]>;
  /** Resolves when the call has an answer, at the latest at `endsAt`. */
  readonly waitFor: (call: Call, endsAt: number, options: RequestOptions) => Promise<Call>;
  readonly time: RetryTime;
  readonly retryForMs: number;
}

/** Makes the way to call many tools at once; it rejects when there are none or over 64. */
export function createBatchCaller({ send, waitFor, time, retryForMs }: BatchParts) {
  return async (
    requests: readonly BatchRequest[],
    waitMs: number,
    options: RequestOptions & TraceOptions,
  ): Promise<readonly (Call | ToolRunnerError)[]> => {
    if (requests.length === 0 || requests.length > CALLS_MAX) {
      throw new ToolRunnerError("options_invalid", `A batch has 1 to ${CALLS_MAX} calls, not ${requests.length}.`);
    }
    const endsAt = time.now() + waitMs;
    const bodies = requests.map((request) => createBody(request));
    const answers: (Call | ToolRunnerError)[] = [];
    const patience = createPatience(time, retryForMs, options.signal);
    let left = bodies.map((_body, index) => index);
    while (left.length > 0) {
      const wait = secondsOf(Math.max(0, endsAt - time.now()));
      const body = { calls: left.map((index) => bodies[index]), wait_seconds: wait };
      const { data } = await send("createBatch", { body, traceparent: options.traceparent }, options, wait);
      if (data.length !== left.length) throw new ToolRunnerError("answer_invalid", "The answer to the batch is not as long as its list.");
      let refusal: ToolRunnerError | undefined;
      const again: number[] = [];
      for (const [place, index] of left.entries()) {
        const answer = data[place] as Call | ToolRunnerError;
        answers[index] = answer;
        if (answer instanceof ToolRunnerError && (answer.status === 429 || answer.status === 503)) {
          again.push(index);
          refusal ??= answer;
        }
      }
      left = again;
      if (refusal === undefined) break;
      try {
        await patience.afterFailure(refusal, true);
      } catch (error) {
        if (error !== refusal) throw error;
        break;
      }
    }
    return await Promise.all(
      answers.map((answer) =>
        answer instanceof ToolRunnerError
          ? answer
          : waitFor(answer, endsAt, options).catch((error: unknown) =>
              error instanceof ToolRunnerError && error.code !== "aborted" ? error : Promise.reject(error),
            ),
      ),
    );
  };
}
