/** Passes over the calls' stream: headers only for the index, everything for a tail. Both skip and report forks (L1). */
import type { StoredEntry, Version } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { parseEntryHeader } from "./entry-header.js";
import type { StreamNames } from "./names.js";
import type { ScanFindings } from "./open-call-index.js";
import { follow, type ReaderContext, readToEnd, type StreamMessage } from "./ordered-reader.js";

/** Calls whose last version a tail remembers, to tell forks. */
const REMEMBERED_CALLS = 20_000;

/** Opened and settled calls from version `from` to the end that the stream's leader knows. Holds ids, no data. */
export async function scanCalls(
  context: ReaderContext,
  names: StreamNames,
  log: Log,
  from: Version,
  signal: AbortSignal,
): Promise<ScanFindings> {
  const lastOf = new Map<string, Version>();
  const open = new Map<string, string>();
  const settled = new Set<string>();
  const options = { stream: names.stream, filter: names.subjects, from, headersOnly: true, signal };
  for await (const message of readToEnd(context, options)) {
    const callId = message.subject.slice(names.subjectPrefix.length);
    const header = parseEntryHeader(message.headers);
    const last = lastOf.get(callId);
    if (header === undefined || (last !== undefined && header.previous !== last)) {
      reportFork(log, callId, message);
      continue;
    }
    lastOf.set(callId, message.sequence);
    if (header.mark === "opens") open.set(callId, header.incarnation);
    else if (header.mark === "settles") {
      open.delete(callId);
      settled.add(callId);
    }
  }
  return { open, settled };
}

/** All entries from version `from` on, then new ones, until `signal` aborts. */
export async function* tailCalls(
  context: ReaderContext,
  names: StreamNames,
  log: Log,
  from: Version,
  signal: AbortSignal,
): AsyncGenerator<StoredEntry> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const lastOf = new Map<string, Version>();
  for await (const message of follow(context, { stream: names.stream, filter: names.subjects, from, signal })) {
    const callId = message.subject.slice(names.subjectPrefix.length);
    const header = parseEntryHeader(message.headers);
    const last = lastOf.get(callId);
    if (header === undefined || (last !== undefined && header.previous !== last)) {
      reportFork(log, callId, message);
      continue;
    }
    // The oldest memory goes first: a call that moves is put to the end.
    lastOf.delete(callId);
    lastOf.set(callId, message.sequence);
    if (lastOf.size > REMEMBERED_CALLS) for (const oldest of lastOf.keys()) if (lastOf.delete(oldest)) break;
    yield { callId, version: message.sequence, previous: header.previous, entryId: header.entryId, data: decoder.decode(message.data) };
  }
}

function reportFork(log: Log, callId: string, { sequence }: StreamMessage): void {
  log.error("ledger_forked", { call: callId, version: sequence });
}
