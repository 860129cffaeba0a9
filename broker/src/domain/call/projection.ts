/**
 * The part of a result that the model sees. Pure: the same input gives the same output.
 *
 * Invariants (features J1):
 * - The output never has more UTF-8 bytes than the budget, escapes and notice included.
 * - It never splits what a reader takes for one character: no UTF-8 sequence, no JSON escape, no emoji joined of several parts
 *   or letter with its marks (up to {@link CLUSTER_UNITS_MAX}; what is longer is no character anybody reads).
 * - It keeps head and tail, and says how much was cut and where the whole is.
 */

export interface Projected {
  readonly text: string;
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  readonly truncated: boolean;
}

/** Part of the room that goes to the head: the beginning of a result usually says what it is. */
const HEAD_SHARE = 0.7;
/** The notice may take this part of the budget; a longer one leaves the address out. */
const NOTICE_SHARE = 0.5;
/** UTF-16 units of the longest joined character that is kept whole. The longest emoji in use have 35. */
const CLUSTER_UNITS_MAX = 64;

const clusters = new Intl.Segmenter("en", { granularity: "grapheme" });

/** @param json compact JSON of the result. @param budgetBytes at least 1,024. @param resultRef address of the whole result. */
export function project(json: string, budgetBytes: number, resultRef: string): Projected {
  const whole = Buffer.from(json);
  const bytesBefore = whole.length;
  if (bytesBefore <= budgetBytes) {
    return { text: json, bytesBefore, bytesAfter: bytesBefore, truncated: false };
  }
  // The notice is sized for the largest number it can name, so that it fits whatever was cut.
  const notice = noticeFor(bytesBefore, budgetBytes, resultRef);
  const room = Math.max(0, budgetBytes - Buffer.byteLength(notice(bytesBefore)));
  const headRoom = Math.floor(room * HEAD_SHARE);
  const headEnd = wholeBorder(whole, headRoom, "down");
  const tailStart = wholeBorder(whole, bytesBefore - (room - headRoom), "up");
  const text = `${whole.toString("utf8", 0, headEnd)}${notice(tailStart - headEnd)}${whole.toString("utf8", tailStart)}`;
  return { text, bytesBefore, bytesAfter: Buffer.byteLength(text), truncated: true };
}

function noticeFor(bytesBefore: number, budgetBytes: number, resultRef: string): (bytes: number) => string {
  const candidates = [
    (bytes: number) => `\n[… ${bytes} bytes cut here; the whole result: ${resultRef} …]\n`,
    (bytes: number) => `\n[… ${bytes} bytes cut here; read the call's result for the whole …]\n`,
    (bytes: number) => `\n[… ${bytes} bytes cut …]\n`,
  ];
  return candidates.find((notice) => Buffer.byteLength(notice(bytesBefore)) <= budgetBytes * NOTICE_SHARE) ?? (() => "");
}

/** The nearest place at or before (`down`), or at or after (`up`), `offset` where a UTF-8 character begins. */
export function characterBorder(bytes: Uint8Array, offset: number, direction: "down" | "up"): number {
  let place = Math.min(Math.max(0, offset), bytes.length);
  while (place > 0 && place < bytes.length && ((bytes[place] ?? 0) & 0xc0) === 0x80) {
    place += direction === "down" ? -1 : 1;
  }
  return place;
}

type Direction = "down" | "up";

/** The nearest place at or before, or at or after, `offset` that splits neither a character nor an escape. */
function wholeBorder(bytes: Buffer, offset: number, direction: Direction): number {
  let place = characterBorder(bytes, offset, direction);
  for (;;) {
    // Leaving an escape can lead into a joined character and the other way round; each step goes on in the same direction.
    const next = clusterBorder(bytes, escapeBorder(bytes, place, direction), direction);
    if (next === place) {
      return place;
    }
    place = next;
  }
}

const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
/** `\ud83d\ude00`: two escapes that are one character. */
const ESCAPE_BYTES_MAX = 12;

function escapeBorder(bytes: Buffer, cut: number, direction: Direction): number {
  let place = Math.max(0, cut - ESCAPE_BYTES_MAX);
  // Which backslash of a run begins an escape is only known from the run's first.
  while (place > 0 && bytes[place - 1] === BACKSLASH) {
    place -= 1;
  }
  while (place < cut) {
    const end = place + (bytes[place] === BACKSLASH ? escapeBytes(bytes, place) : 1);
    if (end > cut) {
      return direction === "down" ? place : Math.min(end, bytes.length);
    }
    place = end;
  }
  return cut;
}

function escapeBytes(bytes: Buffer, place: number): number {
  const next = bytes[place + 1] ?? 0x80;
  if (next === LETTER_U) {
    const near = bytes.toString("latin1", place, place + ESCAPE_BYTES_MAX);
    const unicode = /^\\u(?:d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|[0-9a-f]{4})/i.exec(near);
    return unicode?.[0].length ?? 2;
  }
  // A backslash before anything but ASCII escapes nothing: the text is not JSON.
  return next < 0x80 ? 2 : 1;
}

function clusterBorder(bytes: Buffer, cut: number, direction: Direction): number {
  // A unit has at most three bytes of UTF-8, so this reaches past any character that is kept whole.
  const reach = 4 * CLUSTER_UNITS_MAX;
  const from = evenFlags(bytes, characterBorder(bytes, cut - reach, "up"));
  const before = bytes.toString("utf8", from, cut);
  const text = before + bytes.toString("utf8", cut, characterBorder(bytes, cut + reach, "down"));
  const cluster = clusters.segment(text).containing(before.length);
  if (cluster === undefined || cluster.index === before.length || cluster.segment.length > CLUSTER_UNITS_MAX) {
    return cut;
  }
  return direction === "down"
    ? cut - Buffer.byteLength(before.slice(cluster.index))
    : cut + Buffer.byteLength(text.slice(before.length, cluster.index + cluster.segment.length));
}

/** Flags are pairs of letters that nothing separates: a look at some of a row must begin at the first letter of a pair. */
function evenFlags(bytes: Buffer, from: number): number {
  const isFlagLetter = (place: number): boolean => {
    const last = bytes[place + 3] ?? 0;
    return bytes[place] === 0xf0 && bytes[place + 1] === 0x9f && bytes[place + 2] === 0x87 && last >= 0xa6 && last <= 0xbf;
  };
  let first = from;
  while (first >= 4 && isFlagLetter(first - 4)) {
    first -= 4;
  }
  return ((from - first) / 4) % 2 === 1 && isFlagLetter(from) ? from + 4 : from;
}
