/** The floor's message: a number of four bytes, then the payload. */

const HEAD_BYTES = 4;

export function frameOf(number: number, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEAD_BYTES + payload.length);
  frame.writeUInt32LE(number, 0);
  frame.set(payload, HEAD_BYTES);
  return frame;
}

export function numberOf(frame: Buffer): number {
  return frame.readUInt32LE(0);
}

/** The same memory. */
export function payloadOf(frame: Buffer): Buffer {
  return frame.subarray(HEAD_BYTES);
}
