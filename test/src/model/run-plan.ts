/** Runs a plan on a simulated site of real brokers and real runners; then the faults stop, and everything has to come to rest. */
import { Oracle } from "./oracle.js";
import type { Operation, Plan } from "./plan.js";
import { declared, SdkRunner } from "./sdk-runner.js";
import {
  checkAtRest,
  checkHistory,
  DEFAULT_FIGURES,
  type Figures,
  Random,
  SIM_AGENT,
  SIM_TOOLS,
  SimAgents,
  type SimBroker,
  SimSite,
} from "./simulation.js";

/** Within this time after the last fault everything has to be over. Runners dial again after a minute at most. */
const REST_MS = 240_000;
const SUBJECTS = ["user_1", "user_2"] as const;

export interface PlanOutcome {
  /** What broke a rule, with the time at which it did; empty: nothing. */
  readonly failures: readonly string[];
  /** What brokers logged, for a failed plan's report. */
  readonly logged: readonly string[];
  readonly calls: number;
  readonly starts: number;
  readonly virtualMs: number;
}

/** About a third of the real ones, in the plan's proportions. */
export function figuresOf(plan: Pick<Plan, "leaseMs" | "goneAfterMs" | "driverAnswerMs" | "reservationMs">): Figures {
  const { leaseMs, goneAfterMs, driverAnswerMs, reservationMs } = plan;
  return {
    ...DEFAULT_FIGURES,
    pingIntervalMs: 1_000,
    leaseMs,
    helloMs: 3_000,
    heartbeatMs: 800,
    goneAfterMs,
    driverAnswerMs,
    offerRepeatMs: 1_000,
    reservationMs,
    waitingNoticeMs: 100,
    confirmationMs: 12_000,
    ledgerAnswerMs: 2_000,
    reconcileMs: 2_000,
    reconcileTurnMs: 200,
    settledMemoryMs: 3_000,
  };
}

/** Runs the plan; stops at the first failure. */
export async function runPlan(plan: Plan): Promise<PlanOutcome> {
  const run = new PlanRun(plan);
  await run.play();
  const { site, agents } = run;
  return {
    failures: site.failures,
    logged: site.logged,
    calls: agents.calls.length,
    starts: site.starts.length,
    virtualMs: site.world.now,
  };
}

class PlanRun {
  readonly site: SimSite;
  readonly agents: SimAgents;
  private readonly oracle: Oracle;
  private reconciling = false;

  constructor(private readonly plan: Plan) {
    this.site = new SimSite(new Random(plan.seed), {
      figures: figuresOf(plan),
      runner: (site, options) => new SdkRunner(site, options),
    });
    this.agents = new SimAgents(this.site);
    this.oracle = new Oracle(this.site);
    this.site.world.onStep = () => this.oracle.look();
  }

  async play(): Promise<void> {
    const { plan, site } = this;
    const { world } = site;
    for (let index = 0; index < plan.brokers; index += 1) site.startBroker();
    const tools = (binding: string) => SIM_TOOLS.filter(({ toolset }) => toolset === binding).map(declared);
    plan.shops.forEach((slots, index) => {
      site.addRunner({ runnerId: `shop_${index}`, binding: "shop", subject: "", slots, tools: tools("shop") });
    });
    plan.tabs.forEach((tabs, user) => {
      tabs.forEach((slots, index) => {
        site.addRunner({ runnerId: `tab_${user}_${index}`, binding: "tab", subject: SUBJECTS[user] ?? "", slots, tools: tools("tab") });
      });
    });
    Object.assign(site.busFaults, plan.bus);
    Object.assign(site.ledgerFaults, plan.ledger);
    let at = 500;
    for (const { afterMs, operation } of plan.steps) {
      at += afterMs;
      world.after(at, () => this.carryOut(operation));
    }
    at += 2_000;
    await world.run(at, () => site.failures.length > 0);
    if (site.failures.length === 0) await this.rest(at);
  }

  private async rest(from: number): Promise<void> {
    const { site, agents } = this;
    const { world } = site;
    site.cuts.heal();
    Object.assign(site.busFaults, { lost: 0, twice: 0, late: 0 });
    Object.assign(site.ledgerFaults, { slow: 0, lostAcks: 0 });
    for (const broker of site.brokers) {
      broker.process.wake();
      broker.ledger.away = false;
    }
    if (!site.brokers.some(({ process }) => !process.dead)) site.startBroker();
    for (const runner of site.runners) {
      runner.calm = true;
      runner.process.wake();
    }
    const operate = (): void => {
      this.reconcile();
      this.giveUpSubmissions();
      world.after(1_000, operate);
    };
    operate();
    const isOver = () =>
      agents.idle &&
      agents.watches.size === 0 &&
      site.store.openCalls.size === 0 &&
      site.runners.every(({ owed, liveCount }) => owed === 0 && liveCount === 0);
    await world.run(from + REST_MS, () => site.failures.length > 0 || (world.now > from + 5_000 && isOver()));
    if (site.failures.length > 0) return;
    checkAtRest(site, agents);
    let looked = false;
    Promise.all(agents.calls.map((call) => agents.look(call, 0))).then(
      () => {
        looked = true;
      },
      (error: unknown) => site.failed(String(error)),
    );
    if (!(await world.run(world.now + 60_000, () => looked))) site.failed("calls that settled could not be looked at");
    await checkHistory(site, agents);
  }

  private broker(number: number): SimBroker | undefined {
    const open = this.site.brokers.filter(({ process, serving }) => serving && process.running);
    return open[number % open.length];
  }

  private runner(number: number): SdkRunner | undefined {
    const runner = this.site.runners[number % this.site.runners.length];
    return runner instanceof SdkRunner ? runner : undefined;
  }

  private carryOut(operation: Operation): void {
    const { site } = this;
    const { world } = site;
    switch (operation.do) {
      case "call": {
        const tool = SIM_TOOLS[operation.tool % SIM_TOOLS.length];
        if (tool !== undefined) this.agents.callTool(tool, SUBJECTS[operation.subject] ?? SUBJECTS[0], `key_${operation.key}`);
        return;
      }
      case "reconcile":
        return this.reconcile();
      case "stop_broker": {
        const broker = this.broker(operation.broker);
        broker?.process.stop();
        world.after(operation.forMs, () => broker?.process.wake());
        return;
      }
      case "kill_broker":
        this.broker(operation.broker)?.kill();
        world.after(operation.againMs, () => site.startBroker());
        return;
      case "deploy_broker":
        this.broker(operation.broker)
          ?.stop(operation.drainMs)
          .catch((error: unknown) => site.failed(`a broker did not stop: ${String(error)}`));
        world.after(operation.againMs, () => site.startBroker());
        return;
      case "cut_off_broker": {
        const broker = this.broker(operation.broker);
        if (broker === undefined) return;
        // Bus and ledger are one connection.
        const cut = (off: boolean): void => {
          site.cuts.cutOff(broker.process.name, off);
          broker.ledger.away = off;
        };
        cut(true);
        world.after(operation.forMs, () => cut(false));
        return;
      }
      case "cut_pair": {
        const [a, b] = [this.broker(operation.broker)?.process.name, this.broker(operation.other)?.process.name];
        if (a === undefined || b === undefined || a === b) return;
        site.cuts.cutPair(a, b, true);
        world.after(operation.forMs, () => site.cuts.cutPair(a, b, false));
        return;
      }
      case "ledger_away": {
        const ledger = this.broker(operation.broker)?.ledger;
        if (ledger === undefined) return;
        ledger.away = true;
        world.after(operation.forMs, () => {
          ledger.away = false;
        });
        return;
      }
      case "jump_broker": {
        const process = this.broker(operation.broker)?.process;
        if (process !== undefined) process.wallOffsetMs += operation.byMs;
        return;
      }
      case "sever":
        this.runner(operation.runner)?.sever();
        return;
      case "crash_runner":
        this.runner(operation.runner)?.crash(operation.journal);
        return;
      case "freeze_runner":
      case "sleep_runner": {
        const process = this.runner(operation.runner)?.process;
        if (operation.do === "freeze_runner") process?.stop();
        else process?.sleep();
        world.after(operation.forMs, () => process?.wake());
        return;
      }
      case "jump_runner": {
        const process = this.runner(operation.runner)?.process;
        // Set back while the machine slept, a wall clock cannot be told from one that went on: G3 excludes that.
        const sleeps = this.plan.steps.some((step) => step.operation.do === "sleep_runner");
        if (process !== undefined) process.wallOffsetMs += sleeps ? Math.abs(operation.byMs) : operation.byMs;
        return;
      }
    }
  }

  /** What a runner submitted and does not know of any more, since its journal was lost, is given up by who waits for it. */
  private giveUpSubmissions(): void {
    if (!this.plan.steps.some(({ operation }) => operation.do === "crash_runner" && operation.journal === "lost")) return;
    for (const callId of this.oracle.submitted()) {
      if (this.site.runners.every((runner) => runner instanceof SdkRunner && !runner.journal.submissions().includes(callId)))
        this.site
          .pickBroker()
          ?.wire.calls.cancel(SIM_AGENT, callId, { mode: "killnowait" })
          .catch(() => undefined);
    }
  }

  private reconcile(): void {
    if (this.reconciling) return;
    this.reconciling = true;
    this.agents.reconcile().then(
      () => {
        this.reconciling = false;
      },
      (error: unknown) => this.site.failed(`operator: ${String(error)}`),
    );
  }
}
