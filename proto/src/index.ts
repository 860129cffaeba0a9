export type { ChannelLimits } from "./channel-core.js";
export { CLOSE_CODES, type CloseCode, closeCodeNamed, grpcStatusOfClose, isCloseCode, type RedialRule, redialRule } from "./close-codes.js";
export {
  ERROR_CODES,
  type ErrorCode,
  type ErrorType,
  GRPC_STATUS_OF_ERROR_TYPE,
  grpcStatusOfError,
  isErrorCode,
} from "./error-codes.js";
export { type ChannelClose, type FrameChannel, FrameTooLargeError, type TransportName } from "./frame-channel.js";
export {
  brokerFrameCodec,
  type DecodedFrame,
  encodingOfSubprotocol,
  FRAME_BYTES_MAX,
  type FrameCodec,
  FrameEncodeError,
  type FrameEncoding,
  runnerFrameCodec,
  SUBPROTOCOLS,
} from "./frame-codec.js";
export { GRPC_STATUS, type GrpcStatusName } from "./grpc-status.js";
export { createMemoryChannelPair, type MemoryChannelPair } from "./memory-channel.js";
export * from "./messages.js";
export { MODEL_TEXT_BYTES_MAX, modelText } from "./model-text.js";
export {
  createBinaryRunnerChannel,
  createWebSocketChannel,
  type WebSocketChannelOptions,
  type WebSocketLike,
} from "./websocket-channel.js";
