/**
 * Looks for free runners at other brokers for the calls that wait.
 *
 * Invariants: always the call of a lane whose turn it is is offered, so that it is granted first; wake-ups may get lost, so a lane that is
 * not empty is offered again and again (B3); a lane costs the bus the same however many calls wait in it; a broker where a claim
 * appeared is asked by itself, and says no as well, so that no claim waits for the end of an offer that nobody answers.
 */
import { type Bus, BusError, type Subscription } from "../domain/ports/bus.js";
import type { IdSource } from "../domain/ports/clock.js";
import type { ClaimAppeared, Offer, OfferAnswer, OfferTaken } from "./commands.js";
import type { DrivenCall } from "./driver-context.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import type { Placement } from "./placement.js";
import { handlerKeyOf, handlerToken, requirementOf } from "./requirement.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";
import type { Lane, WaitingCalls } from "./waiting-calls.js";

/** Wait for the answers of other brokers to an offer: one exchange on a busy machine. Repeated offers wait longer. */
const OFFER_ANSWER_MS = 100;
const OFFER_ANSWER_AGAIN_MS = 400;

/** The offers of one lane to other brokers: always of the call whose turn it is. */
interface Search {
  /** An offer to all of them is under way. */
  asking: boolean;
  /** Offers to all in a row that nobody answered. */
  misses: number;
  /** Brokers that are asked by themselves, since a claim appeared there. `again`: another one did meanwhile. */
  readonly visits: Map<string, { again: boolean }>;
  task: TimerTask | undefined;
}

export class CallSearch {
  private readonly searches = new Map<string, Search>();
  private wakeUps: Subscription | undefined;
  private stopped = false;

  constructor(
    private readonly context: {
      readonly brokerId: string;
      readonly bus: Bus;
      readonly ids: IdSource;
      readonly figures: Figures;
      readonly timers: TimerWheel;
      readonly membership: Membership;
      readonly waiting: WaitingCalls;
      /** A runner was found for this call, which waits no longer. */
      readonly granted: (driver: DrivenCall, placement: Placement) => void;
      readonly failed: (driver: DrivenCall, error: unknown) => void;
    },
  ) {}

  start(): void {
    this.wakeUps = this.context.bus.subscribe("claims", (payload) => this.wokenUp(payload));
  }

  stop(): void {
    this.stopped = true;
    this.wakeUps?.unsubscribe();
    for (const { task } of this.searches.values()) {
      task?.cancel();
    }
    this.searches.clear();
  }

  /** Lanes that are looked for. */
  get size(): number {
    return this.searches.size;
  }

  /** Tells the other brokers that a runner of this broker has a free slot, once for all its handlers. */
  claimAppeared(place: string): void {
    if (!this.stopped && !this.context.membership.alone) {
      this.context.bus.publish("claims", JSON.stringify({ place, brokerId: this.context.brokerId } satisfies ClaimAppeared));
    }
  }

  /** Offers the lane's next call to all other brokers, and again after a while, for as long as calls wait in it. */
  search(lane: Lane): void {
    if (this.stopped) {
      return;
    }
    const search = this.searchOf(lane.key);
    if (search.task === undefined) {
      this.searchLater(lane.key, search);
    }
    if (!this.context.membership.alone && !search.asking) {
      void this.seek(lane.key, search);
    }
  }

  private wokenUp(payload: string): void {
    const { place, brokerId } = JSON.parse(payload) as ClaimAppeared;
    if (brokerId === this.context.brokerId) {
      return;
    }
    for (const lane of this.context.waiting.lanesAt(place)) {
      void this.visit(lane.key, this.searchOf(lane.key), brokerId);
    }
  }

  private searchOf(key: string): Search {
    let search = this.searches.get(key);
    if (search === undefined) {
      search = { asking: false, misses: 0, visits: new Map(), task: undefined };
      this.searches.set(key, search);
    }
    return search;
  }

  private searchLater(key: string, search: Search): void {
    const { timers, figures, ids } = this.context;
    search.task = timers.after(figures.offerRepeatMs * (0.75 + ids.random() / 2), () => {
      search.task = undefined;
      const lane = this.context.waiting.lane(key);
      if (lane === undefined) {
        this.searches.delete(key);
      } else {
        this.search(lane);
      }
    });
  }

  /** Asks all brokers until nobody answers; whoever has one free runner is asked for more. Never rejects. */
  private async seek(key: string, search: Search): Promise<void> {
    search.asking = true;
    for (
      let driver = nextOf(this.context.waiting.lane(key));
      driver !== undefined && !this.stopped;
      driver = nextOf(this.context.waiting.lane(key))
    ) {
      const best = await this.bestAnswer(driver, search.misses > 0 ? OFFER_ANSWER_AGAIN_MS : OFFER_ANSWER_MS);
      search.misses = best === undefined ? search.misses + 1 : 0;
      if (best === undefined) {
        break;
      }
      this.take(driver, best);
      await this.visit(key, search, best.session.brokerId);
    }
    search.asking = false;
  }

  /** Asks one broker until it has no free runner left. Never rejects. */
  private async visit(key: string, search: Search, brokerId: string): Promise<void> {
    const present = search.visits.get(brokerId);
    if (present !== undefined) {
      present.again = true;
      return;
    }
    const visit = { again: false };
    search.visits.set(brokerId, visit);
    for (
      let driver = nextOf(this.context.waiting.lane(key));
      driver !== undefined && !this.stopped;
      driver = nextOf(this.context.waiting.lane(key))
    ) {
      visit.again = false;
      const answer = await this.answerOf(brokerId, driver);
      if (answer !== undefined) {
        this.take(driver, answer);
      } else if (!visit.again) {
        break;
      }
    }
    search.visits.delete(brokerId);
  }

  private take(driver: DrivenCall, { holder, session, offerId }: OfferAnswer): void {
    const isWaiting = this.context.waiting.has(driver);
    this.context.waiting.serve(driver);
    if (isWaiting && driver.known.kind === "queued") {
      this.context.granted(driver, { holder, session, offerId, release: () => undefined });
    } else {
      // Nobody comes for it: the call went elsewhere meanwhile.
      this.context.bus.publish("taken", JSON.stringify({ callId: driver.callId, offerId: null } satisfies OfferTaken));
    }
  }

  /** What this broker has free for the call; undefined: nothing, or it does not answer. Never rejects. */
  private async answerOf(brokerId: string, driver: DrivenCall): Promise<OfferAnswer | undefined> {
    const { bus, figures } = this.context;
    const offer: Offer = { callId: driver.callId, requirement: requirementOf(driver.known.record.request) };
    try {
      const options = { timeoutMs: figures.driverAnswerMs };
      return (JSON.parse(await bus.request(`broker.${brokerId}.offer`, JSON.stringify(offer), options)) as OfferAnswer | null) ?? undefined;
    } catch (error) {
      if (!(error instanceof BusError)) {
        this.context.failed(driver, error);
      }
      return undefined;
    }
  }

  /** Never rejects. */
  private async bestAnswer(driver: DrivenCall, timeoutMs: number): Promise<OfferAnswer | undefined> {
    const { bus, membership } = this.context;
    const requirement = requirementOf(driver.known.record.request);
    const offer: Offer = { callId: driver.callId, requirement };
    const subject = `offer.${handlerToken(handlerKeyOf(requirement))}`;
    // Off the backend it matters which tab it is: all answers are compared.
    const max = requirement.subject === null ? 1 : Math.max(1, membership.others);
    try {
      const answers = await bus.requestMany(subject, JSON.stringify(offer), { timeoutMs, max });
      const best = answers
        .map((answer) => JSON.parse(answer) as OfferAnswer)
        .sort((a, b) => b.sight - a.sight || Number(b.focused) - Number(a.focused) || a.load - b.load)[0];
      if (best !== undefined && membership.others > 1) {
        // All others that have a free runner reserved it: they get it back at once.
        bus.publish("taken", JSON.stringify({ callId: driver.callId, offerId: best.offerId } satisfies OfferTaken));
      }
      return best;
    } catch (error) {
      if (!(error instanceof BusError)) {
        this.context.failed(driver, error);
      }
      // The offer is repeated, and the bus tells its own state.
      return undefined;
    }
  }
}

function nextOf(lane: Lane | undefined): DrivenCall | undefined {
  return lane?.calls.next;
}
