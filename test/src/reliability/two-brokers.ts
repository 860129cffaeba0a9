/** Two brokers in processes of their own on one NATS, and runners of this process: what a handler sees is timed by one clock. */
import { type AgentClient, createAgentClient } from "@toolrunner/agent-sdk";
import { createRunner, type Runner, type RunnerOptions, type Tool } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket } from "@toolrunner/runner-sdk/node";
import { ADMIN_KEY, type Answer, createStage, type Stage } from "../brokers/stage.js";
import type { CliProcess } from "../kit/cli-process.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";

export interface TwoBrokers {
  readonly a: CliProcess;
  readonly b: CliProcess;
  /** An agent at each of them. */
  readonly atA: AgentClient;
  readonly atB: AgentClient;
  /** The key of the binding's runners. */
  readonly token: string;
  http(broker: CliProcess, method: string, path: string, body?: unknown, key?: string): Promise<Answer>;
  /** A runner at `broker`; stopped at the end. */
  runner(broker: CliProcess, transport: "ws" | "grpc", tools: readonly Tool[], more?: Partial<RunnerOptions>): Promise<Runner>;
  /** Starts a toolset of these tools, each with the fields that its definition has. */
  publish(toolset: string, tools: readonly Tool[]): Promise<void>;
  close(): Promise<void>;
}

export const BINDING = "work";

export async function startTwoBrokers(): Promise<TwoBrokers> {
  const nats: NatsServer = await startNatsServer({ version: "2.10" });
  const stage: Stage = await createStage();
  const runners: Runner[] = [];
  const [a, b] = await Promise.all([stage.broker(nats.url), stage.broker(nats.url)]);
  const token = await stage.setUp(a);
  const clientOf = (broker: CliProcess): AgentClient => createAgentClient({ url: String(broker.ready.http), key: ADMIN_KEY });

  async function http(broker: CliProcess, method: string, path: string, body?: unknown, key = ADMIN_KEY): Promise<Answer> {
    const response = await fetch(`${String(broker.ready.http)}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  }

  return {
    a,
    b,
    atA: clientOf(a),
    atB: clientOf(b),
    token,
    http,
    async runner(broker, transport, tools, more = {}) {
      const url = String(broker.ready[transport]);
      const runner = createRunner({
        transport: transport === "ws" ? connectWebSocket(url) : connectGrpc(url),
        binding: BINDING,
        token,
        tools,
        ...more,
      });
      runners.push(runner);
      await runner.start();
      return runner;
    },
    async publish(toolset, tools) {
      const saved = await http(a, "PUT", `/v1/toolsets/${toolset}`, {
        base_version: 0,
        tools: tools.map((tool) => ({
          name: tool.name,
          description: tool.description,
          input_schema: tool.input,
          binding: BINDING,
          idempotent: tool.idempotent,
          cancellable: tool.cancellable,
          confirmation: tool.confirmation,
          result_semantics: tool.resultSemantics,
        })),
      });
      if (saved.status !== 201) throw new Error(`the toolset was not saved: ${JSON.stringify(saved)}`);
    },
    async close() {
      await Promise.all(runners.map((runner) => runner.stop()));
      await stage.close();
      await nats.dispose();
    },
  };
}

/** Middle and largest of a list of times, in words. */
export function timesInWords(times: readonly number[]): string {
  const sorted = [...times].sort((x, y) => x - y);
  const at = (part: number): string => (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN).toFixed(1);
  return `${sorted.length} times: median ${at(0.5)} ms, 95 % ${at(0.95)} ms, largest ${at(1)} ms`;
}
