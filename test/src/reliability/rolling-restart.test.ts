import { type Call, createAgentClient } from "@toolrunner/agent-sdk";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ADMIN_KEY, createStage, type Stage } from "../brokers/stage.js";
import type { CliProcess } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { type Balancer, startBalancer } from "./balancer.test.kit.js";
import { type LightFleet, startLightFleet } from "./light-runner.test.kit.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";
const RUNNERS = isLong ? 2_000 : 120;
const AGENTS = isLong ? 16 : 4;
const BIN_MS = 100;

let stage: Stage;
let nats: NatsServer;
let balancer: Balancer;
let fleet: LightFleet | undefined;
beforeEach(async () => {
  [stage, nats, balancer] = await Promise.all([createStage(), startNatsServer({ version: "2.10" }), startBalancer()]);
});
afterEach(async () => {
  fleet?.stop();
  await stage.close();
  await Promise.all([balancer.close(), nats.dispose()]);
});

async function startBroker(): Promise<CliProcess> {
  const broker = await stage.broker(nats.url);
  balancer.add(String(broker.ready.http));
  return broker;
}

/** Agents that call without a pause, each waiting for its answer, until they are told to stop. */
function startLoad() {
  const client = createAgentClient({ url: balancer.http, key: ADMIN_KEY, retryForMs: 60_000 });
  const answers: Call[] = [];
  const failures: unknown[] = [];
  let stopping = false;
  const agents = Array.from({ length: AGENTS }, async (_, agent) => {
    for (let n = 0; !stopping; n += 1) {
      try {
        answers.push(await client.call({ toolset: "work", tool: "charge", arguments: { agent, n } }));
      } catch (error) {
        failures.push(error);
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

function histogram(times: readonly number[], from: number): number[] {
  const bins: number[] = [];
  for (const at of times) {
    const bin = Math.floor((at - from) / BIN_MS);
    bins[bin] = (bins[bin] ?? 0) + 1;
  }
  return Array.from(bins, (count) => count ?? 0);
}

describe(`three brokers that are restarted one after the other, under load, with ${RUNNERS} runners${isLong ? "" : " [2,000: npm run test:long]"}`, () => {
  it("fail no call and start none twice, and their runners come back spread over a while (I1, I3, B2)", {
    timeout: isLong ? 300_000 : 90_000,
  }, async () => {
    let brokers = [await startBroker()];
    const token = await stage.setUp(brokers[0] as CliProcess);
    brokers = [...brokers, ...(await Promise.all([startBroker(), startBroker()]))];
    await eventually("the balancer to know them", async () => (await fetch(`${balancer.http}/readyz`)).ok);
    // Some calls outlast the moment in which their broker is told to stop.
    const running = startLightFleet({
      url: balancer.ws,
      token,
      binding: "work",
      tools: ["charge"],
      count: RUNNERS,
      slots: 2,
      runMs: () => (Math.random() < 0.05 ? 1_500 : 20),
    });
    fleet = running;
    await eventually("all runners", () => running.connected === RUNNERS, 60_000);
    const load = startLoad();
    await eventually("the load", () => load.answers.length > 20);
    for (const broker of brokers) {
      const before = running.welcomes.length;
      const toldAt = performance.now();
      const answered = load.answers.length;
      expect(await broker.stop()).toBe(0);
      balancer.remove(String(broker.ready.http));
      const stoppedMs = Math.round(performance.now() - toldAt);
      await eventually("all runners to be back", () => running.connected === RUNNERS, 60_000);
      const back = running.welcomes.slice(before).map(({ atMs }) => atMs);
      const bins = histogram(back, toldAt);
      console.log(
        `drained in ${stoppedMs} ms; ${back.length} reconnects by ${BIN_MS} ms: ${bins.join(" ")}; ${load.answers.length - answered} calls meanwhile`,
      );
      expect(back.length).toBeGreaterThan(RUNNERS / 10);
      expect(Math.max(...bins)).toBeLessThan(back.length * (isLong ? 0.25 : 0.7));
      await startBroker();
    }
    await load.stop();
    const states = new Map<string, number>();
    for (const { state, attempt } of load.answers) states.set(`${state} ${attempt}`, (states.get(`${state} ${attempt}`) ?? 0) + 1);
    console.log(`${load.answers.length} calls: ${[...states].join("; ")}; ends of sessions: ${[...running.ends].join("; ")}`);
    expect(load.failures).toEqual([]);
    expect([...states.keys()]).toEqual(["succeeded 1"]);
    expect([...running.starts.values()].filter((count) => count !== 1)).toEqual([]);
    expect(running.complaints.filter((what) => !what.startsWith("refusal"))).toEqual([]);
  });
});
