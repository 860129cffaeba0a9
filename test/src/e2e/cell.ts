/** One cell of the matrix: a broker on one kind of ledger, reached by runners over one transport. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type AgentClient, createAgentClient } from "@toolrunner/agent-sdk";
import { type Broker, createBroker, type Log, SCOPES, type StoreOptions } from "@toolrunner/broker";
import { createRunner, type Runner, type RunnerOptions, type Tool, type Transport } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket } from "@toolrunner/runner-sdk/node";
import { memoryTransport } from "@toolrunner/runner-sdk/testing";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { startTcpProxy, type TcpProxy } from "../kit/tcp-proxy.js";

export const TRANSPORTS = ["memory", "websocket_binary", "websocket_json", "grpc"] as const;
export type TransportKind = (typeof TRANSPORTS)[number];
export type LedgerKind = "memory" | "sqlite" | "jetstream";

const AGENT_KEY = "test-agent-key-0123456789abcdef";
const RUNNER_KEY = "test-runner-key-0123456789abcdef";

/** Short figures: what takes seconds in production takes tenths here. A lease outlasts a redial (at most 0.5 s), as it does there. */
const FIGURES = { pingIntervalMs: 200, leaseMs: 2_000, waitingNoticeMs: 50, settledMemoryMs: 1_000 };

/** A way to the broker that a test can cut. */
export interface Line {
  readonly transport: Transport;
  cut(): void;
  /** While held, no new connection is made. */
  hold(held: boolean): void;
}

export interface RunnerSetting {
  readonly binding: string;
  readonly tools: readonly Tool[];
  readonly subject?: string;
  readonly runnerId?: string;
  readonly concurrency?: number;
  readonly authorize?: NonNullable<RunnerOptions["authorize"]>;
  readonly line?: Line;
  readonly onSubmissionEnded?: NonNullable<RunnerOptions["onSubmissionEnded"]>;
}

export interface Cell {
  readonly transport: TransportKind;
  readonly ledger: LedgerKind;
  readonly broker: Broker;
  readonly client: AgentClient;
  /** Everything that the broker logged. */
  readonly logged: readonly string[];
  /** HTTP as it is on the wire, by the agent's key unless `by` is the runner's. */
  http(
    method: string,
    path: string,
    body?: unknown,
    by?: "agent" | "runner",
  ): Promise<{ readonly status: number; readonly body: Record<string, unknown> & { readonly error?: Record<string, unknown> } }>;
  line(): Promise<Line>;
  /** Starts a runner; the cell stops it at its end. */
  runner(setting: RunnerSetting): Promise<Runner>;
  /** A name that no other scenario uses. */
  name(prefix: string): string;
  stop(): Promise<void>;
}

export async function startCell(transport: TransportKind, ledger: LedgerKind): Promise<Cell> {
  const undo: (() => Promise<unknown> | unknown)[] = [];
  const logged: string[] = [];
  const broker = await createBroker({
    mode: "dev",
    store: await storeOf(ledger, undo),
    http: { host: "127.0.0.1", port: 0 },
    grpc: { host: "127.0.0.1", port: 0 },
    staticKeys: [
      { kind: "agent", id: "key_test_agent", key: AGENT_KEY, application: "default", scopes: SCOPES },
      { kind: "runner", id: "key_test_runner", key: RUNNER_KEY, application: "default", binding: "*", mayNameSubject: true },
    ],
    log: recordingLog(logged),
    figures: FIGURES,
  });
  undo.push(() => broker.stop({ drainMs: 0 }));
  const client = createAgentClient({ url: broker.addresses.http, key: AGENT_KEY });
  const runners: Runner[] = [];
  let names = 0;

  async function line(): Promise<Line> {
    if (transport === "memory") {
      return memoryLine(broker);
    }
    const address = new URL(transport === "grpc" ? (broker.addresses.grpc ?? "") : broker.addresses.ws);
    const proxy = await startTcpProxy(Number(address.port));
    undo.push(() => proxy.close());
    return socketLine(transport, proxy);
  }

  return {
    transport,
    ledger,
    broker,
    client,
    logged,
    line,
    async http(method, path, body, by = "agent") {
      const response = await fetch(`${broker.addresses.http}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${by === "agent" ? AGENT_KEY : RUNNER_KEY}`,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    },
    async runner(setting) {
      const way = setting.line ?? (await line());
      const { line: _line, ...options } = setting;
      const runner = createRunner({ ...options, transport: way.transport, token: RUNNER_KEY });
      runners.push(runner);
      await runner.start();
      return runner;
    },
    name(prefix) {
      names += 1;
      return `${prefix}_${names}`;
    },
    async stop() {
      await Promise.all(runners.map((runner) => runner.stop()));
      for (const step of undo.reverse()) {
        await step();
      }
    },
  };
}

async function storeOf(ledger: LedgerKind, undo: (() => Promise<unknown> | unknown)[]): Promise<StoreOptions> {
  switch (ledger) {
    case "memory":
      return { kind: "memory" };
    case "sqlite": {
      const dataDir = await mkdtemp(join(tmpdir(), "toolrunner-e2e-"));
      undo.push(() => rm(dataDir, { recursive: true, force: true }));
      return { kind: "sqlite", dataDir };
    }
    case "jetstream": {
      const nats: NatsServer = await startNatsServer({ version: "2.9" });
      undo.push(() => nats.dispose());
      return { kind: "nats", url: nats.url };
    }
  }
}

function memoryLine(broker: Broker): Line {
  let held = false;
  const severs = new Set<() => void>();
  return {
    transport: memoryTransport((channel, { sever }) => {
      if (held) {
        throw new Error("the line is held");
      }
      severs.add(sever);
      broker.serveRunner(channel);
    }),
    cut() {
      for (const sever of severs) {
        sever();
      }
      severs.clear();
    },
    hold(next) {
      held = next;
    },
  };
}

function socketLine(transport: Exclude<TransportKind, "memory">, proxy: TcpProxy): Line {
  const made =
    transport === "grpc"
      ? connectGrpc(`grpc://127.0.0.1:${proxy.port}`)
      : connectWebSocket(`ws://127.0.0.1:${proxy.port}/v1/runner`, { encoding: transport === "websocket_json" ? "json" : "binary" });
  return { transport: made, cut: () => proxy.cut(), hold: (held) => proxy.hold(held) };
}

function recordingLog(lines: string[]): Log {
  const record = (level: string) => (event: string, fields?: object) => {
    lines.push(JSON.stringify({ level, event, ...fields }));
  };
  return { debug: record("debug"), info: record("info"), warn: record("warn"), error: record("error") };
}
