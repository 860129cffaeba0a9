/**
 * The part of a result that the model sees. Pure: the same input gives the same output.
 *
 * The budget counts the UTF-8 bytes of the compact JSON; the output never exceeds it, never splits a character,
 * keeps head and tail, and says what was cut and how to read the rest (features J1).
 */

export interface Projected {
  readonly text: string;
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  readonly truncated: boolean;
}

/** Part of the room that goes to the head: the beginning of a result usually says what it is. */
const HEAD_SHARE = 0.7;

/** @param json compact JSON of the result. @param budgetBytes at least 1,024. @param resultRef address of the whole result. */
export function project(json: string, budgetBytes: number, resultRef: string): Projected {
  const bytesBefore = Buffer.byteLength(json);
  if (bytesBefore <= budgetBytes) {
    return { text: json, bytesBefore, bytesAfter: bytesBefore, truncated: false };
  }
  const whole = Buffer.from(json);
  // The notice is sized for the largest number it can name, so that it fits whatever was cut.
  const noticeBytes = Buffer.byteLength(notice(bytesBefore, resultRef));
  const room = Math.max(0, budgetBytes - noticeBytes);
  const headEnd = characterBorder(whole, Math.floor(room * HEAD_SHARE), "down");
  const tailStart = characterBorder(whole, bytesBefore - (room - headEnd), "up");
  const text = `${whole.toString("utf8", 0, headEnd)}${notice(tailStart - headEnd, resultRef)}${whole.toString("utf8", tailStart)}`;
  return { text, bytesBefore, bytesAfter: Buffer.byteLength(text), truncated: true };
}

function notice(bytes: number, resultRef: string): string {
  return `\n[… ${bytes} bytes cut here; the whole result: ${resultRef} …]\n`;
}

/** The nearest place at or before (`down`), or at or after (`up`), `offset` where a UTF-8 character begins. */
export function characterBorder(bytes: Uint8Array, offset: number, direction: "down" | "up"): number {
  let place = Math.min(Math.max(0, offset), bytes.length);
  while (place > 0 && place < bytes.length && ((bytes[place] ?? 0) & 0xc0) === 0x80) {
    place += direction === "down" ? -1 : 1;
  }
  return place;
}
