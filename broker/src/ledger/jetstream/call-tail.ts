/**
 * A tail of the calls' stream that does not fetch what this ledger appended itself.
 *
 * The sequences of a stream have no gaps but for deleted messages. So a tail that knows its own entries, and the newest
 * sequence, knows where entries of others must lie, and reads the stream there only: headers, and data where an entry has no note.
 *
 * Invariants:
 * - Versions rise strictly. Nothing is passed over that was not handed out, seen to be no entry, or said by the leader to be absent.
 * - Forks are skipped and reported (L1), as far as the call is among the {@link REMEMBERED_CALLS} that moved last.
 * - While others append, one reader stays open; while only this ledger appends, none.
 */
import type { TailedEntry, Version } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { RecentMap } from "../../domain/recent-map.js";
import { closedError } from "../append-rules.js";
import type { Arrivals } from "../arrivals.js";
import type { OwnEntries, OwnTail } from "../own-entries.js";
import { isNewLife, reportFork } from "./call-scan.js";
import { type EntryHeader, parseEntryHeader, parseNote } from "./entry-header.js";
import type { StreamNames } from "./names.js";
import { followWithPauses, PAUSE, type ReaderContext, type StreamMessage } from "./ordered-reader.js";
import { getMessage } from "./stored-message.js";

/** Calls whose last version a tail remembers at least, to tell forks. */
const REMEMBERED_CALLS = 20_000;
/** How long a tail that is up to date lets entries gather. */
const LINGER_MS = 20;
/** A gap may be an own entry whose acknowledgement is on its way: so long it is waited for, where the tail is near the end. */
const GAP_WAIT_MS = 20;
/** Versions behind the newest from which on a gap is read at once. */
const NEAR_END = 1_024;
/** A reader that met no entry of another broker for so long is ended when it comes to the end. */
const ALONE_AFTER_MS = 2_000;
/** Entries in a row whose data was not needed, after which a reader leaves it out again. */
const NOTED_IN_A_ROW = 1_000;

export interface CallTailContext {
  readonly reader: ReaderContext;
  readonly names: StreamNames;
  readonly log: Log;
  readonly own: OwnEntries;
  readonly arrivals: Arrivals;
  /** Of this ledger. */
  readonly incarnation: string;
  /** Aborts when the ledger closes. */
  readonly closing: AbortSignal;
}

/** All entries from version `from` on, then new ones, until `abort` does. Throws `closed` when the ledger is or gets closed. */
export async function* tailCalls(context: CallTailContext, from: Version, abort: AbortSignal): AsyncGenerator<TailedEntry> {
  const { own, arrivals, reader, closing } = context;
  if (closing.aborted) throw closedError("tail");
  const signal = AbortSignal.any([abort, closing]);
  const place = own.follow(from);
  const chains = new Chains(context);
  const schedule = (delayMs: number, task: () => void): { cancel(): void } => reader.clock.schedule(delayMs, task);
  try {
    while (!signal.aborted) {
      if (arrivals.latest < place.next) {
        await arrivals.reached(place.next, signal);
        await arrivals.gathered(place.next, LINGER_MS, signal, schedule);
      }
      for (let entry = place.take(); entry !== undefined && !signal.aborted; entry = place.take()) {
        chains.remember(entry.callId, entry.version);
        yield entry;
      }
      if (signal.aborted || arrivals.latest < place.next) continue;
      // Also when somebody is in a hurry: their newest version may be this ledger's own, and its acknowledgement a moment late.
      if (arrivals.latest - place.next < NEAR_END) await arrivals.gathered(Number.MAX_SAFE_INTEGER, GAP_WAIT_MS, signal, schedule);
      if (!place.hasNext) yield* readStream(context, place, chains, signal);
    }
  } finally {
    place.end();
  }
  if (!abort.aborted) throw closedError("tail");
}

/** Reads on from the tail's place until this ledger is alone again and the place is at the end. */
async function* readStream(context: CallTailContext, place: OwnTail, chains: Chains, signal: AbortSignal): AsyncGenerator<TailedEntry> {
  let headersOnly = true;
  while (!signal.aborted) {
    const outcome: PassOutcome = yield* readPass(context, place, chains, headersOnly, signal);
    if (outcome === "end") return;
    headersOnly = outcome === "headers";
  }
}

/** What comes after a reader: the end of reading, or a reader with the data or without it. */
type PassOutcome = "end" | "data" | "headers";

/** One reader. */
async function* readPass(
  context: CallTailContext,
  place: OwnTail,
  chains: Chains,
  headersOnly: boolean,
  signal: AbortSignal,
): AsyncGenerator<TailedEntry, PassOutcome> {
  const { reader, names, arrivals, incarnation } = context;
  let othersAt = reader.clock.monotonic();
  let noted = 0;
  const isAlone = (): boolean => reader.clock.monotonic() - othersAt >= ALONE_AFTER_MS;
  const options = { stream: names.stream, filter: names.subjects, from: place.next, headersOnly, signal };
  for await (const message of followWithPauses(reader, options)) {
    if (message === PAUSE) {
      if (!isAlone()) continue;
      const known = arrivals.latest;
      if (place.next > known) return "end";
      // The newest entries were deleted, or the consumer's server lags behind: the leader knows.
      const next = await getMessage(reader.requests, names.stream, { seq: place.next, next_by_subj: names.subjects });
      if (next !== undefined) continue;
      place.passed(known);
      return "end";
    }
    const header = parseEntryHeader(message.headers);
    const note = parseNote(message.headers);
    if (header !== undefined && note === undefined && headersOnly) return "data";
    if (header?.incarnation !== incarnation) othersAt = reader.clock.monotonic();
    noted = note === undefined ? 0 : noted + 1;
    place.passed(message.sequence);
    arrivals.announce(message.sequence);
    const taken = chains.entryOf(message, header, note);
    const entry = taken instanceof Promise ? await taken : taken;
    if (entry !== undefined) yield entry;
    if (!headersOnly && noted >= NOTED_IN_A_ROW) return "headers";
    if (place.hasNext && isAlone()) return "end";
  }
  return "end";
}

/** Where each call's chain ends, as far as a tail has seen it. */
class Chains {
  readonly #reader: ReaderContext;
  readonly #names: StreamNames;
  readonly #log: Log;
  readonly #lastOf = new RecentMap<string, Version>(REMEMBERED_CALLS);
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor({ reader, names, log }: CallTailContext) {
    this.#reader = reader;
    this.#names = names;
    this.#log = log;
  }

  remember(callId: string, version: Version): void {
    this.#lastOf.set(callId, version);
  }

  /** `undefined`: what was stored there is no link of its call's chain. A promise only where the leader has to be asked for that. */
  entryOf(
    message: StreamMessage,
    header: EntryHeader | undefined,
    note: string | undefined,
  ): TailedEntry | undefined | Promise<TailedEntry | undefined> {
    const callId = message.subject.slice(this.#names.subjectPrefix.length);
    const last = this.#lastOf.get(callId);
    const forked = (): undefined => reportFork(this.#log, callId, message);
    if (header === undefined) return forked();
    if (last === undefined || header.previous === last) return this.#linked(callId, message, header, note);
    return isNewLife(this.#reader, this.#names, header, last).then((isNew) =>
      isNew ? this.#linked(callId, message, header, note) : forked(),
    );
  }

  #linked(callId: string, message: StreamMessage, header: EntryHeader, note: string | undefined): TailedEntry {
    this.remember(callId, message.sequence);
    const data = note === undefined ? this.#decoder.decode(message.data) : undefined;
    return { callId, version: message.sequence, previous: header.previous, entryId: header.entryId, note, data };
  }
}
