/**
 * Messages to bytes, with one writer for all: its buffer grows once instead of for every message.
 *
 * Invariant: between two messages the writer is empty; one that was left in the middle of a message, or has grown large, is dropped.
 */
import { BinaryWriter } from "@bufbuild/protobuf/wire";

/** A writer whose buffer may be larger than twice this is not kept, bytes. */
const KEPT_BYTES_MAX = 65_536;

let kept: BinaryWriter | undefined;

/** The encoded message, in memory of its own. Throws what the encoder throws. */
export function messageBytes<T>(type: { encode(message: T, writer?: BinaryWriter): BinaryWriter }, message: T): Uint8Array {
  const writer = kept ?? new BinaryWriter();
  // While it writes, and when it throws, it is nobody's.
  kept = undefined;
  const bytes = type.encode(message, writer).finish();
  if (bytes.length <= KEPT_BYTES_MAX) kept = writer;
  return bytes;
}
