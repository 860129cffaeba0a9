/**
 * What the ledger writes beside an entry's data, so that a scan or a tail needs no data at all.
 *
 * `Tr-Entry: <mark> <previous> <entry id> <incarnation>`. The mark is `o` (opens), `s` (settles) or `-`; the incarnation is
 * that of the writer. A message without it, or with one of another shape, is not an entry.
 * `Tr-Note: <note>`, where the writer gave one.
 */
import type { MsgHdrs } from "@nats-io/nats-core";
import { MsgHdrsImpl } from "@nats-io/nats-core/internal";
import type { IndexMark, NewEntry, Version } from "../../domain/ports/ledger.js";

export interface EntryHeader {
  readonly mark: IndexMark;
  readonly previous: Version;
  readonly entryId: string;
  readonly incarnation: string;
}

const NAME = "Tr-Entry";
const NOTE = "Tr-Note";
const EXPECTED = "Nats-Expected-Last-Subject-Sequence";
const SHAPE = /^([os-]) (\d{1,16}) ([A-Za-z0-9_-]{1,64}) ([A-Za-z0-9_-]{1,64})$/;
const LETTERS: Readonly<Record<IndexMark, string>> = { opens: "o", settles: "s", none: "-" };

/**
 * Headers that are only written: their text, without a list that is made, checked name by name and walked again. That takes
 * a sixth of the client's own, twice for each call.
 */
class WrittenHeaders extends MsgHdrsImpl {
  readonly #text: string;

  /** `lines` are well formed: known names, values without line breaks. */
  constructor(lines: string) {
    super();
    this.#text = `NATS/1.0\r\n${lines}\r\n`;
  }

  override encode(): Uint8Array {
    return Buffer.from(this.#text, "utf8");
  }
}

/** Headers of a publish that stores `entry`, checked before, only when the subject's last sequence is `expected`. To be published only. */
export function entryHeaders(entry: NewEntry, expected: Version, incarnation: string): MsgHdrs {
  const note = entry.note === undefined ? "" : `${NOTE}: ${entry.note}\r\n`;
  return new WrittenHeaders(
    `${EXPECTED}: ${expected}\r\n${NAME}: ${LETTERS[entry.mark]} ${expected} ${entry.entryId} ${incarnation}\r\n${note}`,
  );
}

/** Headers of a publish that is stored only when the subject's last sequence is `expected`. To be published only. */
export function expectingHeaders(expected: Version): MsgHdrs {
  return new WrittenHeaders(`${EXPECTED}: ${expected}\r\n`);
}

/** The note that an entry was written with. */
export function parseNote(all: MsgHdrs | undefined): string | undefined {
  const note = all?.get(NOTE) ?? "";
  return note === "" ? undefined : note;
}

/** `undefined`: what carries these headers is not an entry. */
export function parseEntryHeader(all: MsgHdrs | undefined): EntryHeader | undefined {
  const match = SHAPE.exec(all?.get(NAME) ?? "");
  if (match === null) return undefined;
  const [, letter, previous, entryId = "", incarnation = ""] = match;
  const mark: IndexMark = letter === "o" ? "opens" : letter === "s" ? "settles" : "none";
  return { mark, previous: Number(previous), entryId, incarnation };
}
