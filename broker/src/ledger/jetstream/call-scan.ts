/** Passes over the headers of the calls' stream, for the index of open calls. They skip and report forks (L1). */
import type { Version } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { type EntryHeader, parseEntryHeader } from "./entry-header.js";
import type { StreamNames } from "./names.js";
import type { ScanFindings } from "./open-call-index.js";
import { type ReaderContext, readToEnd, type StreamMessage } from "./ordered-reader.js";
import { getMessage } from "./stored-message.js";

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
    const isFork = header === undefined || (last !== undefined && header.previous !== last);
    if (isFork && !(await isNewLife(context, names, header, last))) {
      reportFork(log, callId, message);
      continue;
    }
    if (header === undefined) continue;
    lastOf.set(callId, message.sequence);
    if (header.mark === "opens") open.set(callId, header.incarnation);
    else if (header.mark === "settles") {
      open.delete(callId);
      settled.add(callId);
    }
  }
  return { open, settled };
}

/**
 * Whether an entry on top of nothing begins a new call under the id of one that retention removed, whose last version was `last`: the
 * server took it because nothing was left, and then that one is gone.
 */
export async function isNewLife(
  context: ReaderContext,
  names: StreamNames,
  header: EntryHeader | undefined,
  last: Version | undefined,
): Promise<boolean> {
  if (header === undefined || last === undefined || header.previous !== 0 || header.mark !== "opens") return false;
  return (await getMessage(context.requests, names.stream, { seq: last })) === undefined;
}

/** Says that a message is no link of its call's chain. */
export function reportFork(log: Log, callId: string, { sequence }: StreamMessage): undefined {
  log.error("ledger_forked", { call: callId, version: sequence });
}
