/**
 * The records of the index of open calls, as they lie in their stream: one message for each subject, the newest.
 *
 * - `scan.<incarnation>.<generation>`: a {@link ScanRecord}, one for each broker that is alive or was not yet retired.
 * - `open.<call id>`: a marker, for a call that was open for longer than a moment.
 */
import { expectingHeaders } from "./entry-header.js";
import type { StreamNames } from "./names.js";
import { type ReaderContext, readToEnd } from "./ordered-reader.js";
import { WRONG_LAST_SEQUENCE } from "./requests.js";
import { deleteMessage, getMessage, type StoredMessage } from "./stored-message.js";

/** From where on calls must be searched for open ones that have no marker. */
export interface ScanRecord {
  readonly scanFrom: number;
  /** `retiring`: somebody takes the record away; its broker needs a new one. */
  readonly state: "live" | "retiring";
}

export interface StoredScanRecord extends ScanRecord {
  readonly key: RecordKey;
  readonly sequence: number;
}

export interface RecordKey {
  readonly incarnation: string;
  readonly generation: string;
}

export interface IndexContents {
  readonly records: readonly StoredScanRecord[];
  readonly marked: ReadonlySet<string>;
}

export interface IndexStore {
  /** Writes the record when its last sequence is `expected` (0: absent). `undefined`: it is not. */
  putRecord(key: RecordKey, record: ScanRecord, expected: number): Promise<number | undefined>;
  getRecord(key: RecordKey): Promise<StoredScanRecord | undefined>;
  /** Removes the record when it is still the message of that sequence. */
  deleteRecord(record: StoredScanRecord): Promise<void>;
  putMarker(callId: string): Promise<void>;
  /** Removes the call's marker, if there is one. With `unless`: only if that says no, asked after the marker was found. */
  deleteMarker(callId: string, unless?: () => Promise<boolean>): Promise<void>;
  /** All records and markers. A marker that was put before a record was written is there when that record is. */
  contents(signal: AbortSignal): Promise<IndexContents>;
  /** All records of `incarnation`. */
  recordsOf(incarnation: string, signal: AbortSignal): Promise<StoredScanRecord[]>;
  /** Told of each record that is written, by anyone, as it happens; some may be missed. Returns how to stop that. */
  hear(listener: (key: RecordKey, record: ScanRecord) => void): () => void;
}

export function createIndexStore(context: ReaderContext, names: StreamNames): IndexStore {
  const { requests, connection } = context;
  const scanPrefix = `${names.subjectPrefix}scan.`;
  const openPrefix = `${names.subjectPrefix}open.`;
  const subjectOf = ({ incarnation, generation }: RecordKey): string => `${scanPrefix}${incarnation}.${generation}`;
  const decoder = new TextDecoder();

  const keyOf = (subject: string): RecordKey | undefined => {
    const [incarnation, generation, ...rest] = subject.slice(scanPrefix.length).split(".");
    return subject.startsWith(scanPrefix) && incarnation !== undefined && generation !== undefined && rest.length === 0
      ? { incarnation, generation }
      : undefined;
  };
  const lastOn = (subject: string): Promise<StoredMessage | undefined> => getMessage(requests, names.stream, { last_by_subj: subject });
  const getRecord = async (key: RecordKey): Promise<StoredScanRecord | undefined> => {
    const found = await lastOn(subjectOf(key));
    const record = found === undefined ? undefined : parseRecord(found.data.toString("utf8"));
    return found === undefined || record === undefined ? undefined : { ...record, key, sequence: found.sequence };
  };
  const scan = (filter: string, signal: AbortSignal) => readToEnd(context, { stream: names.stream, filter, from: 1, signal });

  return {
    putRecord: async (key, record, expected) => {
      const text = JSON.stringify(record);
      const { answer } = await requests.publish(subjectOf(key), text, expectingHeaders(expected));
      if (answer.error?.err_code !== WRONG_LAST_SEQUENCE) return answer.seq as number;
      // One of several attempts may have been stored: nobody else writes this text after that sequence, but for a retirement.
      const found = await lastOn(subjectOf(key));
      const isOwn = found !== undefined && found.sequence > expected && found.data.toString("utf8") === text && record.state === "live";
      return isOwn ? found.sequence : undefined;
    },
    getRecord,
    deleteRecord: ({ sequence }) => deleteMessage(context, names.stream, sequence),
    putMarker: async (callId) => {
      await requests.publish(openPrefix + callId, "");
    },
    deleteMarker: async (callId, unless) => {
      const found = await lastOn(openPrefix + callId);
      if (found === undefined || (await unless?.()) === true) return;
      await deleteMessage(context, names.stream, found.sequence);
    },
    contents: async (signal) => {
      const records = new Map<string, StoredScanRecord>();
      const marked = new Set<string>();
      for await (const { subject, sequence, data } of scan(names.subjects, signal)) {
        if (subject.startsWith(openPrefix)) {
          marked.add(subject.slice(openPrefix.length));
          continue;
        }
        const key = keyOf(subject);
        const record = parseRecord(decoder.decode(data));
        if (key !== undefined && record !== undefined) records.set(subject, { ...record, key, sequence });
      }
      return { records: [...records.values()], marked };
    },
    recordsOf: async (incarnation, signal) => {
      const records = new Map<string, StoredScanRecord>();
      for await (const { subject, sequence, data } of scan(`${scanPrefix}${incarnation}.*`, signal)) {
        const key = keyOf(subject);
        const record = parseRecord(decoder.decode(data));
        if (key !== undefined && record !== undefined) records.set(subject, { ...record, key, sequence });
      }
      return [...records.values()];
    },
    hear: (listener) => {
      const subscription = connection.subscribe(`${scanPrefix}*.*`, {
        callback: (error, message) => {
          if (error !== null) return;
          const key = keyOf(message.subject);
          const record = parseRecord(message.string());
          if (key !== undefined && record !== undefined) listener(key, record);
        },
      });
      return () => {
        if (!connection.isClosed()) subscription.unsubscribe();
      };
    },
  };
}

function parseRecord(text: string): ScanRecord | undefined {
  try {
    const { scanFrom, state } = JSON.parse(text) as Partial<ScanRecord>;
    if (!Number.isSafeInteger(scanFrom) || scanFrom === undefined || (state !== "live" && state !== "retiring")) return undefined;
    return { scanFrom, state };
  } catch {
    return undefined;
  }
}
