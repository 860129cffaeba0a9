/** A ledger in memory and the indexes that follow it, for the tests of the call index. */

import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BrokerError } from "../../domain/broker-error.js";
import type { CallRequest } from "../../domain/call/call-state.js";
import type { CallEntry } from "../../domain/call/entries.js";
import { encodeEntry } from "../../domain/call/entry-codec.js";
import type { CallFilter } from "../../domain/call-view.js";
import type { Ledger, Version } from "../../domain/ports/ledger.js";
import type { Log, LogFields } from "../../domain/ports/log.js";
import { createMemoryLedger, createMemoryLedgerStore, type MemoryLedgerStore } from "../../ledger/memory/memory-ledger.js";
import { acceptedEntry, SAMPLE_START_MS, sampleRequest } from "../../testing/sample-call.js";
import { type CallIndex, type CallIndexOptions, createCallIndex } from "../call-index.js";

const folders: string[] = [];
const indexes: CallIndex[] = [];

/** Stops every index that was started and removes every file; for `afterEach`. */
export async function tidy(): Promise<void> {
  await Promise.all(indexes.splice(0).map((index) => index.stop()));
  for (const folder of folders.splice(0)) {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The name of a file in a folder of its own. */
export function indexFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "call-index-"));
  folders.push(folder);
  return join(folder, "calls.sqlite");
}

export interface HeardLog extends Log {
  readonly lines: { readonly event: string; readonly fields: LogFields }[];
}

function hearLog(): HeardLog {
  const lines: HeardLog["lines"] = [];
  const note = (event: string, fields: LogFields = {}): void => void lines.push({ event, fields });
  return { lines, debug: note, info: note, warn: note, error: note };
}

/** A ledger, what an index says of it, and short ways to append. */
export class Scene {
  readonly ledger: Ledger;
  readonly log = hearLog();

  constructor(readonly store: MemoryLedgerStore = createMemoryLedgerStore()) {
    this.ledger = createMemoryLedger({ store });
  }

  async append(callId: string, data: string, note?: string): Promise<Version> {
    const expected = this.store.entriesOfCall.get(callId)?.at(-1)?.version ?? 0;
    const outcome = await this.ledger.append(callId, expected, { entryId: randomUUID(), data, mark: "none", note });
    if (outcome.kind !== "appended") {
      throw new Error(`the test's append was a ${outcome.kind}`);
    }
    return outcome.version;
  }

  accept(callId: string, request: Partial<CallRequest> = {}, entry: Parameters<typeof acceptedEntry>[1] = {}): Promise<Version> {
    return this.append(callId, encodeEntry(acceptedEntry(sampleRequest({ callId, ...request }), entry)));
  }

  add(callId: string, entry: CallEntry): Promise<Version> {
    return this.append(callId, encodeEntry(entry));
  }

  async start(options: Partial<CallIndexOptions> = {}): Promise<CallIndex> {
    const index = createCallIndex({ ledger: this.ledger, file: ":memory:", log: this.log, ...options });
    indexes.push(index);
    await index.start();
    return index;
  }
}

/** Settles a call in any state before it is granted. */
export const CANCEL: Extract<CallEntry, { readonly kind: "cancelled" }> = {
  kind: "cancelled",
  at: SAMPLE_START_MS,
  error: { code: "call_cancelled", message: "the call was cancelled", retryable: false, retryAfterMs: null, details: [] },
  letRun: false,
};

/** Ids of all matching calls, page by page. */
export async function listed(index: CallIndex, filter: CallFilter = {}, atLeast?: Version, application = "default"): Promise<string[]> {
  const ids: string[] = [];
  let page: string | undefined;
  do {
    const found = await index.list(application, filter, { limit: 100, page }, { atLeast });
    ids.push(...found.data.map(({ callId }) => callId));
    page = found.next_page ?? undefined;
  } while (page !== undefined);
  return ids;
}

/** The code with which `promise` is refused. */
export async function refusalOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof BrokerError) {
      return error.code;
    }
    throw error;
  }
  return "not refused";
}
