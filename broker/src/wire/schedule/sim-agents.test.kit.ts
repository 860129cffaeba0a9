/**
 * Agents that create calls, repeat what got no answer with the same key, wait, watch, cancel and confirm at whatever broker
 * answers; and an operator who reconciles by what really happened, as far as can be known at that moment.
 */

import { BrokerError } from "../../domain/broker-error.js";
import { decodeEntry } from "../../domain/call/entry-codec.js";
import { replay } from "../../domain/call/replay.js";
import { type CallEventView, type CallView, isSettled } from "../../domain/call-view.js";
import type { CreateCallBody, ReconcileOutcome } from "../operations.js";
import { SIM_AGENT, SIM_TOOLS, type SimBroker, type SimSite, type SimTool } from "./sim-site.test.kit.js";
import type { Random } from "./world.test.kit.js";

/** An agent's client gives up a request after this time. */
const CLIENT_MS = 2_500;

export interface SimCall {
  readonly id: string;
  readonly tool: SimTool;
  /** What agents were told under each number, by whichever broker. */
  readonly told: Map<number, string>;
  /** The first settled state that an agent was shown; every later answer has to agree. */
  settled: CallView | undefined;
}

/** What one stream or list shows of a call: progress comes in the order of the runner, and each number means one event (X6). */
export class ShownProgress {
  private newestAt = 0;

  constructor(
    private readonly site: SimSite,
    private readonly call: SimCall,
  ) {}

  take({ seq, event, data }: CallEventView): void {
    const { site, call } = this;
    const what = `${event} ${JSON.stringify(data)}`;
    const earlier = call.told.get(seq) ?? what;
    if (earlier !== what) {
      site.failed(`X6: event ${seq} of ${call.id} was told as ${earlier} and as ${what}`);
    }
    call.told.set(seq, what);
    if (event === "progress") {
      const { text } = data as { readonly text: string };
      const at = Number(text.slice("at ".length));
      if (at <= this.newestAt) {
        site.failed(`X6: progress of ${call.id} of ${at} was told after that of ${this.newestAt}`);
      }
      this.newestAt = at;
    }
  }
}

export class SimAgents {
  /** Calls that were acknowledged to their agents. */
  readonly calls: SimCall[] = [];
  /** Watches that have not ended: the call of each and the last number that it was told. */
  readonly watches = new Map<object, string>();
  /** Of calls with an ordering key: when they were first sent, and when they were first acknowledged. */
  readonly orders = new Map<string, { readonly sentAt: number; readonly acknowledgedAt: number }>();
  /** By idempotency key: when it was first sent. */
  private readonly sentAt = new Map<string, number>();
  private keys = 0;
  private busy = 0;

  constructor(private readonly site: SimSite) {}

  /** Nothing that an agent asked for is still open. */
  get idle(): boolean {
    return this.busy === 0;
  }

  createCall(subjects: readonly string[]): void {
    const { random } = this.site;
    this.keys += 1;
    this.callTool(random.pick(SIM_TOOLS), random.pick(subjects), `key_${this.keys}`);
  }

  /** One call, and what its agent does with it: all of that follows from the key. The same key again is the same request again. */
  callTool(tool: SimTool, subject: string, key: string): void {
    const random = this.site.random.fork(`${key} ${tool.tool} ${subject}`);
    const body: CreateCallBody = {
      toolset: tool.toolset,
      tool: tool.tool,
      arguments: { key },
      idempotency_key: key,
      timeout_seconds: random.integer(5, 12),
      ...(tool.toolset === "tab" ? { subject } : {}),
      ...(random.chance(0.3) ? { ordering_key: random.pick(["order_1", "order_2"]) } : {}),
    };
    const waitSeconds = random.chance(0.5) ? 0 : random.between(0, 2);
    this.work(this.create(tool, body, waitSeconds, random));
    if (random.chance(0.15)) {
      // The same request again at the same time, perhaps elsewhere.
      this.work(this.create(tool, body, 0, random));
    }
  }

  private async create(tool: SimTool, body: CreateCallBody, waitSeconds: number, random: Random): Promise<void> {
    const key = body.idempotency_key ?? "";
    const sentAt = this.sentAt.get(key) ?? this.site.world.now;
    this.sentAt.set(key, sentAt);
    const view = await this.insist((broker) => broker.wire.calls.create(SIM_AGENT, { ...body, wait_seconds: waitSeconds }, {}));
    if (view === undefined) {
      return;
    }
    if (!this.site.store.entriesOfCall.has(view.id)) {
      this.site.failed(`I1: call ${view.id} was acknowledged and is not in the ledger`);
    }
    let call = this.calls.find(({ id }) => id === view.id);
    if (call === undefined) {
      call = { id: view.id, tool, told: new Map(), settled: undefined };
      this.calls.push(call);
      if (body.ordering_key !== undefined) {
        this.orders.set(view.id, { sentAt, acknowledgedAt: this.site.world.now });
      }
      this.work(this.follow(call, random));
    }
    this.saw(call, view);
  }

  /** What an agent does with a call that it has. */
  private async follow(call: SimCall, random: Random): Promise<void> {
    const { world } = this.site;
    if (random.chance(0.3)) {
      this.watch(call).catch((error: unknown) => this.site.failed(`watch: ${String(error)}`));
    }
    if (call.tool.confirmation === "always" && random.chance(0.8)) {
      await world.sleep(random.between(0, 1_000));
      const decision = random.chance(0.8) ? "allow" : "deny";
      await this.insist((broker) => broker.wire.calls.confirm(SIM_AGENT, call.id, { decision }));
    }
    if (random.chance(0.2)) {
      await world.sleep(random.between(0, 3_000));
      const mode = random.pick(["kill", "skip", "killnowait"] as const);
      await this.insist(async (broker) => (await broker.wire.calls.cancel(SIM_AGENT, call.id, { mode })).call);
    }
    const looks = random.integer(0, 4);
    for (let look = 0; look < looks; look += 1) {
      await world.sleep(random.between(0, 4_000));
      await this.look(call, random.chance(0.5) ? 0 : 1);
    }
  }

  /** Gets the call once. */
  async look(call: SimCall, waitSeconds: number): Promise<CallView | undefined> {
    const before = call.settled;
    const view = await this.insist((broker) => broker.wire.calls.get(SIM_AGENT, call.id, { wait_seconds: waitSeconds }));
    if (view !== undefined) {
      if (before !== undefined && view.state !== before.state) {
        this.site.failed(`call ${call.id} was shown ${before.state} and later ${view.state}`);
      }
      this.saw(call, view);
    }
    return view;
  }

  private saw(call: SimCall, view: CallView): void {
    if (isSettled(view.state)) {
      if (call.settled !== undefined && call.settled.state !== view.state) {
        this.site.failed(`I6: call ${call.id} was settled as ${call.settled.state} and as ${view.state}`);
      }
      call.settled ??= view;
    }
  }

  private async watch(call: SimCall): Promise<void> {
    const { site } = this;
    const seen = { seq: 0, settled: false };
    const watch = {};
    this.watches.set(watch, call.id);
    while (!seen.settled) {
      const broker = site.pickBroker();
      if (broker?.process.running === true) {
        const controller = new AbortController();
        const read = this.readEvents(broker, call, seen, controller.signal).catch((error: unknown) => void this.expected(error));
        // A broker that dies says nothing to who watches there.
        await Promise.race([read, site.world.sleep(CLIENT_MS)]);
        controller.abort();
        this.watches.set(watch, `${call.id} after ${seen.seq}`);
      }
      await site.world.sleep(20);
    }
    this.watches.delete(watch);
  }

  private async readEvents(broker: SimBroker, call: SimCall, seen: { seq: number; settled: boolean }, signal: AbortSignal): Promise<void> {
    const { site } = this;
    // A stream that is resumed after its driver was lost may tell again what was told before: X6 holds for what one stream shows.
    const shown = new ShownProgress(site, call);
    for await (const event of broker.wire.calls.watchEvents(SIM_AGENT, call.id, seen.seq, signal)) {
      if (signal.aborted || broker.process.dead) {
        return;
      }
      if (event.seq <= seen.seq) {
        this.site.failed(`events of ${call.id}: ${event.event} has number ${event.seq} after ${seen.seq}`);
      }
      seen.seq = event.seq;
      shown.take(event);
      if (event.event === "settled") {
        seen.settled = true;
        return;
      }
    }
  }

  /** Asks brokers until one answers; undefined: what was asked for is refused as the call is. */
  private async insist(ask: (broker: SimBroker) => Promise<CallView>): Promise<CallView | undefined> {
    const { world, random } = this.site;
    for (;;) {
      const broker = this.site.pickBroker();
      if (broker === undefined) {
        await world.sleep(50);
        continue;
      }
      const answer = await this.ask(broker, ask);
      if (answer !== "again") {
        return answer;
      }
      await world.sleep(random.between(10, 200));
    }
  }

  private ask(broker: SimBroker, ask: (broker: SimBroker) => Promise<CallView>): Promise<CallView | "again" | undefined> {
    const { world, random } = this.site;
    return new Promise((resolve) => {
      const late = world.after(CLIENT_MS, () => resolve("again"));
      const answered = (answer: CallView | "again" | undefined): void => {
        late.cancel();
        resolve(answer);
      };
      broker.process.arrive(random.between(0.1, 2), () => {
        if (!broker.serving) {
          answered("again");
          return;
        }
        ask(broker).then(
          (view) => broker.process.arrive(random.between(0.1, 2), () => answered(view)),
          (error: unknown) => broker.process.arrive(random.between(0.1, 2), () => answered(this.expected(error) ? "again" : undefined)),
        );
      });
    });
  }

  /** Is it a refusal that is worth a repeat? */
  private expected(error: unknown): boolean {
    if (error instanceof BrokerError) {
      return error.code === "ledger_away" || error.code === "draining";
    }
    this.site.logged.push(`${this.site.at()} agent got ${String(error)}`);
    return true;
  }

  /** Looks at what needs reconciliation and says what is true now. */
  async reconcile(): Promise<void> {
    const { site } = this;
    for (const callId of [...site.store.openCalls]) {
      const entries = (site.store.entriesOfCall.get(callId) ?? []).map(decodeEntry);
      const { state } = replay(entries, () => undefined);
      if (state.kind !== "needs_reconciliation") {
        continue;
      }
      const began = site.starts.some((start) => start.callId === callId);
      if (began && site.effects(callId) === 0) {
        // It may be about to be done: only who knows that nothing runs may say that it was not.
        await this.verdict(callId, { outcome: "abandon" });
        continue;
      }
      const outcome = began ? (site.random.chance(0.5) ? "applied" : "abandon") : "not_applied";
      await this.verdict(callId, { outcome, ...(outcome === "applied" ? { result: callId } : {}) });
    }
  }

  /** Asked once: what is true now need not be true later. */
  private async verdict(callId: string, body: { readonly outcome: ReconcileOutcome; readonly result?: string }): Promise<void> {
    const broker = this.site.pickBroker();
    if (broker !== undefined) {
      await this.ask(broker, (asked) => asked.wire.calls.reconcile(SIM_AGENT, callId, body));
    }
  }

  private work(job: Promise<unknown>): void {
    this.busy += 1;
    job
      .catch((error: unknown) => this.site.failed(`agent: ${String(error)}`))
      .finally(() => {
        this.busy -= 1;
      });
  }
}
