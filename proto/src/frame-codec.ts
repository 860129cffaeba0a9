/**
 * Frames to bytes and back, in binary protobuf and in canonical proto3 JSON.
 *
 * Invariants:
 * - decoding is total: whatever arrives becomes a typed {@link DecodedFrame}, nothing is thrown;
 * - nothing over {@link FRAME_BYTES_MAX} leaves (R9) or is taken in, whichever the encoding;
 * - a frame of a kind that this side does not know decodes to a frame whose `frame` is undefined, so that it can be refused by type;
 * - strings arrive exactly as they were sent: text that is not UTF-8 is malformed, a leading U+FEFF stays.
 */
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { FrameTooLargeError } from "./frame-channel.js";
import { FRAME_SCHEMAS } from "./gen/frame-schema.js";
import { BrokerFrame, type MessageFns, RunnerFrame } from "./gen/toolrunner/v1/session.js";
import { createJsonCodec, type JsonCodec } from "./json-codec.js";
import { messageBytes } from "./message-bytes.js";
import { utf8Length } from "./utf8.js";

/** Largest encoded frame in either encoding, bytes. */
export const FRAME_BYTES_MAX = 1_048_576;

/** How frames are written on a WebSocket. gRPC and the memory pair are always binary. */
export type FrameEncoding = "binary" | "json";

/** WebSocket subprotocol of each encoding. */
export const SUBPROTOCOLS = {
  binary: "toolrunner.v1.proto",
  json: "toolrunner.v1.json",
} as const satisfies Record<FrameEncoding, string>;

/** The encoding that a WebSocket subprotocol stands for; `undefined` when it is none of ours. */
export function encodingOfSubprotocol(subprotocol: string): FrameEncoding | undefined {
  if (subprotocol === SUBPROTOCOLS.binary) return "binary";
  return subprotocol === SUBPROTOCOLS.json ? "json" : undefined;
}

/** What came of decoding. `message` says what was wrong, without payload; `bytes` is the size that was refused. */
export type DecodedFrame<T> =
  | { readonly kind: "frame"; readonly frame: T; readonly bytes: number }
  | { readonly kind: "malformed"; readonly message: string }
  | { readonly kind: "too_large"; readonly bytes: number };

/** A frame with a field that its type cannot hold, such as a fraction in an integer: a mistake of the sending program. */
export class FrameEncodeError extends Error {
  override readonly name = "FrameEncodeError";
}

/** Encodes and decodes the frames of one direction in one encoding. Stateless. */
export interface FrameCodec<T> {
  readonly encoding: FrameEncoding;
  /**
   * Bytes in binary, text in JSON.
   * Throws {@link FrameTooLargeError} over {@link FRAME_BYTES_MAX} and {@link FrameEncodeError} for a value out of its field's range.
   */
  encode(frame: T): Uint8Array | string;
  /** Never throws. Binary takes bytes only, JSON takes text only; the other is malformed. */
  decode(data: Uint8Array | ArrayBuffer | string): DecodedFrame<T>;
}

type FrameName = "RunnerFrame" | "BrokerFrame";
interface FrameLike {
  readonly frame?: { readonly $case: string } | undefined;
}

let jsonCodec: JsonCodec | undefined;
/** Made on first use: who speaks binary does not pay for the tables. */
function json(): JsonCodec {
  jsonCodec ??= createJsonCodec(FRAME_SCHEMAS);
  return jsonCodec;
}

const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const decodeUtf8 = (bytes: Uint8Array): string => strictDecoder.decode(bytes);

function encodeBinary<T extends FrameLike>(type: MessageFns<T>, frame: T): Uint8Array {
  let bytes: Uint8Array;
  try {
    bytes = messageBytes(type, frame);
  } catch (error) {
    throw new FrameEncodeError(`${nameOf(frame)} cannot be encoded: ${textOf(error)}`, { cause: error });
  }
  if (bytes.length > FRAME_BYTES_MAX) throw new FrameTooLargeError(bytes.length, FRAME_BYTES_MAX, nameOf(frame));
  return bytes;
}

function decodeBinary<T>(type: MessageFns<T>, bytes: Uint8Array): DecodedFrame<T> {
  if (bytes.length > FRAME_BYTES_MAX) return { kind: "too_large", bytes: bytes.length };
  try {
    const reader = new BinaryReader(bytes, decodeUtf8);
    const frame = type.decode(reader);
    // The decoder stops early at a zero tag or an end-group tag: what follows would be lost in silence.
    if (reader.pos !== bytes.length) return { kind: "malformed", message: `invalid tag near byte ${reader.pos}` };
    return { kind: "frame", frame, bytes: bytes.length };
  } catch (error) {
    return { kind: "malformed", message: textOf(error) };
  }
}

function encodeJson<T extends FrameLike>(type: MessageFns<T>, name: FrameName, frame: T): string {
  // The binary encoder checks ranges, so that both encodings refuse the same frames; it also bounds the work below.
  encodeBinary(type, frame);
  const text = JSON.stringify(json().toJson(name, frame));
  const bytes = utf8Length(text);
  if (bytes > FRAME_BYTES_MAX) throw new FrameTooLargeError(bytes, FRAME_BYTES_MAX, `${nameOf(frame)} as JSON`);
  return text;
}

function decodeJson<T>(name: FrameName, text: string): DecodedFrame<T> {
  const bytes = utf8Length(text);
  if (bytes > FRAME_BYTES_MAX) return { kind: "too_large", bytes };
  try {
    return { kind: "frame", frame: json().fromJson(name, JSON.parse(text)) as T, bytes };
  } catch (error) {
    // The parser's own message quotes the text.
    return { kind: "malformed", message: error instanceof SyntaxError ? "the text is not JSON" : textOf(error) };
  }
}

function createBinaryFrameCodec<T extends FrameLike>(type: MessageFns<T>): FrameCodec<T> {
  return {
    encoding: "binary",
    encode: (frame) => encodeBinary(type, frame),
    decode: (data) =>
      typeof data === "string"
        ? { kind: "malformed", message: "a text message on the binary subprotocol" }
        : decodeBinary(type, data instanceof ArrayBuffer ? new Uint8Array(data) : data),
  };
}

function createJsonFrameCodec<T extends FrameLike>(type: MessageFns<T>, name: FrameName): FrameCodec<T> {
  return {
    encoding: "json",
    encode: (frame) => encodeJson(type, name, frame),
    decode: (data) =>
      typeof data === "string" ? decodeJson(name, data) : { kind: "malformed", message: "a binary message on the JSON subprotocol" },
  };
}

// Made without effects: a bundle for the browser keeps those that it uses, and the tables of JSON only with theirs.
/** Codec of the frames that runners send, in binary. */
export const RUNNER_FRAMES_BINARY: FrameCodec<RunnerFrame> = /* @__PURE__ */ createBinaryFrameCodec(RunnerFrame);
/** Codec of the frames that brokers send, in binary. */
export const BROKER_FRAMES_BINARY: FrameCodec<BrokerFrame> = /* @__PURE__ */ createBinaryFrameCodec(BrokerFrame);
const RUNNER_FRAMES_JSON = /* @__PURE__ */ createJsonFrameCodec(RunnerFrame, "RunnerFrame");
const BROKER_FRAMES_JSON = /* @__PURE__ */ createJsonFrameCodec(BrokerFrame, "BrokerFrame");

/** Codec of the frames that runners send; the same one for all channels. */
export function runnerFrameCodec(encoding: FrameEncoding): FrameCodec<RunnerFrame> {
  return encoding === "json" ? RUNNER_FRAMES_JSON : RUNNER_FRAMES_BINARY;
}

/** Codec of the frames that brokers send; the same one for all channels. */
export function brokerFrameCodec(encoding: FrameEncoding): FrameCodec<BrokerFrame> {
  return encoding === "json" ? BROKER_FRAMES_JSON : BROKER_FRAMES_BINARY;
}

/** "frame receipt": what the errors call it. */
function nameOf(frame: FrameLike): string {
  return `frame ${frame.frame?.$case ?? "without a kind"}`;
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
