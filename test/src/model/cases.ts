/**
 * The schedules that the rules prevent, one by one, each as a script on a stage of real brokers and real runners.
 * What a broken rule leads to is seen by the oracle, or by what the script waits for in vain.
 */

import { checkHistory, SIM_AGENT, type SimBroker } from "./simulation.js";
import { Stage, type StageFigures } from "./stage.js";

/** One schedule. */
export interface ModelCase {
  /** Rule and story. */
  readonly name: string;
  readonly figures?: StageFigures;
  readonly play: (stage: Stage) => Promise<void>;
}

const at = (brokers: readonly SimBroker[], index: number): SimBroker => {
  const broker = brokers[index];
  if (broker === undefined) throw new Error(`there is no broker ${index}`);
  return broker;
};

/** An operator who looks, and says what is true. */
async function operate(stage: Stage, broker: SimBroker, id: string): Promise<void> {
  while ((await stage.look(broker, id)).state !== "needs_reconciliation") await stage.pass(100);
  const began = stage.site.starts.some(({ callId }) => callId === id);
  const body = began ? ({ outcome: "applied", result: id } as const) : ({ outcome: "not_applied" } as const);
  await stage.get("the operator's answer", broker.wire.calls.reconcile(SIM_AGENT, id, body));
}

export const CASES: readonly ModelCase[] = [
  {
    name: "L2: an append is unknown for longer than its agent waits, and lands after the 503",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      a.ledger.away = true;
      const refused = await stage.call(a, "echo", { key: "k" }).then(
        () => "accepted",
        (error: unknown) => (error as { readonly code?: string }).code,
      );
      stage.expect(`the agent was told ${refused}`, refused === "ledger_away");
      a.ledger.away = false;
      await stage.entries("accepted");
      await stage.runner("r", a);
      await stage.settled();
      stage.expect("it ran once", stage.site.starts.length === 1);
      stage.expect("a repeat gets it", (await stage.call(a, "echo", { key: "k" })).state === "succeeded");
    },
  },
  {
    name: "L3: a second grant has a higher fence, and receipts are told apart by their grants",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      await stage.runner("r", a, { failures: 2 });
      await stage.call(a, "safe");
      await stage.settled();
      stage.expect("three attempts", stage.site.starts.length === 3);
    },
  },
  {
    name: "G1: a driver is stopped between append and send; its call is adopted and granted elsewhere; then it wakes and sends",
    figures: { leaseMs: 8_000, goneAfterMs: 2_000, reservationMs: 3_800 },
    play: async (stage) => {
      const brokers = await stage.brokers(2);
      const [a, b] = [at(brokers, 0), at(brokers, 1)];
      await stage.runner("r1", b, {}, 1);
      await stage.runner("r2", b, {}, 1);
      await stage.call(a, "echo");
      await stage.entries("granted");
      a.process.stop();
      await stage.entries("adopted");
      await stage.entries("receipt");
      a.process.wake();
      await stage.pass(12_000);
      await stage.settled();
      stage.expect(`it began ${stage.site.starts.length} times`, stage.site.starts.length === 1);
    },
  },
  {
    name: "G1: a runner begins, and dies with its journal; who comes back under its id knows of nothing",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const runner = await stage.runner("r", a, { runMs: 20_000, deaf: true });
      const { id } = await stage.call(a, "echo");
      await stage.until("the start", () => stage.site.starts.length === 1);
      runner.crash("lost");
      await stage.entries("lease_lost");
      await stage.pass(5_000);
      await operate(stage, a, id);
      await stage.settled();
      stage.expect("it began once", stage.site.starts.length === 1);
    },
  },
  {
    name: "G1: nobody hears of a grant for a whole lease, and its handler runs",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const runner = await stage.runner("r", a, { runMs: 20_000, deaf: true });
      await stage.call(a, "echo");
      await stage.until("the start", () => stage.site.starts.length === 1);
      runner.sever();
      runner.process.stop();
      await stage.until("the end of its lease", () => stage.oracle.count("lease_lost") + stage.oracle.count("returned") > 0);
      await stage.runner("other", a);
      await stage.pass(5_000);
      runner.process.wake();
      await stage.settled();
      stage.expect("it began once", stage.site.starts.length === 1);
    },
  },
  {
    name: "G2: a runner dies right after its handler began",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const runner = await stage.runner("r", a, { runMs: 5_000 });
      const { id } = await stage.call(a, "echo");
      await stage.until("the start", () => stage.site.starts.length === 1);
      runner.crash();
      await stage.entries("lease_lost");
      await operate(stage, a, id);
      await stage.settled();
      stage.expect("it began once", stage.site.starts.length === 1);
    },
  },
  {
    name: "G2: a runner dials again while a grant of the session before waits to begin",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const runner = await stage.runner("r", a, { admitMs: 1_500 });
      await stage.call(a, "echo");
      await stage.pass(300);
      runner.sever();
      await stage.entries("returned");
      // What the broker says next waits in the buffer: only the runner's own word keeps it from beginning.
      runner.hold();
      await stage.pass(1_500);
      runner.release();
      await stage.settled();
      stage.expect("it was granted again", stage.oracle.count("granted") === 1);
      stage.expect("it began once", stage.site.starts.length === 1);
    },
  },
  {
    name: "G3: a grant lies in the buffer of a frozen runner past its lease; it is run elsewhere; the runner thaws",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const frozen = await stage.runner("frozen", a);
      frozen.process.stop();
      const { id } = await stage.call(a, "echo");
      await stage.entries("lease_lost");
      await stage.runner("other", a);
      await operate(stage, a, id);
      await stage.entries("receipt");
      frozen.process.wake();
      await stage.pass(10_000);
      await stage.settled();
      stage.expect("it began once", stage.site.starts.length === 1);
    },
  },
  {
    name: "G3: a machine sleeps over the end of a lease, and its monotonic clock does not know",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const asleep = await stage.runner("asleep", a, { admitMs: 400 });
      const { id } = await stage.call(a, "echo");
      await stage.pass(200);
      asleep.process.sleep();
      await stage.entries("lease_lost");
      asleep.process.wake();
      await stage.pass(3_000);
      stage.expect("it did not begin", stage.site.starts.length === 0);
      await operate(stage, a, id);
      await stage.settled();
    },
  },
  {
    name: "G3: a broker stands still over the end of a lease; the runner's word lies in its sockets when it wakes",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      await stage.runner("r", a, { runMs: 7_000, deaf: true });
      await stage.call(a, "safe");
      await stage.pass(500);
      a.process.stop();
      await stage.pass(6_000);
      a.process.wake();
      await stage.settled();
      stage.expect("its lease was taken for lost", stage.oracle.count("lease_lost") === 0);
    },
  },
  {
    name: "G4: a runner is not heard of past its lease while its handler runs, and comes back before what it does is done",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const runner = await stage.runner("r", a, { runMs: 9_500, deaf: true, late: true });
      const { id } = await stage.call(a, "pay");
      await stage.until("the start", () => stage.site.starts.length === 1);
      await stage.runner("other", a, { runMs: 100 });
      runner.hold();
      await stage.entries("lease_lost");
      runner.release();
      await stage.settled();
      stage.expect(`it was done ${stage.site.effects(id)} times`, stage.site.effects(id) === 1);
    },
  },
  {
    name: "G5: a receipt comes after the call was cancelled, and one of a grant that is not the newest",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const slow = await stage.runner("slow", a, { runMs: 2_000, deaf: true });
      const cancelled = await stage.call(a, "echo");
      await stage.until("the start", () => stage.site.starts.length === 1);
      await stage.get("the cancel", a.wire.calls.cancel(SIM_AGENT, cancelled.id, { mode: "killnowait" }));
      await stage.entries("evidence");
      await stage.settled();
      await stage.call(a, "safe");
      await stage.until("the start", () => stage.site.starts.length === 2);
      slow.process.stop();
      await stage.entries("lease_lost");
      await stage.runner("other", a, { runMs: 6_000, deaf: true });
      await stage.entries("granted", 1);
      await stage.until("the start elsewhere", () => stage.site.starts.length === 3);
      slow.process.wake();
      await stage.entries("evidence", 2);
      await stage.settled();
    },
  },
  {
    name: "G6: an agent's turn is answered by a handle, and by an outcome that nobody knows",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      const runner = await stage.runner("r", a, { runMs: 300 });
      const submitted = await stage.call(a, "later", { waitSeconds: 20 });
      stage.expect(`the turn got ${submitted.state}`, submitted.state === "submitted");
      await stage.settled();
      const beganAt = stage.site.world.now;
      stage.site.world.after(100, () => runner.crash());
      const unknown = await stage.call(a, "echo", { waitSeconds: 11 });
      stage.expect(`the turn got ${unknown.state}`, unknown.state === "needs_reconciliation");
      stage.expect("only when its wait was over", stage.site.world.now - beganAt < 6_000);
      await operate(stage, a, unknown.id);
      await stage.settled();
    },
  },
  {
    name: "G7: a call that a person has to confirm waits for that person",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      await stage.runner("r", a);
      const { id } = await stage.call(a, "asked");
      await stage.pass(3_000);
      stage.expect("it began", stage.site.starts.length === 0);
      await stage.get("the confirmation", a.wire.calls.confirm(SIM_AGENT, id, { decision: "allow" }));
      await stage.settled();
      stage.expect("it began once", stage.site.starts.length === 1);
    },
  },
  {
    name: "B1: brokers that live keep their calls; one that dies loses them within the time that it takes to be sure",
    play: async (stage) => {
      const brokers = await stage.brokers(3);
      const [a, b] = [at(brokers, 0), at(brokers, 1)];
      await stage.runner("r", b, { runMs: 9_000, deaf: true }, 8);
      for (let index = 0; index < 6; index += 1) await stage.call(a, "echo");
      await stage.entries("granted", 6);
      await stage.pass(4_000);
      stage.expect("a live broker's calls were adopted", stage.oracle.count("adopted") === 0);
      // These wait for a tab that is not there: nobody but the brokers knows of them.
      for (let index = 0; index < 6; index += 1) await stage.call(a, "click", { subject: "user_1" });
      a.kill();
      await stage.entries("adopted", 12, 8_000);
      await stage.tab("tab", b, "user_1");
      await stage.settled();
      stage.expect("twelve starts", stage.site.starts.length === 12);
    },
  },
  {
    name: "B2: a second process takes a runner's id at another broker",
    play: async (stage) => {
      const brokers = await stage.brokers(2);
      const [a, b] = [at(brokers, 0), at(brokers, 1)];
      const first = await stage.runner("r", a);
      first.mayEnd = true;
      const second = await stage.runner("r", b);
      stage.expect("both have the id", second.options.runnerId === first.options.runnerId);
      await stage.until("the end of the first", () => first.ended === "refused", 5_000);
      await stage.call(a, "echo");
      await stage.settled();
    },
  },
  {
    name: "B2: a hello that a runner gave up is read late, by a broker that stood still, when another one serves the runner",
    play: async (stage) => {
      const brokers = await stage.brokers(2);
      const [a, b] = [at(brokers, 0), at(brokers, 1)];
      a.process.stop();
      stage.dials("r", a);
      await stage.pass(2_000);
      stage.site.dialled = b;
      await stage.until("the session", () => stage.sessions("r", b) > 0, 30_000);
      a.process.wake();
      await stage.pass(15_000);
      await stage.call(b, "echo");
      await stage.settled();
    },
  },
  {
    name: "B3: a call waits at one broker, and a runner comes to another",
    play: async (stage) => {
      const brokers = await stage.brokers(2);
      const [a, b] = [at(brokers, 0), at(brokers, 1)];
      await stage.call(a, "echo");
      await stage.pass(3_000);
      await stage.runner("r", b);
      await stage.entries("granted", 1, 400);
      await stage.settled();
    },
  },
  {
    name: "B3: the wake-up is lost, and the open offer is made again",
    play: async (stage) => {
      const brokers = await stage.brokers(2);
      const [a, b] = [at(brokers, 0), at(brokers, 1)];
      await stage.call(a, "echo");
      await stage.pass(3_000);
      stage.site.cuts.cutPair(a.process.name, b.process.name, true);
      await stage.runner("r", b);
      await stage.pass(200);
      stage.site.cuts.cutPair(a.process.name, b.process.name, false);
      await stage.entries("granted", 1, 3_000);
      await stage.settled();
    },
  },
  {
    name: "B5: a tool is taken away, and an agent repeats its request with the same key",
    play: async (stage) => {
      const brokers = await stage.brokers(2);
      const [a, b] = [at(brokers, 0), at(brokers, 1)];
      await stage.runner("r", a);
      const { id } = await stage.call(a, "echo", { key: "k" });
      await stage.settled();
      await stage.pass(5_000);
      stage.site.withdrawn.add("echo");
      stage.expect("another call", (await stage.call(b, "echo", { key: "k" })).id === id);
    },
  },
  {
    name: "I8: tabs of two users, and calls for each",
    play: async (stage) => {
      const brokers = await stage.brokers(1);
      const a = at(brokers, 0);
      await stage.tab("tab_1", a, "user_1");
      await stage.tab("tab_2", a, "user_2");
      for (const subject of ["user_1", "user_1", "user_2", "user_2"]) await stage.call(a, "click", { subject });
      await stage.settled();
    },
  },
];

/** Plays one case; what broke, empty: nothing. */
export async function runCase(name: string): Promise<readonly string[]> {
  const found = CASES.find((each) => each.name === name);
  if (found === undefined) throw new Error(`there is no case ${JSON.stringify(name)}`);
  const stage = new Stage(found.figures);
  try {
    await found.play(stage);
    await checkHistory(stage.site, stage.agents);
  } catch (error) {
    return [...stage.failures, error instanceof Error ? error.message : String(error)];
  }
  return stage.failures;
}
