/**
 * A simulated site for scripted schedules: real brokers and real runners, no chance but in small delays, and faults when the
 * script says so. A script fails with the first rule that is broken, or where what it waits for does not happen.
 */
import { Oracle } from "./oracle.js";
import { figuresOf } from "./run-plan.js";
import { declared, type HandlerScript, SdkRunner } from "./sdk-runner.js";
import { Random, SIM_AGENT, SIM_TOOLS, SimAgents, type SimBroker, SimSite } from "./simulation.js";

/** What an agent is shown of a call. */
export type View = Awaited<ReturnType<SimBroker["wire"]["calls"]["get"]>>;

/** What a script may have otherwise than {@link FIGURES}. */
export type StageFigures = Partial<typeof FIGURES>;

const FIGURES = { leaseMs: 5_000, goneAfterMs: 3_000, driverAnswerMs: 500, reservationMs: 1_000 };

class StagedSite extends SimSite {
  /** Where runners dial; undefined: anywhere. */
  dialled: SimBroker | undefined;

  override pickBroker(): SimBroker | undefined {
    return this.dialled ?? super.pickBroker();
  }
}

export class Stage {
  readonly site: StagedSite;
  readonly oracle: Oracle;
  readonly agents: SimAgents;
  private keys = 0;

  constructor(figures: StageFigures = {}) {
    this.site = new StagedSite(new Random(1), {
      figures: figuresOf({ ...FIGURES, ...figures }),
      runner: (site, options) => new SdkRunner(site, options),
    });
    this.agents = new SimAgents(this.site);
    this.oracle = new Oracle(this.site);
    this.site.world.onStep = () => this.oracle.look();
  }

  get failures(): readonly string[] {
    return this.site.failures;
  }

  /** Brokers that know each other. */
  async brokers(count: number): Promise<SimBroker[]> {
    const brokers = Array.from({ length: count }, () => this.site.startBroker());
    await this.until("the brokers", () => brokers.every(({ serving, wire }) => serving && wire.readings().liveBrokers === count));
    return brokers;
  }

  /** A runner of toolset `shop` with a session at `broker`. */
  async runner(runnerId: string, broker: SimBroker, script: HandlerScript = {}, slots = 4): Promise<SdkRunner> {
    const before = this.sessions(runnerId, broker);
    const runner = this.dials(runnerId, broker, { binding: "shop", subject: "", slots }, script);
    await this.until(`the session of ${runnerId}`, () => this.sessions(runnerId, broker) > before && runner.ready);
    return runner;
  }

  /** A tab of the user with a session at `broker`. */
  async tab(runnerId: string, broker: SimBroker, subject: string): Promise<SdkRunner> {
    const tab = this.dials(runnerId, broker, { binding: "tab", subject, slots: 4 }, {});
    await this.until(`the session of ${runnerId}`, () => this.sessions(runnerId, broker) > 0 && tab.ready);
    return tab;
  }

  /** A runner that dials `broker`, whatever comes of it. */
  dials(
    runnerId: string,
    broker: SimBroker,
    facts: { readonly binding: string; readonly subject: string; readonly slots: number } = { binding: "shop", subject: "", slots: 4 },
    script: HandlerScript = {},
  ): SdkRunner {
    this.site.dialled = broker;
    const tools = SIM_TOOLS.filter(({ toolset }) => toolset === facts.binding).map(declared);
    const runner = this.site.addRunner({ runnerId, ...facts, tools });
    if (!(runner instanceof SdkRunner)) throw new Error("the stage's runners are the SDK's");
    runner.script = script;
    return runner;
  }

  /** How often a session of the runner was opened at the broker. */
  sessions(runnerId: string, { process }: SimBroker): number {
    return this.site.logged.filter((line) => line.includes(` ${process.name} session_opened {"runner_id":"${runnerId}"`)).length;
  }

  /** Lets time go by. */
  async pass(ms: number): Promise<void> {
    await this.site.world.run(this.site.world.now + ms, () => this.failures.length > 0);
    this.check();
  }

  /** Lets time go by until `holds`. */
  async until(what: string, holds: () => boolean, withinMs = 30_000): Promise<void> {
    const { world } = this.site;
    await world.run(world.now + withinMs, () => this.failures.length > 0 || holds());
    this.check();
    if (!holds()) throw new Error(`${what}: not within ${withinMs} ms`);
  }

  /** The outcome of something that an agent asks of a broker. */
  async get<T>(what: string, asked: Promise<T>, withinMs = 30_000): Promise<T> {
    let outcome: { readonly value: T } | { readonly error: unknown } | undefined;
    asked.then(
      (value) => {
        outcome = { value };
      },
      (error: unknown) => {
        outcome = { error };
      },
    );
    await this.until(what, () => outcome !== undefined, withinMs);
    if (outcome === undefined) throw new Error(what);
    if ("error" in outcome) throw outcome.error;
    return outcome.value;
  }

  /** Calls a tool of toolset `shop`, or with a subject one of toolset `tab`. */
  call(
    broker: SimBroker,
    tool: string,
    options: { readonly key?: string; readonly waitSeconds?: number; readonly subject?: string } = {},
  ): Promise<View> {
    this.keys += 1;
    const { key = `key_${this.keys}`, waitSeconds = 0, subject } = options;
    const body = {
      toolset: subject === undefined ? "shop" : "tab",
      tool,
      arguments: {},
      idempotency_key: key,
      timeout_seconds: 12,
      wait_seconds: waitSeconds,
      ...(subject === undefined ? {} : { subject }),
    };
    return this.get(`the call of ${tool}`, broker.wire.calls.create(SIM_AGENT, body, {}));
  }

  look(broker: SimBroker, id: string): Promise<View> {
    return this.get(`call ${id}`, broker.wire.calls.get(SIM_AGENT, id, {}));
  }

  /** Waits until the ledger has that many entries of the kind. */
  entries(kind: string, count = 1, withinMs?: number): Promise<void> {
    return this.until(`${count} entries of kind ${kind}`, () => this.oracle.count(kind) >= count, withinMs);
  }

  /** Fails the script unless `holds`. */
  expect(what: string, holds: boolean): void {
    if (!holds) throw new Error(what);
  }

  /** Waits until every call is settled, and every receipt acknowledged. */
  settled(withinMs = 60_000): Promise<void> {
    const { store, runners } = this.site;
    return this.until(
      "the end of all calls",
      () => store.openCalls.size === 0 && runners.every(({ owed, liveCount }) => owed + liveCount === 0),
      withinMs,
    );
  }

  private check(): void {
    const [failure] = this.failures;
    if (failure !== undefined) throw new Error(failure);
  }
}
