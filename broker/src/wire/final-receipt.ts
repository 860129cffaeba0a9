/** From what is said over HTTP and gRPC about submitted calls to what their drivers store. */
import { hash } from "node:crypto";
import { BrokerError } from "../domain/broker-error.js";
import { callError } from "../domain/call/decide.js";
import type { FinalFacts, UpdateFacts } from "../domain/call/decide-submission.js";
import { canonicalJson } from "../domain/canonical-json.js";
import { ERROR_DETAILS_MAX, ERROR_MESSAGE_CHARACTERS_MAX, PROGRESS_BYTES_MAX } from "../domain/limits.js";
import type { Json } from "../domain/ports/catalog.js";
import type { IdSource } from "../domain/ports/clock.js";
import { cut } from "./frames.js";
import type { FinalReceiptBody, UpdateBody } from "./operations.js";

/** What an update says, as agents see it. */
export type UpdateData = { readonly [key: string]: Json };

/** The same digest for the same news, however its keys are ordered. */
export function updateFacts(id: string, data: UpdateData): UpdateFacts {
  return { id, digest: hash("sha256", canonicalJson(data), "hex"), data };
}

/** An update of an agent-facing interface. Throws `BrokerError` `body_invalid` and `update_too_large`. */
export function updateOf(body: UpdateBody, ids: IdSource): UpdateFacts {
  const { text, percentage, data } = body;
  if ((text === undefined || text === "") && percentage === undefined && data === undefined) {
    throw new BrokerError("body_invalid", "The update says nothing: send at least one of text, percentage and data.", {
      details: [{ path: "", expected: "text, percentage or data", actual: "none of them" }],
    });
  }
  const bytes = Buffer.byteLength(text ?? "") + (data === undefined ? 0 : Buffer.byteLength(JSON.stringify(data)));
  if (bytes > PROGRESS_BYTES_MAX) {
    throw new BrokerError("update_too_large", `text and data are ${bytes} bytes, over the limit of ${PROGRESS_BYTES_MAX} bytes`);
  }
  const said: UpdateData = {
    ...(text === undefined || text === "" ? {} : { text }),
    ...(percentage === undefined ? {} : { percentage }),
    ...(data === undefined ? {} : { data }),
  };
  return updateFacts(body.idempotency_key === undefined ? ids.next("update") : `key ${body.idempotency_key}`, said);
}

/** A final receipt before its value is stored. */
export interface FinalRead {
  readonly facts: Omit<FinalFacts, "value">;
  /** The compact JSON of the result; null: there is none. */
  readonly json: string | null;
}

/** `by` stands where other receipts name their runner. Throws `BrokerError` `body_invalid`. */
export function finalOf(body: FinalReceiptBody, by: string): FinalRead {
  const { outcome, result, error, message } = body;
  refuseStray(outcome !== "succeeded" && result !== undefined, "/result", "nothing, since the outcome is not succeeded");
  refuseStray(outcome !== "failed" && error !== undefined, "/error", "nothing, since the outcome is not failed");
  refuseStray(outcome !== "cancelled" && message !== undefined, "/message", "nothing, since the outcome is not cancelled");
  switch (outcome) {
    case "succeeded": {
      const json = JSON.stringify(result ?? null);
      // The text that the runner SDK takes the digest of: the same outcome is the same whichever way it comes.
      return { facts: { runnerId: by, outcome, error: null, digest: digestOf(`{"outcome":"succeeded","result":${json}}`) }, json };
    }
    case "cancelled": {
      const said = cut(message ?? "", ERROR_MESSAGE_CHARACTERS_MAX);
      const digest = digestOf(JSON.stringify({ outcome, message: message ?? "" }));
      return { facts: { runnerId: by, outcome, error: callError("call_cancelled", said), digest }, json: null };
    }
    case "failed": {
      if (error === undefined) {
        throw new BrokerError("body_invalid", "The body is not valid: /error must be present, since the outcome is failed.", {
          details: [{ path: "/error", expected: "present", actual: "missing" }],
        });
      }
      const details = (error.details ?? []).map(({ path, expected, actual }) => ({ path, expected, actual }));
      const text = { outcome, code: error.code, message: error.message, retryable: false, retry_after_ms: 0, details };
      const stored = callError(error.code, cut(error.message, ERROR_MESSAGE_CHARACTERS_MAX), {
        details: details.slice(0, ERROR_DETAILS_MAX),
      });
      return { facts: { runnerId: by, outcome, error: stored, digest: digestOf(JSON.stringify(text)) }, json: null };
    }
  }
}

function refuseStray(isStray: boolean, path: string, expected: string): void {
  if (isStray) {
    throw new BrokerError("body_invalid", `The body is not valid: ${path} must be ${expected}.`, {
      details: [{ path, expected, actual: "a value" }],
    });
  }
}

function digestOf(text: string): string {
  return hash("sha256", text, "hex");
}
