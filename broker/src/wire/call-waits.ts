/**
 * Waits of agents for what becomes of a call, whoever drives it.
 *
 * Invariants: a wait ends with its caller, with the drain of the broker, or at its time, also while another broker does not
 * answer; while nothing happens it costs one request to the driver every {@link REMOTE_WAIT_MS}, however much progress there was;
 * a stream shows no progress after what the runner told later, also when the call changes its driver meanwhile (X6).
 */
import { isSettledState } from "../domain/call/call-state.js";
import { turnWaitsUntilMs } from "../domain/call/decide-asks.js";
import { answersTurn, type CallEventView, type CallStateName, isSettled } from "../domain/call-view.js";
import type { CallDriver } from "./call-driver.js";
import type { CallRouter } from "./call-router.js";
import type { DriverAnswer } from "./commands.js";
import type { Drain } from "./drain.js";
import type { DriverContext } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import { NewsFilter } from "./news-order.js";
import type { WaitGoal, WaitSignal } from "./operations.js";
import { changed } from "./perform.js";

/** A remote driver is asked for events in waits of this length, so that its death is noticed. */
const REMOTE_WAIT_MS = 1_500;
const LOCAL_WAIT_MS = 15_000;

type Events = Extract<DriverAnswer, { kind: "events" }>;

export class CallWaits {
  constructor(
    private readonly context: {
      readonly driver: () => DriverContext;
      readonly router: Pick<CallRouter, "command">;
      readonly table: Pick<DriverTable, "get">;
      readonly drain: Drain;
    },
  ) {}

  /** Resolves when the call has an answer for the agent's turn, or with the goal `settled` is settled, or the wait is over. */
  async forAnswer(driver: CallDriver, waitMs: number, signal: WaitSignal | undefined, goal: WaitGoal = "answer"): Promise<void> {
    const reached = goal === "settled" ? isSettled : answersTurn;
    const { clock } = this.context.driver();
    const endsAt = clock.monotonic() + waitMs;
    const over = (): boolean => clock.monotonic() >= endsAt || this.ended(signal);
    let state: CallStateName = driver.known.kind;
    let seq = driver.known.record.eventSeq;
    const heldOf = (of: CallDriver): number => (goal === "settled" ? 0 : this.turnWaitsMs(of));
    let heldMs = heldOf(driver);
    while ((!reached(state) || heldMs > 0) && !over()) {
      const leftMs = endsAt - clock.monotonic();
      // I6: "it was done" is a better answer than "nobody knows", where a handler is about to say.
      const waitMs = reached(state) ? Math.min(heldMs, leftMs) : leftMs;
      const local = this.context.table.get(driver.callId);
      if (local?.drives === true) {
        // Its own changes are enough: no event has to be shown to anybody.
        const answered = (): boolean => (reached(local.known.kind) && heldOf(local) === 0) || !local.drives || this.ended(signal);
        const changes = (): boolean => answered() || reached(local.known.kind) !== reached(state);
        await changed(local, waitMs, this.context.driver(), changes, signal);
        state = local.known.kind;
        heldMs = heldOf(local);
        continue;
      }
      const batch = await this.events(driver.callId, seq, { waitMs, limitMs: leftMs }, signal);
      if (batch !== undefined) {
        seq = batch.events.at(-1)?.seq ?? seq;
        state = batch.state;
        heldMs = goal === "settled" ? 0 : (batch.turnWaitsMs ?? 0);
      }
    }
  }

  /** How long the turn waits for a reconcile handler that is being asked. */
  private turnWaitsMs(driver: CallDriver): number {
    const { clock, figures } = this.context.driver();
    const untilMs = turnWaitsUntilMs(driver.known, figures.reconcileTurnMs);
    return untilMs === undefined ? 0 : Math.max(0, untilMs - clock.now());
  }

  /** All events after `afterSeq`, as they come; ends after `settled`, with the caller, or with the drain. */
  async *watch(callId: string, afterSeq: number, signal: WaitSignal): AsyncIterable<CallEventView> {
    const order = new NewsFilter();
    let seq = afterSeq;
    while (!this.ended(signal)) {
      const batch = await this.events(callId, seq, { waitMs: LOCAL_WAIT_MS, limitMs: undefined }, signal);
      if (batch !== undefined) {
        seq = batch.events.at(-1)?.seq ?? seq;
        yield* inOrder(batch, order);
      }
      if (batch?.settled === true && !batch.more) {
        return;
      }
    }
  }

  /** The events after `afterSeq` that are known now. */
  async list(callId: string, afterSeq: number): Promise<readonly CallEventView[]> {
    const found: CallEventView[] = [];
    const order = new NewsFilter();
    for (let seq = afterSeq; ; ) {
      const answer = await this.context.router.command(callId, { op: "events", afterSeq: seq, waitMs: 0 });
      const batch = eventsOf(answer);
      found.push(...inOrder(batch, order));
      seq = batch.events.at(-1)?.seq ?? seq;
      if (!batch.more || batch.events.length === 0) {
        return found;
      }
    }
  }

  private ended(signal: WaitSignal | undefined): boolean {
    return signal?.aborted === true || this.context.drain.begun;
  }

  /** What happened after `afterSeq`, waited for up to `waitMs`; `undefined`: the wait ended, at the latest after `limitMs`. */
  private async events(
    callId: string,
    afterSeq: number,
    { waitMs, limitMs }: { readonly waitMs: number; readonly limitMs: number | undefined },
    signal: WaitSignal | undefined,
  ): Promise<Events | undefined> {
    const { table, router } = this.context;
    const local = table.get(callId);
    if (local?.drives === true) {
      const news = (): boolean =>
        local.events.some((event) => event.seq > afterSeq) || isSettledState(local.known) || !local.drives || this.ended(signal);
      await changed(local, Math.min(waitMs, LOCAL_WAIT_MS), this.context.driver(), news, signal);
    }
    const remoteMs = local?.drives === true ? 0 : Math.max(0, Math.min(waitMs, REMOTE_WAIT_MS));
    const asked = router.command(callId, { op: "events", afterSeq, waitMs: remoteMs });
    const answer = await this.unlessEnded(asked, limitMs, signal);
    return answer === undefined ? undefined : eventsOf(answer);
  }

  /** The outcome of `work`; undefined: the wait ended before it. The work goes on. */
  private unlessEnded<T>(work: Promise<T>, limitMs: number | undefined, signal: WaitSignal | undefined): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      const end = (): void => resolve(undefined);
      const late = limitMs === undefined ? undefined : this.context.driver().timers.after(limitMs, end);
      const stop = this.context.drain.onBegin(end);
      signal?.addEventListener("abort", end, { once: true });
      if (signal?.aborted === true) {
        end();
      }
      work.then(resolve, reject).finally(() => {
        late?.cancel();
        stop();
        signal?.removeEventListener("abort", end);
      });
    });
  }
}

/** The events of a batch, but for progress that comes late or twice; each is noted in `order`. */
function inOrder({ events, orders = [] }: Events, order: NewsFilter): CallEventView[] {
  return events.filter((_event, index) => {
    const place = orders[index] ?? null;
    return place === null || order.isNext(place.grantId, place);
  });
}

function eventsOf(answer: DriverAnswer): Events {
  if (answer.kind !== "events") {
    throw new Error(`events were answered by ${answer.kind}`);
  }
  return answer;
}
