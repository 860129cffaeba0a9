/**
 * Reads one call's entries from the stream's leader.
 *
 * Entries name their predecessor, so a call is read backwards from its last entry: each step is a look-up by sequence, however
 * many other messages lie between, where a search forward for the subject takes time that grows with the stream on nats-server 2.9.
 *
 * Invariants (L1):
 * - What is handed out is a chain: the first entry at hand, then each time the first message that names its predecessor.
 *   Anything else on the subject is skipped, counted and logged (`ledger_forked`).
 *   The search for such things takes look-ups by subject, which nats-server 2.9 answers slowly over long stretches; there only
 *   short ones are searched. It holds one replica, where the compare is exact.
 * - No direct get: it may be answered by a replica that lags behind (L5).
 */
import type { StoredEntry, Version } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { type EntryHeader, parseEntryHeader } from "./entry-header.js";
import type { StreamNames } from "./names.js";
import type { Requests } from "./requests.js";
import { getMessage, type MessageQuery, type StoredMessage } from "./stored-message.js";

/** An entry as stored, with what is only in its header. */
export interface ReadEntry {
  readonly entry: StoredEntry;
  readonly header: EntryHeader;
}

export interface CallReader {
  /** The call's chain from the first entry whose version is at least `from`. Empty when there is none. */
  read(callId: string, from: Version): Promise<ReadEntry[]>;
  /** The same without the search for forks, for a compare after a conflict. */
  chain(callId: string, from: Version): Promise<ReadEntry[]>;
  /** The last message's sequence on the call's subject, entry or not; 0 when there is none. */
  last(callId: string): Promise<Version>;
  /** Entries and other messages that were skipped so far. */
  readonly forked: number;
}

/** `searchMax`: how many messages the server may search for one of a subject without reading its files. */
export function createCallReader(requests: Requests, names: StreamNames, log: Log, searchMax: () => number): CallReader {
  let forked = 0;

  const get = (query: MessageQuery): Promise<StoredMessage | undefined> => getMessage(requests, names.stream, query);

  const decoded = (callId: string, message: StoredMessage): ReadEntry | undefined => {
    const header = parseEntryHeader(message.headers);
    if (header === undefined) return undefined;
    const { previous, entryId } = header;
    return { header, entry: { callId, version: message.sequence, previous, entryId, data: message.data.toString("utf8") } };
  };

  /** `undefined`: something on the subject is no link of a chain. */
  const backwards = async (callId: string, from: Version): Promise<ReadEntry[] | undefined> => {
    const subject = names.subjectPrefix + callId;
    const found: ReadEntry[] = [];
    let message = await get({ last_by_subj: subject });
    while (message !== undefined && message.sequence >= from) {
      const read = message.subject === subject ? decoded(callId, message) : undefined;
      if (read === undefined || read.header.previous >= message.sequence) return undefined;
      found.push(read);
      // A predecessor that is gone was removed by retention: what is left begins here.
      message = read.header.previous === 0 || read.header.previous < from ? undefined : await get({ seq: read.header.previous });
    }
    return found.reverse();
  };

  /** Nothing lies before the first link or between two: the first message after each predecessor is the link. */
  const isWhole = async (callId: string, chain: readonly ReadEntry[]): Promise<boolean> => {
    const next_by_subj = names.subjectPrefix + callId;
    const checks = chain.map(async ({ entry }, index) => {
      if (index === 0 && entry.previous > 0) return true;
      if (entry.version - entry.previous > searchMax()) return true;
      return (await get({ seq: entry.previous + 1, next_by_subj }))?.sequence === entry.version;
    });
    return (await Promise.all(checks)).every(Boolean);
  };

  const forwards = async (callId: string, from: Version): Promise<ReadEntry[]> => {
    const next_by_subj = names.subjectPrefix + callId;
    const chain: ReadEntry[] = [];
    let skipped = 0;
    for (
      let message = await get({ seq: 1, next_by_subj });
      message !== undefined;
      message = await get({ seq: message.sequence + 1, next_by_subj })
    ) {
      const read = decoded(callId, message);
      const last = chain.at(-1);
      if (read !== undefined && (last === undefined || read.entry.previous === last.entry.version)) chain.push(read);
      else skipped += 1;
    }
    if (skipped > 0) {
      forked += skipped;
      log.error("ledger_forked", { call: callId, skipped });
    }
    return chain.filter(({ entry }) => entry.version >= from);
  };

  return {
    read: async (callId, from) => {
      const chain = await backwards(callId, from);
      return chain !== undefined && (await isWhole(callId, chain)) ? chain : forwards(callId, from);
    },
    chain: async (callId, from) => (await backwards(callId, from)) ?? forwards(callId, from),
    last: async (callId) => (await get({ last_by_subj: names.subjectPrefix + callId }))?.sequence ?? 0,
    get forked() {
      return forked;
    },
  };
}
