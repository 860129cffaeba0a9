/**
 * The embedded ledger: SQLite in a worker thread, every acknowledged entry on disk.
 *
 * Owns the worker and the picture of what was asked of it. What is asked in one turn of the event loop travels as one message;
 * the worker puts everything that has arrived into one transaction (group commit), so the cost of a sync is shared.
 *
 * Invariants (L8):
 * - An append resolves after the COMMIT that stored it.
 * - When a transaction fails, whether its entries are stored is unknown: `onFatal` is called once, pending promises stay pending,
 *   and the process is expected to end. What is true is found at the next start.
 */
import { Worker } from "node:worker_threads";
import type { LaneMember, LanePlace, LaneStore } from "../../domain/ports/lanes.js";
import {
  type AppendOutcome,
  type BlobPlace,
  type BlobStore,
  type EntryPlace,
  type Ledger,
  LedgerError,
  type NewEntry,
  type OpenCall,
  type StoredEntry,
  type TailedEntry,
  type Version,
} from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { checkAppend, checkBlobName, closedError, isBlobName, isCallId } from "../append-rules.js";
import { Arrivals, scheduleUnref } from "../arrivals.js";
import { checkLaneNames } from "../lane-rules.js";
import { OwnEntries } from "../own-entries.js";
import {
  type Answer,
  type Answers,
  type Batch,
  MARKS,
  OUTCOME_STRIDE,
  OUTCOMES,
  type Request,
  type WorkerMessage,
} from "./sqlite-protocol.js";

export interface SqliteLedgerOptions {
  /** Folder of the database; made when absent, locked against a second process. */
  readonly dataDir: string;
  readonly log: Log;
  /** Called once when a transaction failed and outcomes are unknown. Default: ends the process with exit code 74. */
  readonly onFatal?: (error: Error) => void;
  /** How long a transaction waits when another program locks the database file. Default 5,000. */
  readonly busyTimeoutMs?: number;
}

/** How long a tail that is up to date lets entries gather. */
const TAIL_LINGER_MS = 20;

/** EX_IOERR of sysexits.h: an input or output error. */
const FATAL_EXIT_CODE = 74;

type WithoutId<R> = R extends { readonly id: number } ? Omit<R, "id"> : never;

interface PendingAppend {
  readonly callId: string;
  readonly expected: Version;
  readonly entry: NewEntry;
  readonly resolve: (outcome: AppendOutcome) => void;
}
interface PendingRequest {
  readonly resolve: (answer: Answer) => void;
}

/**
 * Opens, or makes, the ledger in `dataDir`.
 * Rejects with {@link LedgerError} `in_use` when another broker has the folder, and `misconfigured` when it cannot be used.
 */
export async function openSqliteLedger(options: SqliteLedgerOptions): Promise<Ledger> {
  const { dataDir, log, busyTimeoutMs = 5_000, onFatal = () => process.exit(FATAL_EXIT_CODE) } = options;
  const worker = new Worker(new URL("./sqlite-worker.js", import.meta.url), { workerData: { dataDir, busyTimeoutMs } });
  const latest = await new Promise<Version>((resolve, reject) => {
    worker.once("error", reject);
    worker.once("message", (message: WorkerMessage) => {
      worker.removeListener("error", reject);
      if (message.kind === "ready") resolve(message.latest);
      else if (message.kind === "not_ready") reject(new LedgerError(message.code ?? "misconfigured", message.message));
      else reject(new LedgerError("misconfigured", `the ledger's worker began with ${message.kind}`));
    });
  });
  log.info("ledger_opened", { kind: "sqlite", folder: dataDir, latest });
  return new SqliteLedger(worker, latest, (error) => {
    log.error("ledger_fatal", { folder: dataDir, reason: error.message });
    onFatal(error);
  });
}

class SqliteLedger implements Ledger {
  readonly description = {
    kind: "sqlite",
    durability: "an acknowledged entry is synced to disk: it survives a crash of the process and a power cut",
  } as const;
  readonly blobs: BlobStore;
  readonly lanes: LaneStore;
  readonly #worker: Worker;
  readonly #arrivals: Arrivals;
  readonly #own = new OwnEntries();
  readonly #onFatal: (error: Error) => void;
  #appends: (string | number)[] = [];
  #requests: Request[] = [];
  #flushing = false;
  /** Sent or about to be, oldest first; `#answered` of them, at the front, are done. */
  #pendingAppends: PendingAppend[] = [];
  #answered = 0;
  readonly #pendingRequests = new Map<number, PendingRequest>();
  #lastId = 0;
  #closing: Promise<void> | undefined;
  #failed = false;
  #tellFailure: () => void = () => undefined;
  readonly #failure = new Promise<void>((resolve) => {
    this.#tellFailure = resolve;
  });

  constructor(worker: Worker, latest: Version, onFatal: (error: Error) => void) {
    this.#worker = worker;
    this.#arrivals = new Arrivals(latest);
    this.#onFatal = onFatal;
    this.blobs = {
      put: (name, text) => this.#putBlob(name, text),
      get: (name) => this.#getBlob(name),
      places: (from, signal) => this.#blobPlaces(from, signal),
      placeOf: (name) => this.#placeOfBlob(name),
      remove: (blob) => this.#removeBlob(blob),
    };
    this.lanes = {
      join: (lane, callId) => this.#joinLane(lane, callId),
      first: (lane) => this.#firstInLane(lane),
      leave: (lane, member) => this.#leaveLane(lane, member),
    };
    worker.on("message", (message: WorkerMessage) => {
      if (message.kind === "answers") this.#settle(message);
      else this.#fail(new Error(message.kind === "fatal" ? message.message : `the ledger's worker said ${message.kind}`));
    });
    worker.on("error", (error) => this.#fail(error));
    worker.on("exit", (code) => {
      if (this.#closing === undefined) this.#fail(new Error(`the ledger's worker ended with code ${code}`));
    });
  }

  async append(callId: string, expected: Version, entry: NewEntry): Promise<AppendOutcome> {
    this.#assertOpen("append");
    checkAppend(callId, expected, entry);
    this.#appends.push(callId, expected, entry.entryId, entry.data, MARKS.indexOf(entry.mark), entry.note ?? "");
    return new Promise((resolve) => {
      this.#pendingAppends.push({ callId, expected, entry, resolve });
      this.#flushSoon();
    });
  }

  async *read(callId: string, from: Version = 0): AsyncIterable<StoredEntry> {
    this.#assertOpen("read");
    if (!isCallId(callId)) return;
    let next = from;
    for (;;) {
      const page = await this.#ask({ op: "read", callId, from: next });
      if (page.kind !== "entries") throw unexpected(page);
      yield* page.entries;
      const last = page.entries.at(-1);
      if (!page.more || last === undefined) return;
      next = last.version + 1;
    }
  }

  async *tail(from: Version, signal: AbortSignal): AsyncIterable<TailedEntry> {
    this.#assertOpen("tail");
    const own = this.#own.follow(from);
    let behind = true;
    try {
      while (!signal.aborted) {
        await this.#arrivals.reached(own.next, signal);
        // A step a moment later serves all that arrives until then.
        if (!behind) await this.#arrivals.gathered(own.next, TAIL_LINGER_MS, signal, scheduleUnref);
        for (let entry = own.take(); entry !== undefined && !signal.aborted; entry = own.take()) yield entry;
        if (signal.aborted) return;
        behind = own.next <= this.#arrivals.latest;
        if (!behind) continue;
        const known = this.#arrivals.latest;
        const page = await this.#ask({ op: "page", from: own.next });
        if (page.kind !== "tailed") throw unexpected(page);
        for (const entry of page.entries) {
          if (signal.aborted) return;
          own.passed(entry.version);
          yield entry;
        }
        // Versions of deleted entries leave gaps: what was known to be stored then has been read by now.
        if (!page.more) own.passed(known);
      }
    } finally {
      own.end();
    }
  }

  /** This process is the only one that appends. */
  async latest(): Promise<Version> {
    this.#assertOpen("latest");
    this.#arrivals.hurry(this.#arrivals.latest);
    return this.#arrivals.latest;
  }

  async *openCalls(): AsyncIterable<OpenCall> {
    this.#assertOpen("openCalls");
    let after = "";
    for (;;) {
      const page = await this.#ask({ op: "open_calls", after });
      if (page.kind !== "call_ids") throw unexpected(page);
      for (const callId of page.callIds) yield { callId };
      after = page.callIds.at(-1) ?? after;
      if (!page.more) return;
    }
  }

  async check(): Promise<void> {
    this.#assertOpen("check");
    if (this.#failed) throw new LedgerError("unreachable", "the ledger's database failed: restart the broker");
    await this.#ask({ op: "check" });
  }

  /** Nothing to do: the index of open calls is kept in the transaction of the entry. */
  async retire(_incarnation: string): Promise<void> {
    this.#assertOpen("retire");
  }

  async *places(from: Version, signal: AbortSignal): AsyncIterable<EntryPlace> {
    this.#assertOpen("places");
    const end = this.#arrivals.latest;
    for (let next = from; next <= end && !signal.aborted; ) {
      const page = await this.#ask({ op: "places", from: next });
      if (page.kind !== "places") throw unexpected(page);
      for (const place of page.places) {
        if (signal.aborted) return;
        yield place;
      }
      if (!page.more) return;
      next = (page.places.at(-1)?.version ?? end) + 1;
    }
  }

  async remove(callId: string, versions: readonly Version[]): Promise<void> {
    this.#assertOpen("remove");
    if (isCallId(callId) && versions.length > 0) await this.#ask({ op: "remove", callId, versions });
  }

  /** Stores and answers what was asked for before; then closes the database and releases the folder. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#arrivals.fail(closedError("tail"));
    // After a failure nothing is answered any more, this neither.
    await Promise.race([this.#request({ op: "close" }), this.#failure]);
    await this.#worker.terminate();
  }

  async #putBlob(name: string, text: string): Promise<void> {
    this.#assertOpen("blobs.put");
    checkBlobName(name);
    await this.#ask({ op: "put_blob", name, text });
  }

  async #getBlob(name: string): Promise<string> {
    this.#assertOpen("blobs.get");
    if (!isBlobName(name)) throw new LedgerError("blob_missing", `blob ${name.slice(0, 200)} is not stored`);
    const answer = await this.#ask({ op: "get_blob", name });
    if (answer.kind !== "text") throw unexpected(answer);
    return answer.text;
  }

  async #joinLane(lane: string, callId: string): Promise<LanePlace> {
    checkLaneNames(lane, callId);
    const answer = await this.#ask({ op: "join_lane", lane, callId });
    if (answer.kind !== "lane" || answer.member === undefined) throw unexpected(answer);
    return answer.member.place;
  }

  async #firstInLane(lane: string): Promise<LaneMember | undefined> {
    checkLaneNames(lane);
    const answer = await this.#ask({ op: "first_in_lane", lane });
    if (answer.kind !== "lane") throw unexpected(answer);
    return answer.member;
  }

  async #leaveLane(lane: string, { callId, place }: LaneMember): Promise<void> {
    checkLaneNames(lane, callId);
    await this.#ask({ op: "leave_lane", lane, callId, place });
  }

  async *#blobPlaces(from: number, signal: AbortSignal): AsyncIterable<BlobPlace> {
    this.#assertOpen("blobs.places");
    for (let next = from; !signal.aborted; ) {
      const page = await this.#ask({ op: "blob_places", from: next });
      if (page.kind !== "blob_places") throw unexpected(page);
      for (const blob of page.places) {
        if (signal.aborted) return;
        yield blob;
      }
      if (!page.more) return;
      next = (page.places.at(-1)?.place ?? next) + 1;
    }
  }

  async #placeOfBlob(name: string): Promise<number | undefined> {
    this.#assertOpen("blobs.placeOf");
    const answer = await this.#ask({ op: "blob_place", name });
    if (answer.kind !== "place") throw unexpected(answer);
    return answer.place;
  }

  async #removeBlob({ name, place }: BlobPlace): Promise<boolean> {
    this.#assertOpen("blobs.remove");
    checkBlobName(name);
    const answer = await this.#ask({ op: "remove_blob", name, place });
    if (answer.kind !== "removed") throw unexpected(answer);
    return answer.removed;
  }

  async #ask(request: WithoutId<Request>): Promise<Answer> {
    this.#assertOpen(request.op);
    const answer = await this.#request(request);
    if (answer.kind !== "refused") return answer;
    if (answer.code === "blob_name_taken") throw new TypeError(`${answer.message}: a name is written once`);
    throw new LedgerError(answer.code, answer.message);
  }

  #request(request: WithoutId<Request>): Promise<Answer> {
    this.#lastId += 1;
    const id = this.#lastId;
    this.#requests.push({ id, ...request });
    return new Promise((resolve) => {
      this.#pendingRequests.set(id, { resolve });
      this.#flushSoon();
    });
  }

  /** One message for all that is asked in this turn: what many sockets brought in one poll shares a transaction. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => {
      this.#flushing = false;
      const batch: Batch = { appends: this.#appends, requests: this.#requests };
      this.#appends = [];
      this.#requests = [];
      if (!this.#failed) this.#worker.postMessage(batch);
    });
  }

  #settle({ appends, answers, latest }: Answers): void {
    for (let at = 0; at < appends.length; at += OUTCOME_STRIDE) {
      const kind = OUTCOMES[appends[at] as number];
      const version = appends[at + 1] as number;
      const pending = this.#pendingAppends[this.#answered];
      if (kind === undefined || pending === undefined) throw new Error("the ledger's worker answered an append that was not asked");
      this.#answered += 1;
      if (kind !== "conflict") this.#own.stored(pending.callId, version, pending.expected, pending.entry);
      pending.resolve(kind === "conflict" ? { kind, current: version } : { kind, version });
    }
    // The queue is cut when at least half of it is done: linear in all, without a shift for each answer.
    if (this.#answered * 2 >= this.#pendingAppends.length) {
      this.#pendingAppends = this.#pendingAppends.slice(this.#answered);
      this.#answered = 0;
    }
    for (const answer of answers) {
      const pending = this.#pendingRequests.get(answer.id);
      this.#pendingRequests.delete(answer.id);
      pending?.resolve(answer);
    }
    this.#arrivals.announce(latest);
  }

  #fail(error: Error): void {
    if (this.#failed) return;
    this.#failed = true;
    this.#tellFailure();
    this.#onFatal(error);
  }

  #assertOpen(what: string): void {
    if (this.#closing !== undefined) throw closedError(what);
  }
}

function unexpected(answer: Answer): Error {
  return new Error(`the ledger's worker answered with ${answer.kind}`);
}
