/** Random ids: `prefix` and 26 characters of lower-case base 32, 130 bits. */
const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

/** A new id such as `jrn_x3…`. */
export function randomId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(26));
  let id = `${prefix}_`;
  for (const byte of bytes) id += ALPHABET[byte & 31];
  return id;
}
