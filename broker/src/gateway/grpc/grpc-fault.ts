/** Refusals as gRPC statuses: a code by type, the message, and the error object in metadata. */

import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { ApiError, GRPC_STATUS, GRPC_STATUS_OF_ERROR_TYPE } from "@toolrunner/proto";
import type { Fault } from "../shared/fault.js";

/** Metadata with the encoded `ApiError`. */
export const ERROR_METADATA = "toolrunner-error-bin";
/** Metadata with the code's own fields, such as `current_version`, as JSON in UTF-8. */
export const ERROR_EXTRA_METADATA = "toolrunner-error-extra-bin";
/** Metadata with whole seconds. */
export const RETRY_AFTER_METADATA = "retry-after";
/** Metadata with the id that the broker's log has. */
export const REQUEST_ID_METADATA = "x-request-id";

/** The status of a refusal, from the table of errors. */
export function grpcStatusOf(fault: Fault): status {
  const name = GRPC_STATUS_OF_ERROR_TYPE[fault.type];
  return name === null ? status.INTERNAL : GRPC_STATUS[name];
}

/** The error object as a message. */
export function apiErrorOf(fault: Fault, requestId: string): ApiError {
  return { type: fault.type, code: fault.code, message: fault.message, details: [...fault.details], requestId };
}

/** Metadata is bounded by the peer (8 KiB with most): details that do not fit are left out. */
const ERROR_METADATA_BYTES_MAX = 4_096;
const STATUS_MESSAGE_CHARACTERS_MAX = 1_024;

/** What a handler gives to grpc-js in place of an answer. */
export function serviceErrorOf(fault: Fault, requestId: string): ServiceError {
  const metadata = new Metadata();
  metadata.set(ERROR_METADATA, encodeWithin(apiErrorOf(fault, requestId), ERROR_METADATA_BYTES_MAX));
  if (Object.keys(fault.extra).length > 0) metadata.set(ERROR_EXTRA_METADATA, Buffer.from(JSON.stringify(fault.extra)));
  if (fault.retryAfterSeconds !== undefined) metadata.set(RETRY_AFTER_METADATA, String(fault.retryAfterSeconds));
  metadata.set(REQUEST_ID_METADATA, requestId);
  const details = wellFormed(fault.message.slice(0, STATUS_MESSAGE_CHARACTERS_MAX));
  return Object.assign(new Error(details), { code: grpcStatusOf(fault), details, metadata });
}

function encodeWithin(error: ApiError, limit: number): Buffer {
  let kept: ApiError = { ...error, message: error.message.slice(0, STATUS_MESSAGE_CHARACTERS_MAX) };
  for (;;) {
    const bytes = ApiError.encode(kept).finish();
    if (bytes.length <= limit || kept.details.length === 0) return Buffer.from(bytes);
    kept = { ...kept, details: kept.details.slice(0, Math.floor(kept.details.length / 2)) };
  }
}

/** A status message travels percent-encoded, which half a surrogate pair cannot. */
function wellFormed(text: string): string {
  return text.replace(/\p{Cs}/gu, "\u{fffd}");
}
