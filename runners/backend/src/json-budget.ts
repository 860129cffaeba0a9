/**
 * Counts and cuts by the bytes that the model's budget counts: UTF-8 bytes of the compact JSON of a result,
 * escapes included.
 *
 * Invariants: what `largestFit` returns fits whenever anything fits; no cut splits a surrogate pair.
 */

/** UTF-8 bytes of the compact JSON of `value`. */
export function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/**
 * The largest `count` from 0 to `maximum` for which `build(count)` fits into `budgetBytes`; 0 when none does.
 * `build` must not shrink as `count` grows.
 */
export function largestFit(maximum: number, budgetBytes: number, build: (count: number) => unknown): number {
  if (jsonBytes(build(maximum)) <= budgetBytes) return maximum;
  let fits = 0;
  let tooLarge = maximum;
  while (tooLarge - fits > 1) {
    const middle = Math.floor((fits + tooLarge) / 2);
    if (jsonBytes(build(middle)) <= budgetBytes) fits = middle;
    else tooLarge = middle;
  }
  return fits;
}

/** The first `length` UTF-16 units of `text`, one fewer where the cut would split a surrogate pair. */
export function headOf(text: string, length: number): string {
  if (length >= text.length) return text;
  if (length <= 0) return "";
  return text.slice(0, isHighSurrogate(text.charCodeAt(length - 1)) ? length - 1 : length);
}

/** The last `length` UTF-16 units of `text`, one fewer where the cut would split a surrogate pair. */
export function tailOf(text: string, length: number): string {
  if (length >= text.length) return text;
  if (length <= 0) return "";
  const start = text.length - length;
  return text.slice(isLowSurrogate(text.charCodeAt(start)) ? start + 1 : start);
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

/** The end of `text`, with `…` before it, that takes at most `maximumBytes` as JSON; the whole where it fits. */
export function shortenedTo(text: string, maximumBytes: number): string {
  if (jsonBytes(text) <= maximumBytes) return text;
  const ending = (length: number) => `…${tailOf(text, length)}`;
  return ending(largestFit(text.length - 1, maximumBytes, ending));
}

/** What came of laying lines out on one page. */
export interface FittedPage<Result> {
  readonly result: Result;
  /** How many of the lines are on the page; at least 1 when there was one. */
  readonly count: number;
}

/**
 * Puts as many leading `lines` into a result as its budget holds. Where not even the first fits whole, it is cut with `…`,
 * so that a reader always gets on.
 * @param build makes the result of the first `count` lines joined as `text`; its other fields should be small
 */
export function fitLines<Result>(
  lines: readonly string[],
  budgetBytes: number,
  build: (text: string, count: number) => Result,
): FittedPage<Result> {
  const page = (count: number) => build(lines.slice(0, count).join("\n"), count);
  const count = largestFit(lines.length, budgetBytes, page);
  if (count > 0 || lines.length === 0) return { result: page(count), count };
  const first = lines[0] ?? "";
  const cut = (length: number) => build(`${headOf(first, length)}…`, 1);
  return { result: cut(largestFit(first.length, budgetBytes, cut)), count: 1 };
}

/** A path on one line: as it is, or as a JSON string where it holds a line break or another control character. */
export function showPath(path: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  return /[\u0000-\u001f\u007f]/.test(path) ? JSON.stringify(path) : path;
}
