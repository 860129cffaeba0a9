/** NATS fails over, restarts, and is away for a minute, under load: calls wait or get a typed refusal, and nothing is half done. */
import { type Call, createAgentClient, ToolRunnerError } from "@toolrunner/agent-sdk";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ADMIN_KEY, createStage, type Stage } from "../brokers/stage.js";
import { type CliProcess, startCli } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { type NatsCluster, startNatsCluster } from "../kit/nats-server-cluster.js";
import { type LightFleet, startLightFleet } from "./light-runner.test.kit.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";
const inFull = (title: string): string => (isLong ? title : `${title} [minutes of elections and outages: npm run test:long]`);

let stage: Stage;
let cluster: NatsCluster;
let fleet: LightFleet | undefined;
const brokers: CliProcess[] = [];
beforeEach(async () => {
  if (!isLong) return;
  [stage, cluster] = await Promise.all([createStage(), startNatsCluster()]);
}, 120_000);
afterEach(async () => {
  if (!isLong) return;
  fleet?.stop();
  await Promise.all(brokers.splice(0).map((broker) => broker.kill9()));
  await stage.close();
  await cluster.dispose();
}, 60_000);

async function startBroker(): Promise<CliProcess> {
  const args = ["broker", "--nats", cluster.urls.join(","), "--replicas", "3", "--port", "0", "--grpc-port", "0"];
  const broker = await startCli(args, { cwd: stage.folder, env: { TOOLRUNNER_BOOTSTRAP_KEY: ADMIN_KEY } });
  brokers.push(broker);
  return broker;
}

/** Agents that call without a pause; their SDK repeats what is refused with 503 for up to two minutes. */
function startLoad(urls: readonly string[]) {
  const clients = urls.map((url) => createAgentClient({ url, key: ADMIN_KEY, retryForMs: 120_000 }));
  const answers: Call[] = [];
  const failures: unknown[] = [];
  let stopping = false;
  const agents = Array.from({ length: 6 }, async (_, agent) => {
    for (let n = 0; !stopping; n += 1) {
      try {
        const client = clients[(agent + n) % clients.length];
        if (client !== undefined) answers.push(await client.call({ toolset: "work", tool: "charge", arguments: { agent, n } }));
      } catch (error) {
        failures.push(error instanceof ToolRunnerError ? error.code : error);
      }
    }
  });
  return {
    answers,
    failures,
    async stop() {
      stopping = true;
      await Promise.all(agents);
    },
  };
}

describe.skipIf(!isLong)(inFull("three NATS servers and two brokers, under load"), () => {
  it("lose no call and start none twice, while leaders step down and die, and all servers are away for a minute (I1, I3, L2)", {
    timeout: 400_000,
  }, async () => {
    const a = await startBroker();
    const token = await stage.setUp(a);
    const b = await startBroker();
    const running = startLightFleet({
      url: String(b.ready.ws),
      token,
      binding: "work",
      tools: ["charge"],
      count: 20,
      slots: 4,
      runMs: () => 20,
    });
    fleet = running;
    await eventually("all runners", () => running.connected === 20, 30_000);
    const load = startLoad([String(a.ready.http), String(b.ready.http)]);
    const progress = async (what: string): Promise<void> => {
      const before = load.answers.length;
      const startedAt = performance.now();
      await eventually(`calls to go on after ${what}`, () => load.answers.length > before + 40, 120_000);
      console.log(`after ${what}, 40 more calls were answered within ${Math.round(performance.now() - startedAt)} ms`);
    };
    await progress("the start");
    await cluster.stepDown("tr_calls");
    await progress("a step-down of the leader");
    const leader = await eventually("a leader", () => cluster.leaderOf("tr_calls"), 30_000);
    await leader.kill9();
    await progress("a leader was killed");
    await cluster.heal();
    await progress("it is back");
    await Promise.all(cluster.nodes.map((node) => node.kill9()));
    await new Promise((resolve) => setTimeout(resolve, 60_000));
    await cluster.heal();
    await progress("a minute without any server");
    await load.stop();
    const states = new Map<string, number>();
    for (const { state, attempt } of load.answers) states.set(`${state} ${attempt}`, (states.get(`${state} ${attempt}`) ?? 0) + 1);
    console.log(`${load.answers.length} calls: ${[...states].join("; ")}; refused for good: ${load.failures.join(", ") || "none"}`);
    // A timed-out call is one whose own time-out ended while nothing could be stored; it may not have been started twice either.
    expect([...states.keys()].filter((state) => !/^(succeeded|timed_out|needs_reconciliation) 1$/.test(state))).toEqual([]);
    expect(load.failures).toEqual([]);
    expect([...running.starts.values()].filter((count) => count !== 1)).toEqual([]);
    for (const { id } of load.answers.slice(-5)) expect((await stage.http(a, "GET", `/v1/calls/${id}`)).body.state).toBe("succeeded");
  });
});
