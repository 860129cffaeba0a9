/** Error objects of the HTTP interface. */

import { ERROR_CODES, isErrorCode } from "@toolrunner/proto";
import { type ErrorDetail, ToolRunnerError } from "./errors.js";

/** The refusal in an answer that is not 2xx. */
export function refusalFrom(response: Response, text: string): ToolRunnerError {
  const { status } = response;
  const error = errorInText(text);
  const retryAfterSeconds = secondsIn(response.headers.get("retry-after"));
  if (error === undefined) {
    // A proxy between us and the broker speaks for itself.
    if (status === 429 || status >= 500) {
      return new ToolRunnerError("unreachable", `Something in front of the broker answered ${status}.`, { status, retryAfterSeconds });
    }
    return new ToolRunnerError("answer_invalid", `The answer ${status} is no error object: is this the address of a ToolRunner broker?`, {
      status,
    });
  }
  const { type, code, message, details, request_id, ...extra } = error;
  return new ToolRunnerError(code, message, {
    type,
    status,
    details: Array.isArray(details) ? details.filter(isDetail) : [],
    requestId: typeof request_id === "string" ? request_id : undefined,
    retryAfterSeconds,
    extra,
  });
}

type ErrorObject = Readonly<Record<string, unknown>> & { readonly type: string; readonly code: string; readonly message: string };

/** The refusal that an item of a list is; undefined: it is none. The time to wait is a field of it, since it has no headers. */
export function refusalInList(item: unknown): ToolRunnerError | undefined {
  const error = errorIn(item);
  if (error === undefined) return undefined;
  const { type, code, message, details, request_id, retry_after_seconds, ...extra } = error;
  return new ToolRunnerError(code, message, {
    type,
    status: isErrorCode(code) ? (ERROR_CODES[code].http ?? undefined) : undefined,
    details: Array.isArray(details) ? details.filter(isDetail) : [],
    requestId: typeof request_id === "string" ? request_id : undefined,
    retryAfterSeconds: typeof retry_after_seconds === "number" ? retry_after_seconds : undefined,
    extra,
  });
}

function errorInText(text: string): ErrorObject | undefined {
  try {
    return errorIn(JSON.parse(text));
  } catch {
    return undefined;
  }
}

function errorIn(answer: unknown): ErrorObject | undefined {
  if (!isObject(answer) || !isObject(answer.error)) return undefined;
  const { type, code, message } = answer.error;
  if (typeof type !== "string" || typeof code !== "string" || typeof message !== "string") return undefined;
  return { ...answer.error, type, code, message, request_id: answer.request_id };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function isDetail(value: unknown): value is ErrorDetail {
  return isObject(value) && typeof value.path === "string" && typeof value.expected === "string" && typeof value.actual === "string";
}

function secondsIn(header: string | null): number | undefined {
  return header !== null && /^\d{1,6}$/.test(header) ? Number(header) : undefined;
}
