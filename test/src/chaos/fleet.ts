/**
 * What a run is made of: a NATS cluster, brokers and runners as processes, and the links between all of them.
 *
 * Every connection between two parts goes through a link of its own, so that each can fail by itself. Runners reach brokers by a link
 * that balances: each new connection goes to the next broker, whether that lives or not.
 */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort, type NatsCluster, startNatsCluster } from "../kit/index.js";
import type { Alarm } from "./history.js";
import { type Link, startLink } from "./link.js";
import { createChildMember, type Member } from "./member.js";
import type { RunnerConfig } from "./runner-program.js";
import { seededRandom } from "./seeded-random.js";

export const ADMIN_KEY = "chaos-admin-key-0123456789abcdefgh";
export const BINDING = "work";

export interface FleetOptions {
  readonly seed: number;
  readonly brokers: number;
  readonly natsServers: 1 | 3;
  readonly runners: number;
  /** Holds logs, journals and the handlers' files. */
  readonly folder: string;
  /** Whether the links drop packets below TCP. */
  readonly dropsPackets: boolean;
  /** More arguments of each broker. Default: none. */
  readonly brokerArgs?: readonly string[];
  readonly alarm: (alarm: Alarm) => void;
}

export interface Fleet {
  readonly nats: NatsCluster;
  readonly brokers: readonly Member[];
  readonly runners: readonly Member[];
  /** By target, such as `broker-nats:1:2`. */
  readonly links: ReadonlyMap<string, Link>;
  /** Where agents reach each broker, through its links. */
  readonly agentPorts: readonly { readonly http: number; readonly grpc: number }[];
  /** Where each broker listens itself. */
  readonly brokerPorts: readonly { readonly http: number; readonly grpc: number }[];
  /** Of NATS servers, without links. */
  readonly natsUrls: readonly string[];
  /** Starts runners with this key of the binding. */
  startRunners(token: string): Promise<void>;
  /** Alarms that brokers logged. */
  logged(): readonly Alarm[];
  close(): Promise<void>;
}

const CLI = fileURLToPath(new URL("../../../cli/bin/toolrunner.js", import.meta.url));
const RUNNER = fileURLToPath(new URL("./runner-program.js", import.meta.url));
/** What no fault of the world explains: a broker that logs it has done something wrong, or its ledger has. */
const ALARMING = new Set([
  "ledger_forked",
  "ledger_rolled_back",
  "ledger_fatal",
  "entry_rejected",
  "timer_failed",
  "frame_failed",
  "driver_failed",
  "session_failed",
  "verify_failed",
  "bus_listener_failed",
  "catalog_document_unreadable",
  "http_request_failed",
  "grpc_request_failed",
]);
const BROKER_DRAIN_SECONDS = 5;

/** Starts NATS, links and brokers. Runners follow when there is a key for them. */
export async function startFleet(options: FleetOptions): Promise<Fleet> {
  const { seed, folder, dropsPackets, alarm } = options;
  const links = new Map<string, Link>();
  const opened = async (name: string, targets: () => readonly number[]): Promise<number> => {
    // A cluster that had to be begun anew has other ports.
    await links.get(name)?.close();
    const link = await startLink({ targets, random: seededRandom(seed, name), dropsPackets });
    links.set(name, link);
    return link.port;
  };
  const nats = await startNatsCluster({
    size: options.natsServers,
    // Each piece of a route is seen and may be held by the link between the two servers.
    linkRoute: (from, to, port) => opened(`nats-nats:${from + 1}:${to + 1}`, () => [port]),
  });
  const brokers: Member[] = [];
  const runners: Member[] = [];
  const close = async (): Promise<void> => {
    await Promise.all([...runners, ...brokers].map((member) => member.kill()));
    await Promise.all([...links.values()].map((link) => link.close()));
    await nats.dispose();
  };
  try {
    const brokerPorts: { http: number; grpc: number }[] = [];
    const agentPorts: { http: number; grpc: number }[] = [];
    for (let index = 1; index <= options.brokers; index += 1) {
      const ports = { http: await freePort(), grpc: await freePort() };
      brokerPorts.push(ports);
      const urls: string[] = [];
      for (const [server, node] of nats.nodes.entries()) {
        urls.push(`nats://127.0.0.1:${await opened(`broker-nats:${index}:${server + 1}`, () => [node.port])}`);
      }
      agentPorts.push({
        http: await opened(`agent-broker:${index}:1`, () => [ports.http]),
        grpc: await opened(`agent-broker:${index}:2`, () => [ports.grpc]),
      });
      const listen = ["--port", String(ports.http), "--grpc-port", String(ports.grpc), "--drain-seconds", String(BROKER_DRAIN_SECONDS)];
      const replicas = options.natsServers === 3 ? "3" : "1";
      brokers.push(
        createChildMember({
          name: `broker-${index}`,
          args: [CLI, "broker", "--nats", urls.join(","), "--replicas", replicas, ...listen, "--json", ...(options.brokerArgs ?? [])],
          cwd: folder,
          env: { TOOLRUNNER_BOOTSTRAP_KEY: ADMIN_KEY },
          logFile: join(folder, `broker-${index}.log`),
          alarm,
        }),
      );
    }
    await Promise.all(brokers.map((broker) => broker.ensureUp()));
    return {
      nats,
      brokers,
      runners,
      links,
      agentPorts,
      brokerPorts,
      natsUrls: nats.urls,
      async startRunners(token) {
        for (let index = 1; index <= options.runners; index += 1) {
          const transport = index % 2 === 0 ? "grpc" : "websocket";
          const all = brokerPorts.map((ports) => (transport === "grpc" ? ports.grpc : ports.http));
          // Each begins with another broker.
          const targets = all.map((_, turn) => all[(turn + index) % all.length] ?? 0);
          const port = await opened(`runner-broker:${index}`, () => targets);
          const name = `runner-${index}`;
          mkdirSync(join(folder, name));
          const url = transport === "grpc" ? `grpc://127.0.0.1:${port}` : `ws://127.0.0.1:${port}`;
          const config: RunnerConfig = { name, transport, url, binding: BINDING, token, folder: join(folder, name) };
          const logFile = join(folder, `${name}.log`);
          runners.push(createChildMember({ name, args: [RUNNER, JSON.stringify(config)], cwd: folder, env: {}, logFile, alarm }));
        }
        await Promise.all(runners.map((runner) => runner.ensureUp()));
      },
      logged: () => brokers.flatMap(({ name }) => alarmsIn(name, join(folder, `${name}.log`))),
      close,
    };
  } catch (cause) {
    await close();
    throw cause;
  }
}

function alarmsIn(process: string, path: string): readonly Alarm[] {
  const alarms: Alarm[] = [];
  for (const line of readFileSync(path, "utf8").split("\n")) {
    if (!line.startsWith("{") || !line.endsWith("}")) continue;
    const { event, call } = JSON.parse(line) as { event?: string; call?: string };
    if (event !== undefined && ALARMING.has(event)) alarms.push({ process, event, call: call ?? null });
  }
  return alarms;
}
