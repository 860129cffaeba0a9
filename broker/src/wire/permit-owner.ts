/**
 * The books of the bindings that this broker owns: gives permits to whose turn it is, and keeps what brokers say true.
 *
 * Invariants: nothing is given before all others were asked what they hold, or did not answer in time; what a broker says of its
 * own calls is compared with the book again and again, so that nothing that got lost between two brokers is lost for good.
 */
import type { Log } from "../domain/ports/log.js";
import type { BrokerPost } from "./broker-post.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import { type PermitAsk, PermitBook } from "./permit-book.js";
import type { ListedCall, OwnerQuestion, PermitAnswer, PermitQuestion } from "./permit-messages.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** An owner compares its books with the brokers' after this time, for as long as anybody stands in them. */
const AUDIT_MS = 4_000;

/** A binding that this broker owns. */
interface Owned {
  readonly book: PermitBook;
  readonly opening: Promise<void>;
  audit: TimerTask | undefined;
}

export interface PermitOwnerContext {
  readonly brokerId: string;
  readonly post: BrokerPost;
  readonly membership: Pick<Membership, "live">;
  readonly figures: Pick<Figures, "driverAnswerMs">;
  readonly timers: TimerWheel;
  readonly log: Log;
  /** Asks this broker about its own calls. */
  readonly askHere: (question: PermitQuestion) => Promise<PermitAnswer>;
}

export class PermitOwner {
  private readonly owned = new Map<string, Owned>();
  private stopped = false;

  constructor(private readonly context: PermitOwnerContext) {}

  stop(): void {
    this.stopped = true;
    for (const { audit } of this.owned.values()) {
      audit?.cancel();
    }
    this.owned.clear();
  }

  /** The answer to a broker that takes this one for the owner of `key`, and is right. */
  async answer(key: string, question: OwnerQuestion): Promise<PermitAnswer> {
    const owned = this.ownedOf(key);
    if (!owned.book.isOpen) {
      await owned.opening;
    }
    const answer = decided(owned.book, question);
    this.serve(key);
    return answer;
  }

  /** Bindings that are another broker's now are forgotten. */
  keep(isOwned: (key: string) => boolean): void {
    for (const [key, { audit }] of this.owned) {
      if (!isOwned(key)) {
        audit?.cancel();
        this.owned.delete(key);
      }
    }
  }

  brokerGone(gone: string): void {
    for (const [key, { book }] of this.owned) {
      book.brokerGone(gone);
      this.serve(key);
    }
  }

  brokerBack(back: string): void {
    for (const [key, { book }] of this.owned) {
      void this.compare(key, book, back);
    }
  }

  private ownedOf(key: string): Owned {
    const present = this.owned.get(key);
    if (present !== undefined) {
      return present;
    }
    const { membership, brokerId, timers, figures } = this.context;
    const book = new PermitBook();
    const others = membership.live().filter((other) => other !== brokerId);
    const compared = Promise.all([brokerId, ...others].map((each) => this.compare(key, book, each)));
    // One that does not answer holds nobody up for longer than a driver that does not.
    const late = new Promise<void>((resolve) => {
      const task = timers.after(figures.driverAnswerMs, resolve);
      void compared.then(() => task.cancel());
    });
    const opening = Promise.race([compared, late]).then(() => {
      book.open();
      this.serve(key);
    });
    const owned: Owned = { book, opening, audit: undefined };
    this.owned.set(key, owned);
    this.auditLater(key, owned);
    return owned;
  }

  private auditLater(key: string, owned: Owned): void {
    owned.audit = this.context.timers.after(AUDIT_MS, () => {
      if (this.owned.get(key) !== owned || this.stopped) {
        return;
      }
      if (owned.book.isOpen && owned.book.size === 0) {
        this.owned.delete(key);
        return;
      }
      for (const broker of this.context.membership.live()) {
        void this.compare(key, owned.book, broker);
      }
      this.auditLater(key, owned);
    });
  }

  /** Makes the book say what this broker says of its calls. Never rejects. */
  private async compare(key: string, book: PermitBook, brokerId: string): Promise<void> {
    const { newest } = book;
    const found: ListedCall[] = [];
    try {
      for (let more = true; more; ) {
        const question: PermitQuestion = { key, op: "list", after: found.at(-1)?.ask.callId ?? "" };
        const answer = await this.ask(brokerId, question);
        if (answer?.kind !== "list") {
          return;
        }
        found.push(...answer.calls);
        more = answer.more;
      }
    } catch (error) {
      this.failed("", error);
      return;
    }
    book.compare(brokerId, found, newest);
    this.serve(key);
  }

  /** Gives permits to those who wait, as far as the limits allow. */
  private serve(key: string): void {
    const owned = this.owned.get(key);
    if (owned === undefined || this.stopped) {
      return;
    }
    for (let next = owned.book.next(); next !== undefined; next = owned.book.next()) {
      void this.deliver(key, owned.book, next);
    }
  }

  private async deliver(key: string, book: PermitBook, ask: PermitAsk): Promise<void> {
    const question: PermitQuestion = { key, op: "permit", callId: ask.callId };
    try {
      const answer = await this.ask(ask.brokerId, question);
      if (answer?.kind === "unused") {
        book.unused(ask);
        this.serve(key);
      }
    } catch (error) {
      this.failed(ask.callId, error);
    }
  }

  private async ask(brokerId: string, question: PermitQuestion): Promise<PermitAnswer | undefined> {
    if (brokerId === this.context.brokerId) {
      return this.context.askHere(question);
    }
    const text = await this.context.post.ask(brokerId, "permits", JSON.stringify(question), () => this.stopped);
    return text === undefined ? undefined : (JSON.parse(text) as PermitAnswer);
  }

  private failed(callId: string, error: unknown): void {
    if (!this.stopped) {
      this.context.log.error("permit_failed", { call_id: callId, error: error instanceof Error ? error.message : String(error) });
    }
  }
}

function decided(book: PermitBook, question: OwnerQuestion): PermitAnswer {
  switch (question.op) {
    case "admit":
      return { kind: book.admit(question.ask, question.hasRunner) };
    case "acquire":
      return { kind: book.acquire(question.ask) ? "permit" : "queued" };
    case "note":
      book.note(question.ask, question.standing);
      return { kind: "done" };
    case "leave":
      book.leave(question.callId, question.brokerId);
      return { kind: "done" };
    case "sync":
      return { kind: "done" };
  }
}
