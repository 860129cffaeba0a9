/**
 * The log of one call as this broker knows it: the state that its entries lead to, the events that agents are told, and
 * the one way to add to them.
 *
 * Invariants: what is shown is stored, but for live news; an append that meets another entry drops the picture and reads
 * the call again; live news that comes while an entry is under way is told after it, so that no two events get one number.
 */
import type { CallState } from "../domain/call/call-state.js";
import { edgeFor, markFor } from "../domain/call/edges.js";
import type { CallEntry, PlacedEntry } from "../domain/call/entries.js";
import { decodeEntry, encodeEntry } from "../domain/call/entry-codec.js";
import { noteOf } from "../domain/call/entry-note.js";
import { replay } from "../domain/call/replay.js";
import { isExpired } from "../domain/call/retention.js";
import { type CallEvent, type Transition, transition } from "../domain/call/transition.js";
import { SETTLED_STATES } from "../domain/call-view.js";
import { PROGRESS_EVENTS_PER_ATTEMPT_MAX } from "../domain/limits.js";
import type { Json } from "../domain/ports/catalog.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Ledger, Version } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { AppendEnd, CallMeter } from "../domain/ports/meter.js";
import type { NewsOrder, ProgressOrder } from "./commands.js";
import { LiveNews } from "./live-news.js";

export type KnownState = Exclude<CallState, { readonly kind: "requested" }>;

/** News that waits for an append is told up to this many; more progress is dropped. */
const WAITING_NEWS_MAX = 64;

const SETTLED: ReadonlySet<string> = new Set(SETTLED_STATES);

export interface CallLogContext {
  readonly clock: Pick<Clock, "monotonic">;
  readonly ledger: Ledger;
  readonly ids: IdSource;
  readonly log: Log;
  /** Told of the version of each entry that this broker stored. */
  readonly stored: (version: Version) => void;
  readonly meter?: CallMeter | undefined;
}

/** An event as this broker tells it. */
export interface ToldEvent extends CallEvent {
  /** Of progress: where it stands among the runner's news. */
  readonly order?: ProgressOrder;
}

/** When the call was taken over since its newest grant, oldest first (the ledger's time). */
export type TakeOvers = readonly number[];

export class CallLog {
  private current: CallState = { kind: "requested" };
  private readonly told: ToldEvent[] = [];
  private readonly news = new LiveNews();
  private busy = false;
  private waitingNews: (() => void)[] = [];
  private adoptedAt: number[] = [];
  /** Monotonic times at which its newest own append began, and at which it last asked whether the picture is whole, and it was. */
  storedAtMs = Number.NEGATIVE_INFINITY;
  wholeAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    readonly callId: string,
    private readonly context: CallLogContext,
  ) {}

  get state(): CallState {
    return this.current;
  }

  /** The state of a call that exists. */
  get known(): KnownState {
    if (this.current.kind === "requested") {
      throw new Error(`call ${this.callId} has no entry yet`);
    }
    return this.current;
  }

  /** In the order of their numbers; progress only as far as this broker was told of it. */
  get events(): readonly ToldEvent[] {
    return this.told;
  }

  get takeOvers(): TakeOvers {
    return this.adoptedAt;
  }

  /** Reads the call; false: there is none, or retention began to remove it. */
  async load(): Promise<boolean> {
    this.busy = true;
    const askedAt = this.context.clock.monotonic();
    try {
      const entries: PlacedEntry[] = [];
      for await (const stored of this.context.ledger.read(this.callId)) {
        if (entries.length === 0 && isExpired([stored])) {
          // What is left of it says nothing: it is as good as gone.
          break;
        }
        entries.push(decodeEntry(stored));
      }
      const { state, events } = replay(entries, (entry, reason) =>
        this.context.log.error("entry_rejected", { call_id: this.callId, entry_id: entry.entryId, version: entry.version, reason }),
      );
      this.adoptedAt = [];
      for (const entry of entries) {
        this.noteTakeOver(entry);
      }
      this.current = state;
      this.wholeAtMs = askedAt;
      this.merge(events);
      return state.kind !== "requested";
    } finally {
      this.context.meter?.callRead("call", this.context.clock.monotonic() - askedAt);
      this.tellWaiting();
    }
  }

  /** Has anybody else added to the call? */
  async isBehind(): Promise<boolean> {
    const { version } = this.known.record;
    const askedAt = this.context.clock.monotonic();
    try {
      for await (const stored of this.context.ledger.read(this.callId, version + 1)) {
        return stored.version > version;
      }
    } finally {
      this.context.meter?.callRead("news", this.context.clock.monotonic() - askedAt);
    }
    this.wholeAtMs = Math.max(this.wholeAtMs, askedAt);
    return false;
  }

  /** Stores `entry`; undefined: another entry was first, and nothing was stored: the call has to be read again. */
  async append(entry: CallEntry): Promise<Transition | undefined> {
    const before = this.current;
    const edge = edgeFor(before, entry);
    if (edge === undefined) {
      throw new Error(`call ${this.callId}: ${entry.kind} has no edge from ${before.kind}`);
    }
    const live = this.news.unstored();
    const told: CallEntry = live === undefined ? entry : { ...entry, live };
    const full: CallEntry = SETTLED.has(edge.to) ? { ...told, application: applicationOf(before, entry) } : told;
    const entryId = this.context.ids.next("entry");
    const expected = before.kind === "requested" ? 0 : before.record.version;
    this.busy = true;
    const askedAt = this.context.clock.monotonic();
    const { meter } = this.context;
    meter?.appendBegan();
    let end: AppendEnd = "unknown";
    try {
      const outcome = await this.context.ledger.append(this.callId, expected, {
        entryId,
        data: encodeEntry(full),
        mark: markFor(edge),
        note: noteOf(edge, full),
      });
      end = outcome.kind === "conflict" ? "conflict" : "stored";
      if (outcome.kind === "conflict") {
        return undefined;
      }
      this.context.stored(outcome.version);
      const placed: PlacedEntry = { ...full, entryId, version: outcome.version };
      const moved = transition(before, placed);
      if (moved.kind === "rejected") {
        throw new Error(`call ${this.callId}: ${moved.reason}`);
      }
      this.current = moved.state;
      this.storedAtMs = askedAt;
      this.wholeAtMs = askedAt;
      this.noteTakeOver(placed);
      meter?.entryStored(before, placed, moved.state, moved.events, this.told);
      this.news.stored(moved.state.record.eventSeq);
      // A start that was told live comes into the log under the number that it was told with.
      this.told.push(...moved.events.filter((event) => event.event !== "started" || !this.told.some(({ seq }) => seq === event.seq)));
      return moved;
    } finally {
      meter?.appendEnded(end, this.context.clock.monotonic() - askedAt);
      this.tellWaiting();
    }
  }

  /** Tells that the handler began; false: it was told before, the grant does not run, or it is told once the append is over. */
  started(grantId: string, atMs: number): boolean {
    if (this.busy) {
      this.waitingNews.push(() => this.started(grantId, atMs));
      return false;
    }
    const state = this.current;
    if (state.kind !== "running" || state.grant.grantId !== grantId || state.record.startedAtMs !== null || this.news.hasStarted(grantId)) {
      return false;
    }
    const seq = this.news.started(grantId, state.record.eventSeq, atMs);
    this.told.push({ seq, atMs, event: "started", data: { attempt: state.grant.attempt } });
    return true;
  }

  /** Tells progress; false: it is late or told, the grant does not run, or told all that it may: receipts are never dropped, news are. */
  progress(grantId: string, order: NewsOrder, atMs: number, data: { readonly [key: string]: Json }): boolean {
    if (this.busy) {
      if (this.waitingNews.length < WAITING_NEWS_MAX) {
        this.waitingNews.push(() => this.progress(grantId, order, atMs, data));
      }
      return false;
    }
    const state = this.current;
    if (
      state.kind !== "running" ||
      state.grant.grantId !== grantId ||
      this.news.progressCount(grantId) >= PROGRESS_EVENTS_PER_ATTEMPT_MAX - 1 ||
      !this.news.isNext(grantId, order)
    ) {
      return false;
    }
    const seq = this.news.progressed(grantId, state.record.eventSeq);
    this.told.push({ seq, atMs, event: "progress", data, order: { grantId, ...order } });
    return true;
  }

  private tellWaiting(): void {
    this.busy = false;
    const waiting = this.waitingNews;
    this.waitingNews = [];
    for (const tell of waiting) {
      tell();
    }
  }

  /** What the log says, and what was told live meanwhile and is in no log. */
  private merge(events: readonly CallEvent[]): void {
    const seqs = new Set(events.map(({ seq }) => seq));
    const { current } = this;
    const begins = current.kind === "running" && current.record.startedAtMs === null && this.news.hasStarted(current.grant.grantId);
    const startedSeq = begins ? this.news.startedNumber : null;
    const live = this.told.filter(({ event, seq }) => !seqs.has(seq) && (event === "progress" || seq === startedSeq));
    this.told.splice(0, this.told.length, ...[...events, ...live].sort((a, b) => a.seq - b.seq));
  }

  private noteTakeOver(entry: PlacedEntry): void {
    if (entry.kind === "adopted") {
      this.adoptedAt.push(entry.at);
    } else if (entry.kind === "granted" || entry.kind === "accepted") {
      this.adoptedAt = [];
    }
  }
}

function applicationOf(before: CallState, entry: CallEntry): string {
  if (before.kind !== "requested") {
    return before.record.request.application;
  }
  return entry.kind === "accepted" ? entry.request.application : "";
}
