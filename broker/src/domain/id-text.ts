/** How ids are spelled: a prefix and 26 characters of base 32, 130 bits of what they were made from. */

const ALPHABET = Buffer.from("abcdefghijklmnopqrstuvwxyz234567");

/** Characters of an id after its prefix. */
export const ID_CHARACTERS = 26;

/** The id `prefix_…` spelled by the low five bits of {@link ID_CHARACTERS} bytes from `start` on. */
export function idText(prefix: string, bytes: Uint8Array, start = 0): string {
  // Ids are keys of maps and parts of texts: one flat string, not one joined of 26.
  const text = Buffer.allocUnsafe(prefix.length + 1 + ID_CHARACTERS);
  text.write(`${prefix}_`, "latin1");
  for (let index = 0; index < ID_CHARACTERS; index += 1) {
    text[prefix.length + 1 + index] = ALPHABET[(bytes[start + index] ?? 0) & 31] ?? 0;
  }
  return text.toString("latin1");
}
