export { CLOSE_CODES, type CloseCode, type RedialRule, redialRule } from "./close-codes.js";
export { ERROR_CODES, type ErrorCode, type ErrorType, isErrorCode } from "./error-codes.js";
export { type ChannelClose, type FrameChannel, FrameTooLargeError, type TransportName } from "./frame-channel.js";
export * from "./gen/toolrunner/v1/session.js";
