import { describeLedger } from "@toolrunner/broker/testing";
import { type NatsCluster, startNatsCluster } from "../kit/nats-server-cluster.js";
import { corruptBlobOn, openOn } from "./jetstream-harness.js";

const STREAM = "tr_calls";
const STEP_DOWN_EVERY = 6;
/** One kill costs an election of several seconds, so it is done seldom: in the short form only in the race at expected n. */
const KILL_EVERY = 50;
const KILL_AT = 9;
const isLong = process.env.TOOLRUNNER_LONG === "1";

async function killLeader(cluster: NatsCluster): Promise<void> {
  const leader = await cluster.leaderOf(STREAM);
  await (leader ?? cluster.nodes[0])?.kill9();
  await cluster.heal();
}

let cluster: NatsCluster | undefined;
let races = 0;

/** The whole suite on three servers with three replicas (L1), with step-downs and kill -9 of the leader while writers race. */
describeLedger(
  "jetstream on three nats-servers 2.10.27 with three replicas",
  async () => {
    const started = await startNatsCluster({ size: 3 });
    cluster = started;
    return {
      shared: true,
      open: async () => (await openOn(started.urls, { replicas: 3 })).ledger,
      crash: () => killLeader(started),
      corruptBlob: (blob) => corruptBlobOn(started.urls, blob),
      dispose: () => started.dispose(),
    };
  },
  {
    rounds: 20,
    testTimeoutMs: 60_000,
    disturb: async (round) => {
      if (cluster === undefined) return;
      if (round === 0) races += 1;
      if (round % KILL_EVERY === KILL_AT && (isLong || races > 1)) await killLeader(cluster);
      else if (round % STEP_DOWN_EVERY === 2) await cluster.stepDown(STREAM);
    },
  },
);
