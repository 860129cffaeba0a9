/**
 * Who may run and who waits on one binding with limits (X8, B4): the picture of the binding's owner. Pure.
 *
 * Invariants: never more permits than the limits of binding and tool, but for those that were given before this book began; of
 * those that wait for a permit the next one is chosen fairly, for each tool; a refusal leaves nothing behind.
 */
import type { CallLimits } from "../domain/ports/catalog.js";
import { FairQueue, type Priority } from "./fair-queue.js";

/** A call that asks for a permit. */
export interface PermitAsk {
  readonly callId: string;
  /** The broker that drives it, or is about to accept it. */
  readonly brokerId: string;
  readonly tool: string;
  readonly priority: Priority;
  readonly subject: string | null;
  readonly limits: CallLimits;
  /** When the call was accepted (Unix ms): of two sayings of the limits the newer one counts. */
  readonly atMs: number;
}

/** `queued`: it waits for something else. `blocked`: it has a runner, and waits for a permit. `held`: it may run, or runs. */
export type PermitStanding = "queued" | "blocked" | "held";

interface Entry {
  ask: PermitAsk;
  standing: PermitStanding;
  /** Rises with each entry. */
  readonly number: number;
}

interface ToolBook {
  limits: { readonly value: CallLimits["tool"]; readonly atMs: number };
  held: number;
  queued: number;
  readonly blocked: FairQueue<Entry>;
}

export class PermitBook {
  private readonly entries = new Map<string, Entry>();
  private readonly tools = new Map<string, ToolBook>();
  private limits: { readonly value: CallLimits["binding"]; readonly atMs: number } = { value: null, atMs: 0 };
  private held = 0;
  private queued = 0;
  private count = 0;
  private opened = false;

  get size(): number {
    return this.entries.size;
  }

  get isOpen(): boolean {
    return this.opened;
  }

  /** Number of the newest entry. */
  get newest(): number {
    return this.count;
  }

  /** All that holds permits from before is in it: from now on it gives permits and refuses. */
  open(): void {
    this.opened = true;
  }

  /** A call that is about to be accepted. `hasRunner`: a claim is kept for it meanwhile. Asked again, it answers what is true now. */
  admit(ask: PermitAsk, hasRunner: boolean): "permit" | "queued" | "refused" {
    const present = this.entries.get(ask.callId);
    if (present !== undefined && present.ask.brokerId !== ask.brokerId) {
      // It exists already, and its own broker speaks for it.
      return "queued";
    }
    this.noteLimits(ask);
    if (present?.standing === "held" || (hasRunner && this.mayTake(ask.tool))) {
      this.put(ask, "held");
      return "permit";
    }
    if (present === undefined && this.opened && this.isFull(ask.tool)) {
      this.forgetTool(ask.tool);
      return "refused";
    }
    this.put(ask, "queued");
    return "queued";
  }

  /** A call that is queued and has a runner: true, it may run; false, it waits its turn. */
  acquire(ask: PermitAsk): boolean {
    this.noteLimits(ask);
    const isHeld = this.entries.get(ask.callId)?.standing === "held";
    const takes = isHeld || this.mayTake(ask.tool);
    this.put(ask, takes ? "held" : "blocked");
    return takes;
  }

  /** What is so, whatever the limits say: the call is driven by who says so. */
  note(ask: PermitAsk, standing: PermitStanding): void {
    this.noteLimits(ask);
    this.put(ask, standing);
  }

  /** The call is over, or was not made; nothing when another broker speaks for it by now. */
  leave(callId: string, brokerId: string): void {
    const entry = this.entries.get(callId);
    if (entry !== undefined && entry.ask.brokerId === brokerId) {
      this.take(entry);
    }
  }

  /** Gives a permit to the one whose turn it is; undefined: nobody waits, or nobody may run. */
  next(): PermitAsk | undefined {
    if (!this.opened || !this.hasRoom(this.held, this.limits.value?.concurrency)) {
      return undefined;
    }
    let best: Entry | undefined;
    for (const { limits, held, blocked } of this.tools.values()) {
      const entry = this.hasRoom(held, limits.value?.concurrency) ? blocked.next : undefined;
      if (entry !== undefined && (best === undefined || before(entry, best))) {
        best = entry;
      }
    }
    if (best === undefined) {
      return undefined;
    }
    this.tools.get(best.ask.tool)?.blocked.serve(best);
    this.put(best.ask, "held");
    return best.ask;
  }

  /** Forgets what a broker spoke for: it is gone, and who adopts its calls says so. */
  brokerGone(brokerId: string): void {
    this.keepOnly(brokerId, new Set(), this.count);
  }

  /** A permit that its call did not take: the call waits for something else by now, or is over. */
  unused(ask: PermitAsk): void {
    const entry = this.entries.get(ask.callId);
    if (entry?.standing === "held" && entry.ask.brokerId === ask.brokerId) {
      this.put(ask, "queued");
    }
  }

  /** Makes the book say what a broker says of its calls; of what came into the book after entry `newest`, the book knows better. */
  compare(brokerId: string, calls: readonly { readonly ask: PermitAsk; readonly standing: PermitStanding }[], newest: number): void {
    for (const { ask, standing } of calls) {
      const entry = this.entries.get(ask.callId);
      if (entry === undefined || entry.number <= newest) {
        this.note(ask, standing);
      }
    }
    this.keepOnly(brokerId, new Set(calls.map(({ ask }) => ask.callId)), newest);
  }

  private keepOnly(brokerId: string, callIds: ReadonlySet<string>, newest: number): void {
    for (const entry of [...this.entries.values()]) {
      if (entry.ask.brokerId === brokerId && entry.number <= newest && !callIds.has(entry.ask.callId)) {
        this.take(entry);
      }
    }
  }

  /** How many are in each standing, for tests and for those who look. */
  inspect(): { readonly held: number; readonly waiting: number } {
    return { held: this.held, waiting: this.queued };
  }

  private mayTake(tool: string): boolean {
    const book = this.tools.get(tool);
    return (
      this.opened &&
      this.hasRoom(this.held, this.limits.value?.concurrency) &&
      this.hasRoom(book?.held ?? 0, book?.limits.value?.concurrency) &&
      (book?.blocked.size ?? 0) === 0
    );
  }

  private isFull(tool: string): boolean {
    const book = this.tools.get(tool);
    return !this.hasRoom(this.queued, this.limits.value?.queue) || !this.hasRoom(book?.queued ?? 0, book?.limits.value?.queue);
  }

  private hasRoom(taken: number, limit: number | undefined): boolean {
    return limit === undefined || taken < limit;
  }

  private noteLimits({ tool, limits, atMs }: PermitAsk): void {
    if (atMs >= this.limits.atMs) {
      this.limits = { value: limits.binding, atMs };
    }
    const book = this.toolBook(tool);
    if (atMs >= book.limits.atMs) {
      book.limits = { value: limits.tool, atMs };
    }
  }

  private toolBook(tool: string): ToolBook {
    let book = this.tools.get(tool);
    if (book === undefined) {
      book = { limits: { value: null, atMs: 0 }, held: 0, queued: 0, blocked: new FairQueue() };
      this.tools.set(tool, book);
    }
    return book;
  }

  private put(ask: PermitAsk, standing: PermitStanding): void {
    const present = this.entries.get(ask.callId);
    if (present !== undefined && present.standing === standing) {
      present.ask = ask;
      return;
    }
    if (present !== undefined) {
      this.drop(present);
    }
    this.count += 1;
    const entry: Entry = { ask, standing, number: this.count };
    this.entries.set(ask.callId, entry);
    const book = this.toolBook(ask.tool);
    this.counted(book, standing, 1);
    if (standing === "blocked") {
      book.blocked.add(entry, ask);
    }
  }

  private take(entry: Entry): void {
    this.drop(entry);
    this.forgetTool(entry.ask.tool);
  }

  private drop(entry: Entry): void {
    this.entries.delete(entry.ask.callId);
    const book = this.toolBook(entry.ask.tool);
    this.counted(book, entry.standing, -1);
    book.blocked.remove(entry);
  }

  private counted(book: ToolBook, standing: PermitStanding, by: 1 | -1): void {
    if (standing === "held") {
      this.held += by;
      book.held += by;
    } else {
      this.queued += by;
      book.queued += by;
    }
  }

  private forgetTool(tool: string): void {
    const book = this.tools.get(tool);
    if (book !== undefined && book.held === 0 && book.queued === 0) {
      this.tools.delete(tool);
    }
  }
}

function before(a: Entry, b: Entry): boolean {
  return a.ask.priority === b.ask.priority ? a.number < b.number : a.ask.priority === "interactive";
}
