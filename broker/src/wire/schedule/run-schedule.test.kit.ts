/**
 * One schedule: a site, its work, and faults at random moments; then the faults stop, and what must hold is checked.
 * Everything follows from the seed.
 */
import { checkAtRest, checkHistory } from "./check-invariants.test.kit.js";
import { SimAgents } from "./sim-agents.test.kit.js";
import { SIM_TOOLS, type SimBroker, SimSite } from "./sim-site.test.kit.js";
import { Random } from "./world.test.kit.js";

export interface ScheduleOutcome {
  readonly site: SimSite;
  readonly seed: number;
  readonly failures: readonly string[];
  readonly logged: readonly string[];
  readonly calls: number;
  readonly starts: number;
  readonly virtualMs: number;
}

/** How long agents ask and faults happen. */
const CHAOS_MS = 12_000;
/** Within this time after the last fault everything has to come to rest. */
const REST_MS = 45_000;
/** A broker that stops takes at most this much longer than its drain. */
const STOP_MS_MAX = 2_000;

export async function runSchedule(seed: number): Promise<ScheduleOutcome> {
  const random = new Random(seed);
  const site = new SimSite(random);
  const { world } = site;
  const agents = new SimAgents(site);
  const subjects = ["user_1", "user_2"];
  const schedule = new Faults(site, random);

  const brokers = random.integer(2, 4);
  for (let index = 0; index < brokers; index += 1) {
    world.after(index * random.between(0, 300), () => site.startBroker());
  }
  for (let index = 0; index < random.integer(2, 4); index += 1) {
    site.addRunner(runnerOptions(`shop_${index}`, "shop", "", random.integer(1, 3)));
  }
  for (const subject of subjects) {
    for (let index = 0; index < random.integer(1, 2); index += 1) {
      site.addRunner(runnerOptions(`tab_${subject}_${index}`, "tab", subject, random.integer(1, 2)));
    }
  }

  const calls = random.integer(10, 60);
  for (let index = 0; index < calls; index += 1) {
    world.after(random.between(200, CHAOS_MS), () => agents.createCall(subjects));
  }
  let quiet = false;
  let reconciling = false;
  const operate = (): void => {
    if (!reconciling && (quiet || random.chance(0.5))) {
      reconciling = true;
      agents.reconcile().then(
        () => {
          reconciling = false;
        },
        (error: unknown) => site.failed(`operator: ${String(error)}`),
      );
    }
    world.after(random.between(200, 800), operate);
  };
  operate();
  schedule.begin(CHAOS_MS);

  await world.run(CHAOS_MS, () => site.failures.length > 0);
  schedule.end();
  quiet = true;
  for (const runner of site.runners) {
    runner.calm = true;
    runner.process.wake();
  }
  const restsBy = world.now + REST_MS;
  await world.run(
    restsBy,
    () =>
      site.failures.length > 0 ||
      (world.now > CHAOS_MS + 5_000 &&
        agents.idle &&
        agents.watches.size === 0 &&
        site.store.openCalls.size === 0 &&
        site.runners.every((runner) => runner.owed === 0 && runner.liveCount === 0)),
  );
  await settle(site, agents);
  return {
    site,
    seed,
    failures: site.failures,
    logged: site.logged,
    calls: agents.calls.length,
    starts: site.starts.length,
    virtualMs: world.now,
  };
}

/** Everything should be over: looks whether it is, everywhere, and stops the brokers. */
async function settle(site: SimSite, agents: SimAgents): Promise<void> {
  const { world } = site;
  if (site.failures.length > 0) {
    return;
  }
  checkAtRest(site, agents);
  let looked = false;
  Promise.all(agents.calls.map((call) => agents.look(call, 0))).then(
    () => {
      looked = true;
    },
    (error: unknown) => site.failed(String(error)),
  );
  await world.run(world.now + 30_000, () => looked);
  if (!looked) {
    site.failed("calls that settled could not be looked at");
  }
  await checkHistory(site, agents);
  // Settled calls are forgotten, and so is what the offers reserved.
  await world.run(world.now + 3_000, () => false);
  const open = site.brokers.filter(({ serving }) => serving);
  for (const broker of open) {
    const { sessions = 0, connections = 0, ...rest } = broker.wire.inspect();
    const left = Object.entries({ ...rest, greetings: connections - sessions }).filter(([, count]) => count !== 0);
    if (left.length > 0) {
      site.failed(`${broker.process.name} is left with ${left.map(([what, count]) => `${count} ${what}`).join(", ")}`);
    }
  }
  let stopped = 0;
  for (const broker of open) {
    broker.stop(0).then(
      (tookMs) => {
        stopped += 1;
        if (tookMs > STOP_MS_MAX) {
          site.failed(`${broker.process.name} took ${tookMs} ms to stop`);
        }
      },
      (error: unknown) => site.failed(`${broker.process.name} did not stop: ${String(error)}`),
    );
  }
  await world.run(world.now + 10_000, () => stopped === open.length);
  if (stopped < open.length) {
    site.failed(`${open.length - stopped} brokers did not stop`);
  }
}

function runnerOptions(runnerId: string, binding: string, subject: string, slots: number) {
  const tools = SIM_TOOLS.filter(({ toolset }) => toolset === binding).map(({ tool, idempotent, reconciles }) => ({
    tool,
    idempotent,
    ...(reconciles === true ? { reconciles } : {}),
  }));
  return { runnerId, binding, subject, slots, tools };
}

/** Faults at random moments. Each seed has its own mix. */
class Faults {
  private over = false;
  private readonly weights: readonly { readonly weight: number; readonly strike: () => void }[];

  constructor(
    private readonly site: SimSite,
    private readonly random: Random,
  ) {
    const { busFaults, ledgerFaults } = site;
    if (random.chance(0.6)) {
      busFaults.lost = random.between(0, 0.15);
      busFaults.twice = random.between(0, 0.2);
      busFaults.late = random.between(0, 0.2);
      busFaults.lateMs = random.between(50, 2_500);
    }
    if (random.chance(0.6)) {
      ledgerFaults.slow = random.between(0, 0.1);
      ledgerFaults.slowMs = random.between(50, 2_500);
      ledgerFaults.lostAcks = random.between(0, 0.1);
    }
    const kinds: readonly (readonly [number, () => void])[] = [
      [3, () => this.stopBroker()],
      [1.5, () => this.killBroker()],
      [1, () => this.deploy()],
      [1, () => this.cutOff()],
      [1, () => this.cutPair()],
      [1, () => this.ledgerAway()],
      [3, () => this.pickRunner()?.sever()],
      [1.5, () => this.pickRunner()?.crash()],
      [2, () => this.freezeRunner()],
      [0.5, () => this.jumpClock()],
    ];
    this.weights = kinds.map(([weight, strike]) => ({ weight: weight * (random.chance(0.4) ? 0 : random.between(0, 2)), strike }));
  }

  begin(untilMs: number): void {
    const everyMs = this.random.between(80, 1_500);
    const next = (): void => {
      if (this.over || this.site.world.now > untilMs) {
        return;
      }
      this.strike();
      this.site.world.after(this.random.between(0, 2 * everyMs), next);
    };
    this.site.world.after(this.random.between(300, 1_500), next);
  }

  end(): void {
    this.over = true;
    const { site } = this;
    site.cuts.heal();
    Object.assign(site.busFaults, { lost: 0, twice: 0, late: 0 });
    Object.assign(site.ledgerFaults, { slow: 0, lostAcks: 0 });
    for (const broker of site.brokers) {
      broker.process.wake();
      broker.ledger.away = false;
    }
    if (!site.brokers.some(({ process }) => !process.dead)) {
      site.startBroker();
    }
  }

  private strike(): void {
    const sum = this.weights.reduce((total, { weight }) => total + weight, 0);
    let at = this.random.between(0, sum);
    for (const { weight, strike } of this.weights) {
      at -= weight;
      if (at < 0) {
        strike();
        return;
      }
    }
  }

  private pickBroker(): SimBroker | undefined {
    const open = this.site.brokers.filter(({ process, serving }) => serving && process.running);
    return open.length === 0 ? undefined : this.random.pick(open);
  }

  private pickRunner() {
    return this.site.runners.length === 0 ? undefined : this.random.pick(this.site.runners);
  }

  private stopBroker(): void {
    const broker = this.pickBroker();
    broker?.process.stop();
    this.site.world.after(this.random.between(20, 4_000), () => broker?.process.wake());
  }

  private killBroker(): void {
    this.pickBroker()?.kill();
    this.site.world.after(this.random.between(0, 1_500), () => this.site.startBroker());
  }

  private deploy(): void {
    const { site, random } = this;
    const broker = this.pickBroker();
    if (broker === undefined) {
      return;
    }
    const drainMs = random.chance(0.5) ? 0 : random.between(0, 1_000);
    broker.stop(drainMs).then(
      (tookMs) => {
        if (tookMs > drainMs + STOP_MS_MAX) {
          site.failed(`${broker.process.name} took ${Math.round(tookMs)} ms to stop with a drain of ${Math.round(drainMs)} ms`);
        }
      },
      (error: unknown) => site.failed(`${broker.process.name} did not stop: ${String(error)}`),
    );
    site.world.after(random.between(0, 1_500), () => site.startBroker());
  }

  private cutOff(): void {
    const broker = this.pickBroker();
    if (broker !== undefined) {
      const { name } = broker.process;
      // Bus and ledger are one connection.
      this.site.cuts.cutOff(name, true);
      broker.ledger.away = true;
      this.site.world.after(this.random.between(50, 3_000), () => {
        this.site.cuts.cutOff(name, false);
        broker.ledger.away = false;
      });
    }
  }

  private cutPair(): void {
    const a = this.pickBroker()?.process.name;
    const b = this.pickBroker()?.process.name;
    if (a !== undefined && b !== undefined && a !== b) {
      this.site.cuts.cutPair(a, b, true);
      this.site.world.after(this.random.between(50, 4_000), () => this.site.cuts.cutPair(a, b, false));
    }
  }

  private ledgerAway(): void {
    const broker = this.pickBroker();
    if (broker !== undefined) {
      broker.ledger.away = true;
      this.site.world.after(this.random.between(20, 2_000), () => {
        broker.ledger.away = false;
      });
    }
  }

  private freezeRunner(): void {
    const process = this.pickRunner()?.process;
    process?.stop();
    this.site.world.after(this.random.between(20, 3_000), () => process?.wake());
  }

  private jumpClock(): void {
    const broker = this.pickBroker();
    if (broker !== undefined) {
      broker.process.wallOffsetMs += this.random.between(-1_000, 1_000);
    }
  }
}
