/** Sizes and cuts of text in UTF-8 bytes. */

/** UTF-8 bytes of `text`; a lone surrogate counts as its three-byte replacement. */
export function utf8Length(text: string): number {
  let bytes = text.length;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) continue;
    if (unit < 0x800) {
      bytes += 1;
    } else if (unit >= 0xd800 && unit < 0xdc00 && isLowSurrogate(text.charCodeAt(index + 1))) {
      bytes += 2;
      index += 1;
    } else {
      bytes += 2;
    }
  }
  return bytes;
}

/** The longest beginning of `text` of at most `maxBytes` bytes of UTF-8, cut between characters, lone surrogates replaced. */
export function cutUtf8(text: string, maxBytes: number): string {
  // No character takes fewer bytes than it has units: what lies beyond cannot be part of the answer.
  const bytes = new TextEncoder().encode(text.slice(0, maxBytes + 1));
  let end = Math.min(maxBytes, bytes.length);
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(0, end));
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit < 0xe000;
}
