/**
 * SHA-256 as hexadecimal text, on any platform. A platform's own is asynchronous and absent on insecure origins, so short texts,
 * and all texts where it is absent, are hashed here. Node's transports bring a quicker one.
 */

/** SHA-256 of the UTF-8 bytes of a text, 64 hexadecimal digits. */
export type Sha256 = (text: string) => string | Promise<string>;

/** Up to this many bytes hashing in place is quicker than a turn through the platform. */
const INLINE_BYTES_MAX = 8_192;

/** SHA-256 of the UTF-8 bytes of `text`, 64 hexadecimal digits. */
export async function sha256Hex(text: string): Promise<string> {
  const bytes = new TextEncoder().encode(text);
  const subtle: SubtleCrypto | undefined = globalThis.crypto?.subtle;
  if (bytes.length > INLINE_BYTES_MAX && subtle !== undefined) return hex(new Uint8Array(await subtle.digest("SHA-256", bytes)));
  return sha256Inline(bytes);
}

function hex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** The fraction bits of a root, as FIPS 180-4 derives its constants from the first primes. */
const fraction = (value: number) => ((value - Math.floor(value)) * 0x1_0000_0000) | 0;

function firstPrimes(count: number): readonly number[] {
  const primes: number[] = [];
  for (let candidate = 2; primes.length < count; candidate++) {
    if (primes.every((prime) => candidate % prime !== 0)) primes.push(candidate);
  }
  return primes;
}

const PRIMES = firstPrimes(64);
const ROUND = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const INITIAL = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));

const rotate = (word: number, by: number) => (word >>> by) | (word << (32 - by));

/** @internal SHA-256 without the platform. */
export function sha256Inline(message: Uint8Array): string {
  const length = ((message.length + 8) >> 6) * 64 + 64;
  const padded = new Uint8Array(length);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(length - 8, Math.floor(message.length / 0x2000_0000));
  view.setUint32(length - 4, (message.length << 3) >>> 0);
  const state = Int32Array.from(INITIAL);
  const words = new Int32Array(64);
  for (let block = 0; block < length; block += 64) compress(state, words, view, block);
  let text = "";
  for (const word of state) text += (word >>> 0).toString(16).padStart(8, "0");
  return text;
}

function compress(state: Int32Array, words: Int32Array, view: DataView, block: number): void {
  const word = (index: number) => words[index] as number;
  for (let index = 0; index < 16; index++) words[index] = view.getInt32(block + index * 4);
  for (let index = 16; index < 64; index++) {
    const early = word(index - 15);
    const late = word(index - 2);
    const small = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3);
    const large = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10);
    words[index] = (word(index - 16) + small + word(index - 7) + large) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let index = 0; index < 64; index++) {
    const sumE = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const first = (h + sumE + ((e & f) ^ (~e & g)) + (ROUND[index] as number) + word(index)) | 0;
    const sumA = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const second = (sumA + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  const sums = [a, b, c, d, e, f, g, h];
  for (let index = 0; index < 8; index++) state[index] = ((state[index] as number) + (sums[index] as number)) | 0;
}
