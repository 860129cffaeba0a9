/** Refusals of the broker as they come over gRPC, and everything else that can end a call. */

import { type Metadata, type StatusObject, status } from "@grpc/grpc-js";
import { ApiError, ERROR_CODES, isErrorCode } from "@toolrunner/proto";
import { ToolRunnerError, type ToolRunnerErrorFields } from "../errors.js";

const ERROR_METADATA = "toolrunner-error-bin";
const ERROR_EXTRA_METADATA = "toolrunner-error-extra-bin";

/** The error in a message of the broker. */
export function refusalIn(error: ApiError, more: Pick<ToolRunnerErrorFields, "retryAfterSeconds" | "extra"> = {}): ToolRunnerError {
  return new ToolRunnerError(error.code, error.message, {
    type: error.type,
    status: isErrorCode(error.code) ? (ERROR_CODES[error.code].http ?? undefined) : undefined,
    details: error.details,
    requestId: error.requestId,
    ...more,
  });
}

/** The error behind a status that is not OK. `address` is for its message. */
export function refusalFrom(
  failed: Pick<StatusObject, "code" | "details"> & { readonly metadata?: Metadata },
  address: string,
): ToolRunnerError {
  const encoded = failed.metadata?.get(ERROR_METADATA)[0];
  if (encoded instanceof Buffer) {
    try {
      const seconds = Number(failed.metadata?.get("retry-after")[0] ?? Number.NaN);
      return refusalIn(ApiError.decode(encoded), {
        ...(Number.isFinite(seconds) ? { retryAfterSeconds: seconds } : {}),
        extra: extraIn(failed.metadata?.get(ERROR_EXTRA_METADATA)[0]),
      });
    } catch (cause) {
      return new ToolRunnerError("answer_invalid", "The broker's refusal cannot be decoded.", { cause });
    }
  }
  const reason = `${status[failed.code] ?? failed.code}: ${failed.details}`;
  switch (failed.code) {
    case status.UNIMPLEMENTED:
      return new ToolRunnerError("answer_invalid", `${address} does not know this call (${reason}): is it a ToolRunner broker?`);
    case status.RESOURCE_EXHAUSTED:
    case status.INVALID_ARGUMENT:
    case status.OUT_OF_RANGE:
      return new ToolRunnerError("body_too_large", `The message was refused before it was read (${reason}): send less.`, {
        type: "too_large_error",
        status: 413,
      });
    default:
      return new ToolRunnerError("unreachable", `No answer from ${address} (${reason}): check the address and that the broker runs.`, {
        cause: failed,
      });
  }
}

function extraIn(value: string | Buffer | undefined): Readonly<Record<string, unknown>> {
  if (value === undefined) return {};
  try {
    const extra: unknown = JSON.parse(value.toString());
    return typeof extra === "object" && extra !== null ? { ...extra } : {};
  } catch {
    return {};
  }
}
