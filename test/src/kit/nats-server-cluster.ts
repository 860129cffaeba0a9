/** A cluster of real nats-servers with JetStream, for tests of replication and fail-over. */
import { connect } from "@nats-io/transport-node";
import { freePort, type NatsServer, type NatsServerLine, prepareClusterNode } from "./nats-server.js";

export interface NatsClusterOptions {
  /** Number of servers. Default 3. */
  readonly size?: number;
  /** Of each server. Default `2.10` for all, the oldest that may replicate. */
  readonly versions?: readonly NatsServerLine[];
  /** More lines of each server's configuration file. */
  readonly config?: string;
  /**
   * Puts something between two servers: gets the index of the one that dials, that of the other and its port for routes, and
   * answers the port to dial instead. Servers then tell nobody their own addresses, neither each other nor clients, so that nothing
   * goes round it. Default: they dial each other.
   */
  readonly linkRoute?: (from: number, to: number, port: number) => Promise<number>;
}

export interface NatsCluster {
  readonly nodes: readonly NatsServer[];
  /** Of all nodes. */
  readonly urls: readonly string[];
  /** The node that leads `stream`, or `undefined` when there is no leader now. */
  leaderOf(stream: string): Promise<NatsServer | undefined>;
  /** Makes the leader of `stream` give up leadership. Says whether one did. */
  stepDown(stream: string): Promise<boolean>;
  /** Starts those that do not run, and waits for JetStream's leader. */
  heal(): Promise<void>;
  /** Resolves when JetStream answers. */
  ready(): Promise<void>;
  dispose(): Promise<void>;
}

const READY_TIMEOUT_MS = 40_000;
const START_TRIES = 3;

/** Starts the servers and waits until JetStream has a leader. */
export async function startNatsCluster(options: NatsClusterOptions = {}): Promise<NatsCluster> {
  for (let tries = 1; ; tries += 1) {
    const cluster = await prepareCluster(options);
    try {
      // The first time, servers that start at once can elect a leader that counts two of them for good: it looks how many have
      // JetStream before it has heard from all. One that comes to a leader is counted.
      for (const some of [cluster.nodes.slice(0, 2), cluster.nodes.slice(2)]) {
        await Promise.all(some.map((node) => node.restart()));
        await cluster.ready();
      }
      await placed(cluster.urls);
      return cluster;
    } catch (error) {
      await cluster.dispose();
      // A port may have been taken between choosing and using it.
      if (tries === START_TRIES) throw error;
    }
  }
}

/**
 * Waits until a stream can be placed on all servers: a leader alone may have found only some of them, and a server that
 * found the others once finds them again.
 */
async function placed(urls: readonly string[]): Promise<void> {
  const connection = await connect({ servers: urls.map((url) => url.replace("nats://", "")), timeout: 5_000 });
  try {
    const stream = JSON.stringify({ name: "kit_ready", subjects: ["kit.ready"], num_replicas: urls.length, storage: "memory" });
    const end = performance.now() + READY_TIMEOUT_MS;
    for (;;) {
      const answer = await connection.request("$JS.API.STREAM.CREATE.kit_ready", stream, { timeout: 5_000 }).then(
        (message) => message.json<{ error?: { description?: string } }>(),
        () => ({ error: { description: "no answer" } }),
      );
      if (answer.error === undefined) break;
      if (performance.now() > end) throw new Error(`no stream can be placed on all servers: ${answer.error.description ?? ""}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await connection.request("$JS.API.STREAM.DELETE.kit_ready", "", { timeout: 5_000 });
  } finally {
    await connection.close();
  }
}

async function prepareCluster({ size = 3, versions = [], config = "", linkRoute }: NatsClusterOptions): Promise<NatsCluster> {
  const ports = new Set<number>();
  while (ports.size < size * 2) ports.add(await freePort());
  const [clientPorts, clusterPorts] = [[...ports].slice(0, size), [...ports].slice(size)];
  const routesOf = (from: number): Promise<string[]> =>
    Promise.all(
      clusterPorts.flatMap((port, to) =>
        to === from ? [] : [(linkRoute?.(from, to, port) ?? Promise.resolve(port)).then((dialled) => `nats://127.0.0.1:${dialled}`)],
      ),
    );
  const nodes = await Promise.all(
    clientPorts.map(async (port, index) =>
      prepareClusterNode({
        version: versions[index] ?? "2.10",
        name: `node-${index + 1}`,
        port,
        clusterPort: clusterPorts[index] ?? 0,
        cluster: `toolrunner-${clusterPorts[0] ?? 0}`,
        routes: await routesOf(index),
        isHidden: linkRoute !== undefined,
        config,
      }),
    ),
  );
  const urls = nodes.map(({ url }) => url);

  const ask = async (subject: string, timeoutMs: number): Promise<Record<string, unknown> | undefined> => {
    const servers = nodes.filter(({ running }) => running).map(({ port }) => `127.0.0.1:${port}`);
    const connection = await connect({ servers, reconnect: false, timeout: timeoutMs }).catch(() => undefined);
    try {
      const answer = await connection?.request(subject, "{}", { timeout: timeoutMs });
      return answer === undefined || answer.data.length === 0 ? undefined : answer.json<Record<string, unknown>>();
    } catch {
      // No answer, or nobody who could give one: that is what the caller wants to know.
      return undefined;
    } finally {
      await connection?.close();
    }
  };
  const ready = async (): Promise<void> => {
    const end = performance.now() + READY_TIMEOUT_MS;
    for (;;) {
      const answer = await ask("$JS.API.INFO", 1_000);
      if (answer !== undefined && answer.error === undefined) return;
      if (performance.now() > end)
        throw new Error(`JetStream has no leader after ${READY_TIMEOUT_MS} ms:\n${nodes.map((node) => node.log()).join("\n")}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  return {
    nodes,
    urls,
    leaderOf: async (stream) => {
      const info = await ask(`$JS.API.STREAM.INFO.${stream}`, 1_000);
      const leader = (info?.cluster as { leader?: string } | undefined)?.leader;
      return nodes.find(({ name }) => name === leader);
    },
    stepDown: async (stream) => {
      const answer = await ask(`$JS.API.STREAM.LEADER.STEPDOWN.${stream}`, 3_000);
      return answer !== undefined && answer.error === undefined;
    },
    heal: async () => {
      await Promise.all(nodes.filter(({ running }) => !running).map((node) => node.restart()));
      await ready();
    },
    ready,
    dispose: async () => {
      await Promise.all(nodes.map((node) => node.dispose()));
    },
  };
}
