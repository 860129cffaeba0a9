/**
 * A channel over the bidirectional stream `RunnerGateway/Session`.
 *
 * The stream carries encoded frames as they are (the service definition here does not decode), so that a malformed or
 * oversized frame is closed with the same codes as on a WebSocket.
 *
 * gRPC has no close codes, so they travel like this:
 * - a broker ends the stream with the status of the close table and the trailers `toolrunner-close-code` (decimal) and
 *   `toolrunner-close-reason` (percent-encoded);
 * - a runner that closes with 1000 half-closes; with another code it sends a `protocol_fault` whose code is the close
 *   code's name, then half-closes. A broker that sees a half-close right after such a fault reports that close code.
 * - without a trailer, UNAUTHENTICATED counts as 4401 and PERMISSION_DENIED as 4403; every other status but OK is a broken connection.
 */
import {
  type ChannelCredentials,
  type Client,
  type ClientDuplexStream,
  type ClientOptions,
  Metadata,
  type MethodDefinition,
  makeClientConstructor,
  type ServerDuplexStream,
  type ServiceDefinition,
  type StatusObject,
  status as statusNames,
} from "@grpc/grpc-js";
import { type ChannelCore, type ChannelLimits, createChannelCore } from "../channel-core.js";
import { CLOSE_CODES, type CloseCode, closeCodeNamed, grpcStatusOfClose } from "../close-codes.js";
import type { FrameChannel } from "../frame-channel.js";
import { brokerFrameCodec, type FrameCodec, runnerFrameCodec } from "../frame-codec.js";
import { RunnerGatewayDefinition } from "../gen/toolrunner/v1/runner_gateway.js";
import type { BrokerFrame, RunnerFrame } from "../gen/toolrunner/v1/session.js";
import { GRPC_STATUS } from "../grpc-status.js";
import { bufferOf } from "./service-adapter.js";

/** Trailer with the close code, decimal. */
export const CLOSE_CODE_TRAILER = "toolrunner-close-code";
/** Trailer with the close reason, percent-encoded UTF-8. */
export const CLOSE_REASON_TRAILER = "toolrunner-close-reason";

type SessionMethod = MethodDefinition<Uint8Array, Uint8Array>;
const session: SessionMethod = {
  path: `/${RunnerGatewayDefinition.fullName}/${RunnerGatewayDefinition.methods.session.name}`,
  requestStream: true,
  responseStream: true,
  requestSerialize: bufferOf,
  requestDeserialize: (bytes) => bytes,
  responseSerialize: bufferOf,
  responseDeserialize: (bytes) => bytes,
};

/** The gateway's service with encoded frames as messages; {@link createGrpcStreamChannel} reads and writes them. */
export const runnerGatewayService: ServiceDefinition<{ session: SessionMethod }> = { session };

/** Client of {@link runnerGatewayService}. */
export type RunnerGatewayClient = Client & { session(metadata?: Metadata): ClientDuplexStream<Uint8Array, Uint8Array> };

/** Makes a client that opens sessions. `address` is `host:port`; nothing is dialled before `session()`. */
export function createRunnerGatewayClient(
  address: string,
  credentials: ChannelCredentials,
  options: Partial<ClientOptions> = {},
): RunnerGatewayClient {
  const Constructor = makeClientConstructor({ session }, RunnerGatewayDefinition.fullName);
  return new Constructor(address, credentials, options) as unknown as RunnerGatewayClient;
}

/** Makes the channel of one end. Call it in the same turn in which the stream was opened or handed to the handler. */
export function createGrpcStreamChannel(
  stream: ClientDuplexStream<Uint8Array, Uint8Array>,
  options: ChannelLimits & { readonly side: "runner" },
): FrameChannel<BrokerFrame, RunnerFrame>;
export function createGrpcStreamChannel(
  stream: ServerDuplexStream<Uint8Array, Uint8Array>,
  options: ChannelLimits & { readonly side: "broker" },
): FrameChannel<RunnerFrame, BrokerFrame>;
export function createGrpcStreamChannel(
  stream: ClientDuplexStream<Uint8Array, Uint8Array> | ServerDuplexStream<Uint8Array, Uint8Array>,
  options: ChannelLimits & { readonly side: "runner" | "broker" },
): FrameChannel<BrokerFrame, RunnerFrame> | FrameChannel<RunnerFrame, BrokerFrame> {
  return options.side === "runner"
    ? joinClientStream(stream as ClientDuplexStream<Uint8Array, Uint8Array>, options)
    : joinServerStream(stream as ServerDuplexStream<Uint8Array, Uint8Array>, options);
}

function joinClientStream(
  stream: ClientDuplexStream<Uint8Array, Uint8Array>,
  limits: ChannelLimits,
): FrameChannel<BrokerFrame, RunnerFrame> {
  const outbound = runnerFrameCodec("binary");
  const writing = createWriting(stream, () => core.wrote());
  let status: StatusObject | undefined;
  const core: ChannelCore<BrokerFrame, RunnerFrame> = createChannelCore({
    transport: "grpc",
    inbound: brokerFrameCodec("binary"),
    outbound,
    limits,
    wire: {
      ...writing,
      close(code, reason) {
        if (code !== 1000) {
          const value = { code: CLOSE_CODES[code].name, message: reason, callId: "" };
          const fault = outbound.encode({ frame: { $case: "protocolFault", value } });
          writing.write(fault, fault.length);
        }
        stream.end();
      },
      abort: () => stream.cancel(),
    },
  });

  const finish = (): void => {
    if (status !== undefined) reportStatus(core, status);
  };
  stream.on("data", (bytes: Uint8Array) => core.received(bytes));
  // The status may overtake frames that the stream still holds: the end comes after them.
  stream.on("status", (received) => {
    status = received;
    if (stream.readableEnded || stream.destroyed) finish();
  });
  stream.on("end", finish);
  stream.on("close", finish);
  // The status says the same; without a listener the process would end.
  stream.on("error", () => {});
  return core.channel;
}

function reportStatus(core: Pick<ChannelCore<never, never>, "peerClosed" | "broke">, status: StatusObject): void {
  const code = Number(status.metadata.get(CLOSE_CODE_TRAILER)[0]);
  if (Number.isInteger(code)) core.peerClosed(code, decodeReason(status.metadata.get(CLOSE_REASON_TRAILER)[0]));
  else if (status.code === GRPC_STATUS.OK) core.peerClosed(1000, "");
  else if (status.code === GRPC_STATUS.UNAUTHENTICATED) core.peerClosed(4401, status.details);
  else if (status.code === GRPC_STATUS.PERMISSION_DENIED) core.peerClosed(4403, status.details);
  else core.broke(`${statusNames[status.code] ?? status.code}: ${status.details}`);
}

function joinServerStream(
  stream: ServerDuplexStream<Uint8Array, Uint8Array>,
  limits: ChannelLimits,
): FrameChannel<RunnerFrame, BrokerFrame> {
  let lastFault: { readonly code: CloseCode; readonly reason: string } | undefined;
  const frames = runnerFrameCodec("binary");
  const inbound: FrameCodec<RunnerFrame> = {
    ...frames,
    decode(data) {
      const decoded = frames.decode(data);
      const frame = decoded.kind === "frame" ? decoded.frame.frame : undefined;
      const code = frame?.$case === "protocolFault" ? closeCodeNamed(frame.value.code) : undefined;
      lastFault = code !== undefined && frame?.$case === "protocolFault" ? { code, reason: frame.value.message } : undefined;
      return decoded;
    },
  };
  const writing = createWriting(stream, () => core.wrote());
  const endStream = (code: CloseCode, reason: string): void => endServerStream(stream, code, reason);
  const core: ChannelCore<RunnerFrame, BrokerFrame> = createChannelCore({
    transport: "grpc",
    inbound,
    outbound: brokerFrameCodec("binary"),
    limits,
    wire: {
      ...writing,
      close: endStream,
      // grpc-js offers no reset of a single stream: this drops what it holds; the rest goes with the connection.
      abort: () => void stream.destroy(),
    },
  });

  stream.on("data", (bytes: Uint8Array) => core.received(bytes));
  stream.on("end", () => {
    const halfClosed = (): void => {
      if (stream.cancelled) return;
      const { code, reason } = lastFault ?? { code: 1000 as const, reason: "" };
      core.peerClosed(code, reason);
      endStream(1000, "");
    };
    // A stream that is reset ends as well, and is known to be cancelled up to two turns later: http2 destroys it from an immediate.
    setImmediate(() => setImmediate(halfClosed));
  });
  // Also emitted after a regular end, when the close is settled already.
  stream.on("cancelled", () => core.broke("the stream was cancelled or its connection was lost"));
  stream.on("finish", () => core.peerClosed(1000, ""));
  stream.on("error", (error) => core.broke(error.message));
  return core.channel;
}

/**
 * Ends a session's stream with a close code. For refusals before there is a channel, such as a wrong key in the metadata,
 * and for the channel itself.
 */
export function endServerStream(
  stream: Pick<ServerDuplexStream<Uint8Array, Uint8Array>, "end" | "emit">,
  code: CloseCode,
  reason: string,
): void {
  const trailers = new Metadata();
  trailers.set(CLOSE_CODE_TRAILER, String(code));
  trailers.set(CLOSE_REASON_TRAILER, encodeURIComponent(reason));
  if (code === 1000) stream.end(trailers);
  else stream.emit("error", { code: grpcStatusOfClose(code), details: reason, metadata: trailers, message: reason });
}

function createWriting(stream: ClientDuplexStream<Uint8Array, Uint8Array> | ServerDuplexStream<Uint8Array, Uint8Array>, wrote: () => void) {
  let pendingBytes = 0;
  return {
    write(data: Uint8Array | string, bytes: number): void {
      if (typeof data === "string") throw new TypeError("gRPC streams carry binary frames");
      pendingBytes += bytes;
      stream.write(data, () => {
        pendingBytes -= bytes;
        wrote();
      });
    },
    bufferedBytes: () => pendingBytes,
    pause: () => void stream.pause(),
    resume: () => void stream.resume(),
  };
}

function decodeReason(value: string | Buffer | undefined): string {
  const text = value === undefined ? "" : String(value);
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
