/**
 * What the ledger writes beside an entry's data: one header, so that an index scan needs no data at all.
 *
 * `Tr-Entry: <mark> <previous> <entry id> <incarnation>`. The mark is `o` (opens), `s` (settles) or `-`; the incarnation is
 * that of the writer. A message without it, or with one of another shape, is not an entry.
 */
import { headers, type MsgHdrs } from "@nats-io/nats-core";
import type { IndexMark, NewEntry, Version } from "../../domain/ports/ledger.js";

export interface EntryHeader {
  readonly mark: IndexMark;
  readonly previous: Version;
  readonly entryId: string;
  readonly incarnation: string;
}

const NAME = "Tr-Entry";
const EXPECTED = "Nats-Expected-Last-Subject-Sequence";
const SHAPE = /^([os-]) (\d{1,16}) ([A-Za-z0-9_-]{1,64}) ([A-Za-z0-9_-]{1,64})$/;
const LETTERS: Readonly<Record<IndexMark, string>> = { opens: "o", settles: "s", none: "-" };

/** Headers of a publish that stores `entry` only when the subject's last sequence is `expected`. */
export function entryHeaders(entry: NewEntry, expected: Version, incarnation: string): MsgHdrs {
  const all = expectingHeaders(expected);
  all.append(NAME, `${LETTERS[entry.mark]} ${expected} ${entry.entryId} ${incarnation}`);
  return all;
}

/** Headers of a publish that is stored only when the subject's last sequence is `expected`. */
export function expectingHeaders(expected: Version): MsgHdrs {
  const all = headers();
  all.append(EXPECTED, String(expected));
  return all;
}

/** `undefined`: what carries these headers is not an entry. */
export function parseEntryHeader(all: MsgHdrs | undefined): EntryHeader | undefined {
  const match = SHAPE.exec(all?.get(NAME) ?? "");
  if (match === null) return undefined;
  const [, letter, previous, entryId = "", incarnation = ""] = match;
  const mark: IndexMark = letter === "o" ? "opens" : letter === "s" ? "settles" : "none";
  return { mark, previous: Number(previous), entryId, incarnation };
}
