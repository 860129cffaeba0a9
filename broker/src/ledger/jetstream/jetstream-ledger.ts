/**
 * The ledger on NATS JetStream: one stream for all calls, one subject for each, shared by any number of brokers.
 *
 * The compare of compare-and-append is `Nats-Expected-Last-Subject-Sequence`; a version is a sequence of the stream. A message
 * carries no `Nats-Msg-Id`: the compare already makes a repeat harmless, and the server would keep every id in memory for the
 * whole window, and answer an id that was proposed before a fail-over and lost in it with an error until the window ends.
 *
 * Invariants:
 * - An append resolves when it is known what came of it (L2): acknowledged, or refused by the compare and then looked for by id.
 * - An entry, if it is stored, is the first one after the version that it expected. So one look there settles whether it is.
 * - With three replicas, no request goes to a server that is known to be older than 2.10.27 (L1).
 */
import type { NatsConnection } from "@nats-io/nats-core";
import type { Clock } from "../../domain/ports/clock.js";
import type { LaneStore } from "../../domain/ports/lanes.js";
import {
  type AppendOutcome,
  type BlobStore,
  type EntryPlace,
  type Ledger,
  type LedgerDescription,
  LedgerError,
  type NewEntry,
  type OpenCall,
  type StoredEntry,
  type TailedEntry,
  type Version,
} from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { checkAppend, closedError, isCallId } from "../append-rules.js";
import { Arrivals } from "../arrivals.js";
import { OwnEntries } from "../own-entries.js";
import { type CallReader, createCallReader } from "./call-reader.js";
import { scanCalls } from "./call-scan.js";
import { tailCalls } from "./call-tail.js";
import {
  type ConnectionWatch,
  checkServers,
  compareVersions,
  REPLICATED_SERVER_MIN,
  SERVER_MIN,
  watchConnection,
} from "./connection-watch.js";
import { entryHeaders, parseEntryHeader } from "./entry-header.js";
import { createIndexStore } from "./index-store.js";
import { createJetStreamBlobs } from "./jetstream-blobs.js";
import { createJetStreamLanes } from "./jetstream-lanes.js";
import { checkIncarnation, type Names, namesOf } from "./names.js";
import { OpenCallIndex } from "./open-call-index.js";
import { type ReaderContext, readToEnd } from "./ordered-reader.js";
import { type Answered, Requests, WRONG_LAST_SEQUENCE } from "./requests.js";
import { deleteMessage, getMessage, lastSequence, newestSequence } from "./stored-message.js";
import { prepareStreams } from "./streams.js";

export interface JetStreamLedgerOptions {
  /**
   * Stays the caller's: the ledger does not close it. It should reconnect for ever (`maxReconnectAttempts: -1`), and be made with
   * `noAsyncTraces`, which nearly doubles throughput.
   */
  readonly connection: NatsConnection;
  /** First token of all subjects, first part of the streams' names. Default `tr`. */
  readonly prefix?: string;
  /** Servers that hold each entry. 3 needs nats-server 2.10.27 on every server (L1). */
  readonly replicas: 1 | 3;
  /** This broker, new at each start (B1): 1 to 64 characters of `[A-Za-z0-9_-]`. */
  readonly incarnation: string;
  readonly clock: Clock;
  readonly log: Log;
  /** How long to wait for JetStream at the start. Default 20,000. */
  readonly openTimeoutMs?: number;
  /** In [0, 1), for jitter. Default `Math.random`. */
  readonly random?: () => number;
}

const CHECK_TIMEOUT_MS = 2_000;
const CLOSE_TIMEOUT_MS = 3_000;
const AGAIN_MS = 100;
/** A leader that was cut off from the others gives up within this time: until then it may not know what is stored. */
const STALE_LEADER_MS = 15_000;
/** Messages that nats-server 2.9 may be asked to search for one of a subject: a few of its files. 2.10 has an index. */
const SEARCH_MAX = 20_000;

/**
 * Opens, or makes, the ledger. Rejects with {@link LedgerError}: `unsupported_server` when a server is too old,
 * `misconfigured` when a stream is not safe for calls, `unreachable` when JetStream does not answer in time.
 */
export async function openJetStreamLedger(options: JetStreamLedgerOptions): Promise<Ledger> {
  const { connection, replicas, incarnation, clock, log, openTimeoutMs = 20_000, random = Math.random } = options;
  const names = namesOf(options.prefix ?? "tr");
  checkIncarnation(incarnation);
  const versionMin = replicas === 3 ? REPLICATED_SERVER_MIN : SERVER_MIN;
  await checkServers(connection, versionMin, log);
  const watch = watchConnection(connection, versionMin, log);
  const requests = new Requests({ connection, watch, clock, log, random });
  const context: ReaderContext = { connection, watch, requests, clock, random };
  try {
    await prepareStreams(connection, requests, names, replicas, clock, openTimeoutMs);
    const arrivals = new Arrivals(0);
    const index = new OpenCallIndex({
      store: createIndexStore(context, names.index),
      watch,
      incarnation,
      clock,
      log,
      random,
      // Asked every other second: so tails hear of what others appended.
      newestVersion: async () => {
        const newest = await lastSequence(requests, names.calls.stream);
        arrivals.announce(newest);
        return newest;
      },
      storedAt: async (version) => (await getMessage(requests, names.calls.stream, { seq: version }))?.storedAtMs,
      staleForMs: replicas === 1 ? 0 : STALE_LEADER_MS,
      scan: (from, signal) => scanCalls(context, names.calls, log, from, signal),
    });
    try {
      await index.start();
    } catch (error) {
      await index.close(0);
      throw error;
    }
    log.info("ledger_opened", { kind: "jetstream", server: connection.getServer(), replicas, incarnation });
    return new JetStreamLedger(context, names, index, arrivals, replicas, incarnation, log);
  } catch (error) {
    requests.close();
    watch.stop();
    throw error;
  }
}

class JetStreamLedger implements Ledger {
  readonly description: LedgerDescription;
  readonly blobs: BlobStore;
  readonly lanes: LaneStore;
  readonly #context: ReaderContext;
  readonly #requests: Requests;
  readonly #watch: ConnectionWatch;
  readonly #names: Names;
  readonly #index: OpenCallIndex;
  readonly #arrivals: Arrivals;
  readonly #own = new OwnEntries();
  readonly #reader: CallReader;
  readonly #incarnation: string;
  readonly #log: Log;
  readonly #stop = new AbortController();
  #closing: Promise<void> | undefined;

  constructor(
    context: ReaderContext,
    names: Names,
    index: OpenCallIndex,
    arrivals: Arrivals,
    replicas: 1 | 3,
    incarnation: string,
    log: Log,
  ) {
    this.#context = context;
    this.#requests = context.requests;
    this.#watch = context.watch;
    this.#names = names;
    this.#index = index;
    this.#arrivals = arrivals;
    this.#incarnation = incarnation;
    this.#log = log;
    const searchMax = (): number =>
      compareVersions(context.connection.info?.version ?? "", "2.10.0") >= 0 ? Number.POSITIVE_INFINITY : SEARCH_MAX;
    this.#reader = createCallReader(context.requests, names.calls, log, searchMax);
    const blobs = createJetStreamBlobs(context, names.blobs, this.#stop.signal);
    this.blobs = {
      put: (name, text) => this.#whileOpen("blobs.put", () => blobs.put(name, text)),
      get: (name) => this.#whileOpen("blobs.get", () => blobs.get(name)),
      places: (from, signal) => this.#yieldWhileOpen("blobs.places", blobs.places(from, signal)),
      placeOf: (name) => this.#whileOpen("blobs.placeOf", () => blobs.placeOf(name)),
      remove: (blob) => this.#whileOpen("blobs.remove", () => blobs.remove(blob)),
    };
    const lanes = createJetStreamLanes(context, names.lanes);
    this.lanes = {
      join: (lane, callId) => this.#whileOpen("lanes.join", () => lanes.join(lane, callId)),
      first: (lane) => this.#whileOpen("lanes.first", () => lanes.first(lane)),
      leave: (lane, member) => this.#whileOpen("lanes.leave", () => lanes.leave(lane, member)),
    };
    this.description = {
      kind: "jetstream",
      durability:
        replicas === 3
          ? "an acknowledged entry is on two of three servers at least: it survives the loss of one; for a power cut of all, set sync_interval: always"
          : "an acknowledged entry survives a crash of broker and nats-server; a power cut may lose the last two minutes unless the server has sync_interval: always (from 2.10)",
    };
    void this.#watch.closed.then(() => this.close());
  }

  async append(callId: string, expected: Version, entry: NewEntry): Promise<AppendOutcome> {
    this.#assertOpen("append");
    checkAppend(callId, expected, entry);
    if (entry.mark !== "opens") {
      const outcome = await this.#appendUntilKnown(callId, expected, entry);
      if (outcome.kind === "conflict") return outcome;
      this.#index.stored(outcome.version);
      if (entry.mark === "settles") this.#index.settled(callId);
      return outcome;
    }
    await this.#index.beforeOpening();
    const opening = this.#index.openingSent();
    let outcome: AppendOutcome | undefined;
    try {
      outcome = await this.#appendUntilKnown(callId, expected, entry);
    } finally {
      // After `closed` it may yet be stored: then it stays pending, and this broker's record stays behind.
      if (outcome?.kind === "conflict") this.#index.notOpened(opening);
    }
    if (outcome.kind !== "conflict") await this.#index.opened(opening, callId, outcome.version);
    return outcome;
  }

  async #appendUntilKnown(callId: string, expected: Version, entry: NewEntry): Promise<AppendOutcome> {
    const outcome = await this.#outcomeOf(callId, expected, entry);
    if (outcome.kind !== "conflict") {
      this.#own.stored(callId, outcome.version, expected, entry);
      this.#arrivals.announce(outcome.version);
    }
    return outcome;
  }

  async #outcomeOf(callId: string, expected: Version, entry: NewEntry): Promise<AppendOutcome> {
    const subject = this.#names.calls.subjectPrefix + callId;
    let unknownAttempts = 0;
    let staleSince: number | undefined;
    for (;;) {
      const answered = await this.#requests.publish(subject, entry.data, entryHeaders(entry, expected, this.#incarnation));
      unknownAttempts += answered.unknownAttempts;
      if (answered.answer.error?.err_code !== WRONG_LAST_SEQUENCE) return { kind: "appended", version: answered.answer.seq as number };
      const found = await this.#afterConflict(callId, expected, entry, lastIn(answered));
      if (found !== undefined && (found.kind !== "conflict" || found.current > expected || unknownAttempts === 0)) return found;
      // The server knows less than it must for a verdict: less than the caller, or less than it said a moment ago. A leader
      // that was cut off does, and one of the attempts may have reached the true one. So it is asked again for a while.
      const now = this.#context.clock.monotonic();
      staleSince ??= now;
      if (found !== undefined && now - staleSince > STALE_LEADER_MS) return found;
      await new Promise<void>((resolve) => this.#context.clock.schedule(AGAIN_MS * (0.5 + this.#context.random()), resolve));
    }
  }

  /** What lies at the entry's place. `undefined`: the server that was asked does not know. */
  async #afterConflict(callId: string, expected: Version, entry: NewEntry, last: Version | undefined): Promise<AppendOutcome | undefined> {
    const [first, ...others] = await this.#reader.chain(callId, expected + 1);
    if (first !== undefined) {
      if (first.entry.entryId === entry.entryId) return { kind: "duplicate", version: first.entry.version };
      return { kind: "conflict", current: Math.max(last ?? 0, others.at(-1)?.entry.version ?? first.entry.version) };
    }
    const current = await this.#reader.last(callId);
    return current === expected || current < (last ?? 0) ? undefined : { kind: "conflict", current };
  }

  async *read(callId: string, from: Version = 0): AsyncIterable<StoredEntry> {
    this.#assertOpen("read");
    if (!isCallId(callId)) return;
    const entries = await this.#reader.read(callId, from);
    if (entries.some(({ header }) => header.mark === "settles")) this.#index.seenSettled(callId);
    for (const { entry } of entries) yield entry;
  }

  tail(from: Version, signal: AbortSignal): AsyncIterable<TailedEntry> {
    return tailCalls(
      {
        reader: this.#context,
        names: this.#names.calls,
        log: this.#log,
        own: this.#own,
        arrivals: this.#arrivals,
        incarnation: this.#incarnation,
        closing: this.#stop.signal,
      },
      from,
      signal,
    );
  }

  async latest(): Promise<Version> {
    this.#assertOpen("latest");
    const newest = await newestSequence(this.#requests, this.#names.calls.stream);
    this.#arrivals.hurry(newest);
    return newest;
  }

  async *openCalls(): AsyncIterable<OpenCall> {
    this.#assertOpen("openCalls");
    yield* this.#index.openCalls();
    this.#assertOpen("openCalls");
  }

  async check(): Promise<void> {
    this.#assertOpen("check");
    const { refusal } = this.#watch;
    if (refusal !== undefined) throw refusal;
    const asked = lastSequence(this.#requests, this.#names.calls.stream);
    let timer: { cancel(): void } | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = this.#context.clock.schedule(CHECK_TIMEOUT_MS, () =>
        reject(
          new LedgerError("unreachable", `JetStream at ${this.#context.connection.getServer()} did not answer in ${CHECK_TIMEOUT_MS} ms`),
        ),
      );
    });
    asked.catch(() => undefined);
    await Promise.race([asked, late]).finally(() => timer?.cancel());
  }

  async retire(incarnation: string): Promise<void> {
    this.#assertOpen("retire");
    checkIncarnation(incarnation);
    await this.#index.retire(incarnation);
  }

  async *places(from: Version, signal: AbortSignal): AsyncIterable<EntryPlace> {
    this.#assertOpen("places");
    const { stream, subjects, subjectPrefix } = this.#names.calls;
    const options = { stream, filter: subjects, from, headersOnly: true, signal: AbortSignal.any([signal, this.#stop.signal]) };
    for await (const { subject, sequence, headers } of readToEnd(this.#context, options)) {
      const header = parseEntryHeader(headers);
      if (header !== undefined) yield { callId: subject.slice(subjectPrefix.length), version: sequence, previous: header.previous };
    }
    if (!signal.aborted) this.#assertOpen("places");
  }

  async remove(callId: string, versions: readonly Version[]): Promise<void> {
    this.#assertOpen("remove");
    const last = versions.at(-1);
    if (!isCallId(callId) || last === undefined) return;
    const { stream } = this.#names.calls;
    await this.#index.removing(callId, async () => (await getMessage(this.#requests, stream, { seq: last })) === undefined);
    for (const version of versions) await deleteMessage(this.#context, stream, version);
  }

  /** Ends what is under way: appends whose outcome is not known yet reject with `closed`. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#index.close(this.#context.connection.isClosed() ? 0 : CLOSE_TIMEOUT_MS);
    this.#stop.abort();
    this.#requests.close();
    this.#watch.stop();
  }

  async #whileOpen<T>(what: string, task: () => Promise<T>): Promise<T> {
    this.#assertOpen(what);
    const result = await task();
    return result;
  }

  async *#yieldWhileOpen<T>(what: string, items: AsyncIterable<T>): AsyncIterable<T> {
    this.#assertOpen(what);
    yield* items;
  }

  #assertOpen(what: string): void {
    if (this.#closing !== undefined) throw closedError(what);
  }
}

/** "wrong last sequence: 12" */
function lastIn({ answer }: Answered): Version | undefined {
  const digits = /(\d+)\s*$/.exec(answer.error?.description ?? "")?.[1];
  return digits === undefined ? undefined : Number(digits);
}
