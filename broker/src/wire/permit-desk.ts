/**
 * Permits of calls on bindings with limits (X8, B4): asked for by the broker that drives a call, given by the binding's owner,
 * which is the first live broker by rendezvous, so perhaps this one.
 *
 * Invariants:
 * - A call with limits is granted only while it holds a permit, and holds it until its grant ended; one without costs a branch.
 * - What a broker tells the owner of one call arrives in order, again and again until it is answered or the owner is another.
 * - An owner gives nothing before it asked all others what they hold. While owners change, limits may be passed for a moment:
 *   who adopts the calls of a broker that is gone says what runs, and nothing that runs is stopped.
 */
import { BrokerError } from "../domain/broker-error.js";
import type { CallRequest } from "../domain/call/call-state.js";
import type { Bus, Subscription } from "../domain/ports/bus.js";
import type { Log } from "../domain/ports/log.js";
import type { BrokerPost } from "./broker-post.js";
import type { DrivenCall } from "./driver-context.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import type { PermitAsk, PermitStanding } from "./permit-book.js";
import type { OwnerQuestion, PermitAnswer, PermitQuestion } from "./permit-messages.js";
import { PermitOwner } from "./permit-owner.js";
import { placeKey } from "./requirement.js";
import { rendezvous } from "./take-over.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** A permit whose call found no runner for this long goes to the next one. */
const IDLE_MS = 1_000;
/** Before a broker that says that it is not the owner, or is not to be reached, is asked again. */
const AGAIN_MS = 100;
/** Calls in one answer: it has to fit the bus. */
const LISTED_MAX = 1_000;
/** What an agent is told to wait when a queue is full. */
const RETRY_AFTER_SECONDS = 1;

/** A call of this broker. */
interface OwnCall {
  readonly key: string;
  readonly ask: PermitAsk;
  standing: PermitStanding;
  driver: DrivenCall | undefined;
  /** Its permit is taken up by a grant, or about to be. */
  inUse: boolean;
  /** It is to leave, when what was said of it before has arrived. */
  over: boolean;
  said: Promise<unknown>;
  idle: TimerTask | undefined;
}

export interface PermitDeskContext {
  readonly brokerId: string;
  readonly bus: Bus;
  readonly post: BrokerPost;
  readonly membership: Pick<Membership, "live" | "onSeen" | "onGone" | "onBack">;
  readonly figures: Pick<Figures, "driverAnswerMs">;
  readonly timers: TimerWheel;
  readonly log: Log;
  /** The call holds a permit: it is to be offered now. */
  readonly ready: (driver: DrivenCall) => void;
}

export class PermitDesk {
  private readonly calls = new Map<string, OwnCall>();
  private readonly owner: PermitOwner;
  /** Whom this broker took for the owner of a binding that it has calls on. */
  private readonly owners = new Map<string, string>();
  private endpoint: Subscription | undefined;
  private stopped = false;

  constructor(private readonly context: PermitDeskContext) {
    this.owner = new PermitOwner({ ...context, askHere: (question) => this.answered(question) });
  }

  start(): void {
    const { bus, brokerId, membership } = this.context;
    this.endpoint = bus.respond(`broker.${brokerId}.permits`, async (payload) => {
      const question = JSON.parse(payload) as PermitQuestion;
      return JSON.stringify(await this.answered(question));
    });
    membership.onSeen(() => this.ownersChanged());
    membership.onGone((gone) => {
      this.ownersChanged();
      this.owner.brokerGone(gone);
    });
    membership.onBack((back) => this.owner.brokerBack(back));
  }

  stop(): void {
    this.stopped = true;
    this.endpoint?.unsubscribe();
    for (const { idle } of this.calls.values()) {
      idle?.cancel();
    }
    this.owner.stop();
    this.calls.clear();
  }

  /** Calls of this broker that stand in a book: 0 at rest. */
  get size(): number {
    return this.calls.size;
  }

  /**
   * Asks for a call that is about to be stored; `hasRunner`: a claim is reserved for it. True: it may be granted at once; false:
   * it is stored as queued. Throws `BrokerError` `queue_full`, and then nothing is left of it. Whoever does not make the call after
   * all says so by {@link abandon}.
   */
  async admit(request: CallRequest, hasRunner: boolean): Promise<boolean> {
    const call = this.own(request);
    const answer = await this.say(call, { op: "admit", ask: call.ask, hasRunner }, ({ kind }) => {
      call.standing = kind === "permit" ? "held" : "queued";
      call.inUse = kind === "permit";
      if (kind === "refused" && call.driver === undefined) {
        this.remove(call);
      }
    });
    if (answer?.kind === "refused") {
      const { tool, binding } = request;
      throw new BrokerError("queue_full", `as many calls of ${tool} on ${binding} wait as its limits allow: repeat the request later`, {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    return call.inUse;
  }

  /** The call that was admitted was not made here: it exists already, or could not be stored. */
  abandon(request: CallRequest): void {
    const call = this.calls.get(request.callId);
    if (call !== undefined && call.driver === undefined) {
      this.leave(call);
    }
  }

  /** The call is queued here: it counts as that, and is never refused. Idempotent. */
  queued(driver: DrivenCall): void {
    const { request } = driver.known.record;
    if (request.limits === undefined) {
      return;
    }
    const known = this.calls.get(request.callId);
    const call = this.own(request);
    call.driver = driver;
    if (known === undefined || known.over) {
      call.over = false;
      call.standing = "queued";
      void this.say(call, { op: "note", ask: call.ask, standing: "queued" });
    }
  }

  /** It has a runner, and waits for a permit. */
  isBlocked(driver: DrivenCall): boolean {
    return this.calls.get(driver.callId)?.standing === "blocked";
  }

  /** A claim is reserved for the call: may it be granted? False: it is `ready` when it may. Calls without limits always may. */
  async acquire(driver: DrivenCall): Promise<boolean> {
    this.queued(driver);
    const call = this.calls.get(driver.callId);
    if (call === undefined || this.stopped) {
      return true;
    }
    if (call.standing === "held") {
      this.use(call);
      return true;
    }
    await this.say(call, { op: "acquire", ask: call.ask }, ({ kind }) => {
      if (kind === "permit") {
        call.standing = "held";
        this.use(call);
      } else if (call.standing !== "held") {
        call.standing = "blocked";
      }
    });
    return call.inUse;
  }

  /** The grant that it was for was not made. */
  unused(driver: DrivenCall): void {
    const call = this.calls.get(driver.callId);
    if (call?.standing === "held") {
      call.inUse = false;
      this.giveBackLater(call);
    }
  }

  /** The call runs, whoever gave the permit: this broker drives it now. Idempotent. */
  running(driver: DrivenCall): void {
    const { request } = driver.known.record;
    if (request.limits === undefined) {
      return;
    }
    const call = this.own(request);
    call.driver = driver;
    call.over = false;
    const isNews = call.standing !== "held";
    call.standing = "held";
    this.use(call);
    if (isNews) {
      void this.say(call, { op: "note", ask: call.ask, standing: "held" });
    }
  }

  /** The call's grant is over: it waits again, or needs no permit any more. */
  grantEnded(driver: DrivenCall): void {
    const call = this.calls.get(driver.callId);
    if (call === undefined) {
      return;
    }
    if (driver.known.kind !== "queued") {
      this.leave(call);
      return;
    }
    call.inUse = false;
    call.standing = "queued";
    void this.say(call, { op: "note", ask: call.ask, standing: "queued" });
  }

  /** The call settled, or is another broker's. */
  forget(driver: DrivenCall): void {
    const call = this.calls.get(driver.callId);
    if (call !== undefined) {
      this.leave(call);
    }
  }

  private own(request: CallRequest): OwnCall {
    const present = this.calls.get(request.callId);
    if (present !== undefined) {
      return present;
    }
    const { callId, application, binding, tool, priority, subject, limits, createdAtMs } = request;
    const key = placeKey(application, binding, null);
    const call: OwnCall = {
      key,
      ask: {
        callId,
        brokerId: this.context.brokerId,
        tool,
        priority,
        subject,
        limits: limits ?? { binding: null, tool: null },
        atMs: createdAtMs,
      },
      standing: "queued",
      driver: undefined,
      inUse: false,
      over: false,
      said: Promise.resolve(),
      idle: undefined,
    };
    this.calls.set(callId, call);
    this.owners.set(key, this.ownerOf(key));
    return call;
  }

  private use(call: OwnCall): void {
    call.inUse = true;
    call.idle?.cancel();
    call.idle = undefined;
  }

  private giveBackLater(call: OwnCall): void {
    call.idle?.cancel();
    call.idle = this.context.timers.after(IDLE_MS, () => {
      call.idle = undefined;
      if (call.standing === "held" && !call.inUse && !call.over) {
        call.standing = "queued";
        void this.say(call, { op: "note", ask: call.ask, standing: "queued" });
      }
    });
  }

  private leave(call: OwnCall): void {
    if (call.over) {
      return;
    }
    call.over = true;
    call.inUse = false;
    call.standing = "queued";
    call.idle?.cancel();
    void this.say(call, { op: "leave", callId: call.ask.callId, brokerId: call.ask.brokerId }, () => {
      if (call.over) {
        this.remove(call);
      }
    });
  }

  private remove(call: OwnCall): void {
    if (this.calls.get(call.ask.callId) === call) {
      this.calls.delete(call.ask.callId);
    }
  }

  /** Tells the owner, after all that was said of the call before; `then` comes before anything that is said after it. Never rejects. */
  private say(
    call: OwnCall,
    question: OwnerQuestion,
    then: (answer: PermitAnswer) => void = () => undefined,
  ): Promise<PermitAnswer | undefined> {
    const saying = call.said.then(async () => {
      const answer = await this.askOwner({ key: call.key, ...question });
      if (answer !== undefined) {
        then(answer);
      }
      return answer;
    });
    call.said = saying.catch(() => undefined);
    return saying.catch((error: unknown) => {
      this.failed(call.ask.callId, error);
      return undefined;
    });
  }

  private ownerOf(key: string): string {
    return rendezvous(this.context.membership.live(), key) ?? this.context.brokerId;
  }

  /** Undefined: this broker stops. */
  private async askOwner(question: PermitQuestion): Promise<PermitAnswer | undefined> {
    const { brokerId, post } = this.context;
    while (!this.stopped) {
      const owner = this.ownerOf(question.key);
      const answer = owner === brokerId ? await this.answered(question) : await this.asked(post, owner, question);
      if (answer !== undefined && answer.kind !== "not_owner") {
        return answer;
      }
      await new Promise<void>((resolve) => this.context.timers.after(AGAIN_MS, resolve));
    }
    return undefined;
  }

  /** Undefined: that broker is gone, or another one is the owner meanwhile. */
  private async asked(post: BrokerPost, owner: string, question: PermitQuestion): Promise<PermitAnswer | undefined> {
    const text = await post.ask(owner, "permits", JSON.stringify(question), () => this.stopped || this.ownerOf(question.key) !== owner);
    return text === undefined ? undefined : (JSON.parse(text) as PermitAnswer);
  }

  private async answered(question: PermitQuestion): Promise<PermitAnswer> {
    if (question.op === "permit") {
      return this.permitted(question.callId);
    }
    if (question.op === "list") {
      return this.listed(question.key, question.after);
    }
    if (this.stopped || this.ownerOf(question.key) !== this.context.brokerId) {
      return { kind: "not_owner" };
    }
    return this.owner.answer(question.key, question);
  }

  /** The owner gave one of this broker's calls a permit. */
  private async permitted(callId: string): Promise<PermitAnswer> {
    await this.calls.get(callId)?.said;
    const call = this.calls.get(callId);
    const driver = call?.driver;
    if (call === undefined || driver === undefined || call.standing !== "blocked" || call.over) {
      // A repeat of what arrived before is answered as it was.
      return { kind: call?.standing === "held" ? "done" : "unused" };
    }
    call.standing = "held";
    this.giveBackLater(call);
    this.context.ready(driver);
    return { kind: "done" };
  }

  private listed(key: string, after: string): PermitAnswer {
    const all = [...this.calls.values()].filter((call) => call.key === key && !call.over && call.ask.callId > after);
    all.sort((a, b) => (a.ask.callId < b.ask.callId ? -1 : 1));
    const calls = all.slice(0, LISTED_MAX).map(({ ask, standing }) => ({ ask, standing }));
    return { kind: "list", calls, more: all.length > calls.length };
  }

  private ownersChanged(): void {
    this.owner.keep((key) => this.ownerOf(key) === this.context.brokerId);
    const keys = new Set([...this.calls.values()].map(({ key }) => key));
    for (const key of this.owners.keys()) {
      if (!keys.has(key)) {
        this.owners.delete(key);
      }
    }
    for (const key of keys) {
      const owner = this.ownerOf(key);
      if (this.owners.get(key) !== owner) {
        this.owners.set(key, owner);
        this.askOwner({ key, op: "sync" }).catch((error: unknown) => this.failed("", error));
      }
    }
  }

  private failed(callId: string, error: unknown): void {
    if (!this.stopped) {
      this.context.log.error("permit_failed", { call_id: callId, error: error instanceof Error ? error.message : String(error) });
    }
  }
}
